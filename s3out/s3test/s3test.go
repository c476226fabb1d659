// Package s3test gives tests a fresh bucket on a real S3. It is found in this order: EXPORTD_TEST_S3_ENDPOINT, a container if an engine answers
// and has the image, the program versitygw on this machine.
package s3test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"exportd/containertest"
	"exportd/s3out"
	"exportd/s3out/locals3"
)

// server is the one S3 of this test binary.
var server struct {
	sync.Mutex
	endpoint string
	err      error
	stop     func() error
}

// Endpoint starts the test binary's S3 if need be and says where it is. Credentials are put into the environment of the process, where the SDK
// finds them. Without any S3 the test is skipped, or fails when EXPORTD_TEST_REQUIRE names s3.
func Endpoint(t testing.TB) string {
	t.Helper()
	server.Lock()
	defer server.Unlock()
	if server.endpoint == "" && server.err == nil {
		server.endpoint, server.stop, server.err = find(t.Context())
	}
	if server.err != nil {
		if containertest.Required() || slices.Contains(strings.Split(os.Getenv("EXPORTD_TEST_REQUIRE"), ","), "s3") {
			t.Fatalf("no S3 for this test: %v", server.err)
		}
		t.Skipf("no S3 for this test: %v\ntry: %s", server.err, locals3.Hint)
	}
	return server.endpoint
}

// Stop ends what Endpoint started. TestMain calls it after the tests, before it looks for leaks; what nobody stops dies with the process.
func Stop() {
	server.Lock()
	defer server.Unlock()
	if server.stop != nil {
		_ = server.stop() // it ends with the process anyway
	}
	server.endpoint, server.stop = "", nil
}

// Config is the configuration of a fresh bucket, which is created and, when the test ends, emptied and removed.
func Config(t testing.TB) s3out.Config {
	t.Helper()
	cfg := s3out.Config{
		Bucket:   "exportd-" + strings.ToLower(rand.Text()[:16]),
		BasePath: "exports",
		Endpoint: Endpoint(t),
		Region:   "us-east-1",
		Log:      slog.New(slog.DiscardHandler),
	}
	cfg.CreateBucket = true
	store := open(t, cfg)
	if err := store.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, store, cfg) })
	cfg.CreateBucket = false
	return cfg
}

// Open gives a Store on a fresh bucket.
func Open(t testing.TB, change ...func(*s3out.Config)) *s3out.Store {
	t.Helper()
	cfg := Config(t)
	for _, c := range change {
		c(&cfg)
	}
	return open(t, cfg)
}

func open(t testing.TB, cfg s3out.Config) *s3out.Store {
	t.Helper()
	store, err := s3out.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func remove(t testing.TB, store *s3out.Store, cfg s3out.Config) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for o, err := range store.ListObjects(ctx, "") {
		if err != nil {
			return // the test has stopped its server
		}
		_ = store.Delete(ctx, o.Key, "")
	}
	for u, err := range store.ListUploads(ctx, "") {
		if err != nil {
			return
		}
		_ = store.AbortUpload(ctx, u.Key, u.UploadID)
	}
	base, err := config.LoadDefaultConfig(ctx, config.WithRegion(cfg.Region))
	if err != nil {
		return
	}
	client := s3.NewFromConfig(base, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &cfg.Endpoint, true })
	if _, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &cfg.Bucket}); err != nil {
		t.Logf("the bucket %s stays: %v", cfg.Bucket, err)
	}
}

func find(ctx context.Context) (endpoint string, stop func() error, err error) {
	if e := os.Getenv("EXPORTD_TEST_S3_ENDPOINT"); e != "" {
		return e, nil, nil
	}
	ctx = context.WithoutCancel(ctx) // of the first test; the server outlives it
	endpoint, stop, err = container(ctx)
	if errors.Is(err, containertest.ErrNone) {
		endpoint, stop, err = program(ctx)
	}
	if err != nil {
		return "", nil, err
	}
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": locals3.AccessKey, "AWS_SECRET_ACCESS_KEY": locals3.SecretKey, "AWS_SESSION_TOKEN": ""} {
		if err := os.Setenv(k, v); err != nil {
			return "", nil, err
		}
	}
	return endpoint, stop, nil
}

func program(ctx context.Context) (endpoint string, stop func() error, err error) {
	path, err := locals3.Find(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("no program versitygw: %w", err)
	}
	dir, err := os.MkdirTemp("", "exportd-s3-")
	if err != nil {
		return "", nil, err
	}
	s, err := locals3.Start(ctx, path, dir)
	if err != nil {
		return "", nil, err
	}
	return s.Endpoint(), func() error {
		return errors.Join(s.Kill(), os.RemoveAll(dir)) // nothing is worth a graceful end
	}, nil
}
