package api_test

import (
	"strings"
	"testing"
)

func TestRequestIDIsTheCallersIfSane(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	for header, want := range map[string]string{"req-1/a:b+c=@x_.": "req-1/a:b+c=@x_.", strings.Repeat("a", 128): strings.Repeat("a", 128)} {
		if got := w.do("GET", "/healthz", "", "X-Request-Id", header).Header.Get("X-Request-Id"); got != want {
			t.Errorf("%q became %q", header, got)
		}
	}
	for _, header := range []string{"a b", "a\tb", "<script>", "é", strings.Repeat("a", 129), `a"b`} {
		got := w.do("GET", "/healthz", "", "X-Request-Id", header).Header.Get("X-Request-Id")
		if got == header || len(got) < 16 {
			t.Errorf("%q became %q", header, got)
		}
	}
	if got := w.do("GET", "/healthz", "", "X-Request-Id", "bad id", "X-Correlation-Id", "good").Header.Get("X-Request-Id"); got != "good" {
		t.Errorf("got %q", got)
	}
	if a, b := w.do("GET", "/healthz", "").Header.Get("X-Request-Id"), w.do("GET", "/healthz", "").Header.Get("X-Request-Id"); a == b {
		t.Errorf("the same id %q twice", a)
	}
	// Line breaks cannot come over the wire, but through a handler in front.
	if status, body := setupHandler()("", map[string]string{"X-Request-Id": "a\r\nSet-Cookie: x"}); status != 400 || strings.Contains(body, "Cookie") {
		t.Errorf("%d %s", status, body)
	}
}

func TestEveryMethodHasItsAnswer(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	get, head := w.do("GET", "/jobs/J20260102_000001", ""), w.do("HEAD", "/jobs/J20260102_000001", "")
	if head.StatusCode != 200 || len(head.body) != 0 || head.Header.Get("ETag") != get.Header.Get("ETag") {
		t.Errorf("HEAD: %d %v", head.StatusCode, head.Header)
	}
	for path, want := range map[string]string{"/jobs": "GET, POST, HEAD, OPTIONS", "/jobs/J20260102_000001": "GET, HEAD, OPTIONS", "/healthz": "GET, HEAD, OPTIONS"} {
		a := w.do("DELETE", path, "")
		a.problem(t, 405, "method-not-allowed")
		if a.Header.Get("Allow") != want {
			t.Errorf("%s: Allow %q", path, a.Header.Get("Allow"))
		}
		if a := w.do("OPTIONS", path, ""); a.StatusCode != 204 || a.Header.Get("Allow") != want || len(a.body) != 0 {
			t.Errorf("OPTIONS %s: %d %q", path, a.StatusCode, a.Header.Get("Allow"))
		}
	}
	for _, path := range []string{"/", "/nothing", "/jobs/", "//jobs", "/jobs/J20260102_000001/", "/JOBS"} {
		w.do("GET", path, "", "X-Forwarded-Prefix", "/evil").problem(t, 404, "not-found")
	}
}

func TestEveryAnswerHasItsSafetyHeaders(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	for _, a := range []answer{w.do("POST", "/jobs", oneChunk), w.do("POST", "/jobs", ""), w.do("GET", "/x", ""), w.do("GET", "/healthz", ""), w.do("PUT", "/jobs", "")} {
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"} {
			if a.Header.Get(name) != want {
				t.Errorf("%s %s: %s is %q", a.Request.Method, a.Request.URL, name, a.Header.Get(name))
			}
		}
	}
}

func TestMalformedTraceparentIsDropped(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	for _, bad := range []string{
		"x", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-001",
	} {
		if a := w.do("POST", "/jobs", oneChunk, "traceparent", bad); a.StatusCode != 202 {
			t.Errorf("%s: %d", bad, a.StatusCode)
		}
	}
	for _, s := range w.store.all() {
		if s.req.Traceparent != "" {
			t.Errorf("stored %q", s.req.Traceparent)
		}
	}
}
