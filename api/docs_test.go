package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTheDocsPageShowsTheWholeDocumentWithoutScripts(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	a := w.do("GET", "/docs", "")
	page := string(a.body)
	for _, op := range served().Operations {
		if !strings.Contains(page, `<article id="`+op.ID+`">`) || !strings.Contains(page, op.Path) {
			t.Errorf("%s is not there", op.ID)
		}
	}
	if !strings.Contains(page, `<article id="jobEnded">`) || !strings.Contains(page, "webhook-signature") {
		t.Error("the callback is not there")
	}
	spec := w.do("GET", "/openapi.json", "").json(t)
	for name := range spec["components"].(map[string]any)["schemas"].(map[string]any) {
		if !strings.Contains(page, `id="schema-`+name+`"`) {
			t.Errorf("schema %s is not there", name)
		}
	}
	for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("a link to %s leads nowhere", m[1])
		}
	}
	if foreign := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|\ssrc=|\sstyle=|\son\w+=|href="[^#/]|href="//`).FindString(page); foreign != "" {
		t.Errorf("the page holds %s", foreign)
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)
	if style == nil {
		t.Fatal("no style")
	}
	sum := sha256.Sum256([]byte(style[1]))
	if policy := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';") {
		t.Errorf("%s does not allow the style", policy)
	}
}

// For linters and generators: EXPORTD_TEST_OPENAPI names the file to write.
func TestTheDocumentCanBeWrittenToAFile(t *testing.T) {
	path := os.Getenv("EXPORTD_TEST_OPENAPI")
	if path == "" {
		path = t.TempDir() + "/openapi.json"
	}
	if err := os.WriteFile(path, setup(t, nil).do("GET", "/openapi.json", "").body, 0o644); err != nil {
		t.Fatal(err)
	}
}
