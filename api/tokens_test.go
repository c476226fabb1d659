package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"exportd/api"

	"github.com/google/go-cmp/cmp"
)

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestTenantsSeeTheirOwnJobsOnly(t *testing.T) {
	t.Parallel()
	tokens, err := api.ParseTokens(strings.NewReader("# comment\n\nred:submitter:" + hash("r") + "\r\nblue:submitter:" + strings.ToUpper(hash("b")) + "\nops:operator:" + hash("o")))
	if err != nil {
		t.Fatal(err)
	}
	w := setup(t, func(c *api.Config) { c.Tokens = tokens })
	if a := w.do("POST", "/jobs", oneChunk, "Authorization", "Bearer r", "Idempotency-Key", "k"); a.StatusCode != 202 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if a := w.do("POST", "/jobs", strings.Replace(oneChunk, "ABC", "B", 1), "Authorization", "bearer b", "Idempotency-Key", "k"); a.StatusCode != 202 || a.json(t)["jobId"] != "J20260102_000002" {
		t.Errorf("the same key of another tenant: %d %s", a.StatusCode, a.body)
	}
	for token, want := range map[string]int{"r": 200, "o": 200} {
		if a := w.do("GET", "/jobs/J20260102_000001", "", "Authorization", "Bearer "+token); a.StatusCode != want {
			t.Errorf("%s: %d", token, a.StatusCode)
		}
	}
	other := w.do("GET", "/jobs/J20260102_000001", "", "Authorization", "Bearer b").problem(t, 404, "not-found")
	none := w.do("GET", "/jobs/J20260102_000099", "", "Authorization", "Bearer b").problem(t, 404, "not-found")
	if other.Detail != none.Detail {
		t.Errorf("%q tells another tenant's job from none (%q)", other.Detail, none.Detail)
	}
	for _, value := range []string{"", "Bearer", "Bearer ", "Bearer x", "Basic r", "r", "Bearer " + hash("r")} {
		a := w.do("GET", "/jobs/J20260102_000001", "", "Authorization", value)
		a.problem(t, 401, "unauthorized")
		if a.Header.Get("WWW-Authenticate") != `Bearer realm="exportd"` {
			t.Errorf("%q: %v", value, a.Header)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json"} {
		if a := w.do("GET", path, ""); a.StatusCode != 200 {
			t.Errorf("%s without token: %d", path, a.StatusCode)
		}
	}
	if strings.Contains(w.log.String(), "Bearer") || strings.Contains(w.log.String(), hash("r")) {
		t.Errorf("the log holds tokens: %s", w.log)
	}
}

func TestParseTokensNamesEveryBadLine(t *testing.T) {
	t.Parallel()
	good := "a:operator:" + hash("x")
	_, err := api.ParseTokens(strings.NewReader(strings.Join([]string{
		good, "b:operator", "b c:operator:" + hash("y"), "d:admin:" + hash("z"), "e:operator:1234", good, "", "f:submitter:" + strings.Repeat("g", 64),
	}, "\n")))
	var got []string
	for line := range strings.Lines(fmt.Sprint(err)) {
		got = append(got, strings.TrimSpace(line))
	}
	want := []string{
		"line 2: must be tenant:role:sha256-of-token", "line 3: the tenant must be 1 to 64 of A-Z a-z 0-9 . _ -",
		"line 4: the role must be submitter or operator", "line 5: the token's sha256 must be 64 hexadecimal digits",
		"line 6: the token of line 1 again", "line 8: the token's sha256 must be 64 hexadecimal digits",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := api.ParseTokens(strings.NewReader("# nothing\n")); err == nil {
		t.Error("a file without tokens must not open the API, nor lock everyone out unseen")
	}
}
