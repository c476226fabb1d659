package s3out_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exportd/s3out"
	"exportd/s3out/s3test"
)

// H5-69. Credentials that live for two seconds, and an upload that lasts longer: each request is signed when it is sent, with what is valid then.
func TestEachPartIsSignedAnewWithCredentialsThatAreStillValid(t *testing.T) { // not parallel: it changes the environment
	cfg := s3test.Config(t)
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	process := filepath.Join(dir, "credentials")
	script := fmt.Sprintf("#!/bin/sh\necho >> %s\nprintf '{\"Version\":1,\"AccessKeyId\":\"%%s\",\"SecretAccessKey\":\"%%s\",\"Expiration\":\"%%s\"}' '%s' '%s' \"$(date -u -d '+2 seconds' +%%Y-%%m-%%dT%%H:%%M:%%SZ)\"\n",
		asked, os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"))
	if err := os.WriteFile(process, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte("[default]\ncredential_process = "+process+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_CONFIG_FILE": config, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"} {
		t.Setenv(name, value)
	}
	p := newProxy(t, cfg.Endpoint)
	cfg.Endpoint, cfg.PartSize = p.endpoint, partSize
	s := open(t, cfg)
	u := start(t, s, s3out.UploadOptions{Key: "exports/long"}, content(partSize+1))
	before := processRuns(t, asked)
	time.Sleep(2100 * time.Millisecond) // the credentials end meanwhile
	if _, err := u.Write(content(partSize)); err != nil {
		t.Fatal(err)
	}
	finish(t, u)
	commit(t, u, s3out.Condition{})
	if info, found := head(t, s, "exports/long"); !found || info.Size != 2*partSize+1 {
		t.Errorf("%v, %+v", found, info)
	}
	if after := processRuns(t, asked); after == before {
		t.Error("the credentials were not asked for again")
	}
	for _, r := range p.requests() {
		signed, err := time.Parse("20060102T150405Z", r.header.Get("X-Amz-Date"))
		if age := r.at.Sub(signed); err != nil || age > 2*time.Second {
			t.Errorf("%s %s was signed %s before it was sent, %v", r.method, r.path, age, err)
		}
	}
}

func processRuns(t *testing.T, asked string) int {
	t.Helper()
	b, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}
