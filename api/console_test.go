package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"exportd/api"
)

func TestTheConsoleIsServedBehindTheGuardsAndMayCallTheAPI(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) {
		c.ThisHost = true
		c.Console = func(inner http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					rw.WriteHeader(http.StatusSeeOther)
					return
				}
				r.URL.Path, r.URL.RawPath = strings.TrimPrefix(r.URL.Path, "/console"), ""
				inner.ServeHTTP(rw, r)
			})
		}
	})
	for _, c := range []struct {
		method, path, header, value string
		want                        int
	}{
		{"GET", "/console/healthz", "", "", 200},
		{"HEAD", "/console/healthz", "", "", 200},
		{"POST", "/console/healthz", "Sec-Fetch-Site", "same-origin", 303},
		{"POST", "/console/healthz", "Sec-Fetch-Site", "cross-site", 403},
		{"PUT", "/console/healthz", "", "", 405},
	} {
		req, err := http.NewRequest(c.method, "http://"+w.addr+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		resp, err := w.client.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s %s with %s %s: %d, want %d", c.method, c.path, c.header, c.value, resp.StatusCode, c.want)
		}
	}
}

func TestTokensSayWhoseTheyAre(t *testing.T) {
	t.Parallel()
	if tenant, operator, ok := (*api.Tokens)(nil).Identify(""); tenant != "default" || !operator || !ok {
		t.Errorf("without tokens everybody is %q, operator %v, %v", tenant, operator, ok)
	}
	tokens, err := api.ParseTokens(strings.NewReader("acme:submitter:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n")) // sha256 of test
	if err != nil {
		t.Fatal(err)
	}
	if tenant, operator, ok := tokens.Identify("test"); tenant != "acme" || operator || !ok {
		t.Errorf("got %q, operator %v, %v", tenant, operator, ok)
	}
	for _, token := range []string{"", "Test"} {
		if _, _, ok := tokens.Identify(token); ok {
			t.Errorf("%q is taken for a token", token)
		}
	}
}
