package console_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"exportd/console"
)

// paths are all pages, and whether they are for operators alone.
var paths = map[string]bool{
	"/console/": false, "/console/jobs": false, "/console/jobs/J20260102_000001": false, "/console/dead-letters": false, "/console/dead-letters/redrive?all=1": false,
	"/console/jobs/J20260102_000001/cancel": false, "/console/jobs/J20260102_000001/redrive": false, "/console/dead-letters/redrive?job=J20260102_000001": false,
	"/console/jobs/J20260102_000001/chunks/" + url.PathEscape(hostileChunk): false, "/console/jobs/J20260102_000001/chunks/" + url.PathEscape(hostileChunk) + "/parked": false,
	"/console/fleet": true, "/console/queues": true, "/console/audit": true,
}

func TestNothingOfHostileKeysAndErrorsBecomesMarkup(t *testing.T) {
	w := setup(t).signIn("operator")
	for path := range paths {
		rec := w.do("GET", path, nil)
		if rec.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
		for _, markup := range []string{"<script>alert", "<img src=x", "<s>cause", "<b>bold", "<tenant>", "<u>away", "q<b>", `title="<`, `"'/`} {
			if strings.Contains(rec.Body.String(), markup) {
				t.Errorf("%s holds %s", path, markup)
			}
		}
		csp := rec.Header().Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || rec.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, rec.Header())
		}
		if body := rec.Body.String(); strings.Contains(body, "style=") || strings.Contains(body, "<script>") || strings.Contains(body, " onclick=") {
			t.Errorf("%s has inline script or style, which its policy forbids", path)
		}
	}
}

func TestASubmitterSeesItsTenantOnly(t *testing.T) {
	w := setup(t).signIn("sub mitter/+=")
	for path, operators := range paths {
		rec := w.do("GET", path, nil)
		if want := map[bool]int{true: http.StatusForbidden, false: http.StatusOK}[operators]; rec.Code != want {
			t.Errorf("%s: %d, want %d", path, rec.Code, want)
		}
		if strings.Contains(rec.Body.String(), `href="/console/fleet"`) || strings.Contains(rec.Body.String(), `name="tenant"`) {
			t.Errorf("%s leads to what is for operators", path)
		}
	}
	if len(w.store.tenants) == 0 {
		t.Error("the store was not asked")
	}
	if w.store.tenantsAsked {
		t.Error("a submitter was told whose the jobs are")
	}
	for _, tenant := range w.store.tenants {
		if tenant != "acme" {
			t.Errorf("the store was asked for tenant %q", tenant)
		}
	}
	for _, call := range w.api.calls {
		if strings.Contains(call, "/workers") || strings.Contains(call, "/queues") || strings.Contains(call, "/audit") {
			t.Errorf("the API was asked %s", call)
		}
	}
	operator := setup(t).signIn("operator")
	if body := operator.do("GET", "/console/", nil).Body.String(); !strings.Contains(body, "&lt;tenant&gt;") {
		t.Error("an operator is not told whose the jobs are")
	}
	if len(operator.store.tenants) == 0 || operator.store.tenants[0] != "" {
		t.Errorf("for an operator the store was asked for %q", operator.store.tenants)
	}
}

func TestWhoIsNotSignedInIsSentToTheFormAndBack(t *testing.T) {
	w := setup(t)
	for path := range paths {
		rec := w.do("GET", path, nil)
		at, _ := url.Parse(rec.Header().Get("Location"))
		if to := at.Query().Get("to"); rec.Code != http.StatusSeeOther || at.Path != "/console/sign-in" || to != path && path != "/console/" {
			t.Errorf("%s: %d to %s", path, rec.Code, at)
		}
	}
	if rec := w.do("GET", "/console/jobs?part=list", nil, "HX-Request", "true"); rec.Code != http.StatusUnauthorized || rec.Header().Get("HX-Redirect") == "" {
		t.Errorf("a part of a page: %d %v", rec.Code, rec.Header())
	}
	if len(w.api.calls)+len(w.store.tenants) > 0 {
		t.Errorf("asked %q, %q", w.api.calls, w.store.tenants)
	}
	for to, want := range map[string]string{"/console/jobs?status=FAILED": "/console/jobs?status=FAILED", "https://evil.example/": "/console/", "//evil.example/console/": "/console/", "": "/console/"} {
		rec := w.do("POST", "/console/sign-in", url.Values{"token": {" operator\n"}, "to": {to}})
		if got := rec.Header().Get("Location"); rec.Code != http.StatusSeeOther || got != want {
			t.Errorf("back to %q: %d %s, want %s", to, rec.Code, got, want)
		}
	}
}

func TestTheCookieIsKeptFromScriptsAndOtherSites(t *testing.T) {
	w := setup(t)
	for proto, secure := range map[string]bool{"http": false, "https": true} {
		rec := w.do("POST", "/console/sign-in", url.Values{"token": {"sub mitter/+="}}, "X-Forwarded-Proto", proto)
		c := rec.Result().Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != secure || c.Path != "/console" || c.MaxAge <= 0 || strings.Contains(rec.Body.String(), "sub mitter") {
			t.Errorf("%s: %+v", proto, c)
		}
	}
	w.signIn("operator")
	out := w.do("POST", "/console/sign-out", nil)
	if c := out.Result().Cookies()[0]; c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("sign out leaves %+v", c)
	}
}

func TestWrongTokensAreRefusedByTheAPIWhichCountsThem(t *testing.T) {
	w := setup(t)
	for _, token := range []string{"wrong", "<b>"} {
		rec := w.do("POST", "/console/sign-in", url.Values{"token": {token}})
		if rec.Code != http.StatusUnauthorized || len(rec.Result().Cookies()) > 0 || strings.Contains(rec.Body.String(), "<b>") {
			t.Errorf("%q: %d", token, rec.Code)
		}
	}
	w.cookies = []*http.Cookie{{Name: "exportd", Value: "d3Jvbmc"}} // as a guess in the cookie is
	if rec := w.do("GET", "/console/jobs", nil); rec.Code != http.StatusSeeOther {
		t.Errorf("a guess in the cookie: %d", rec.Code)
	}
	if len(w.api.calls) != 3 {
		t.Errorf("the API was asked %q", w.api.calls)
	}
	w.api.wrong = http.StatusTooManyRequests
	if rec := w.do("GET", "/console/jobs", nil); rec.Code != http.StatusTooManyRequests {
		t.Errorf("too many guesses: %d", rec.Code)
	}
}

func TestOrdersAreTakenByPostFromTheConsoleItselfOnly(t *testing.T) {
	orders := map[string]url.Values{
		"/console/jobs/J20260102_000001/cancel":  nil,
		"/console/jobs/J20260102_000001/redrive": nil,
		"/console/dead-letters/redrive":          {"job": {"J20260102_000001"}},
		"/console/sign-out":                      nil,
	}
	w := setup(t).signIn("operator")
	for path, form := range orders {
		for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}} {
			if rec := w.do("POST", path, form, header[0], header[1]); rec.Code != http.StatusForbidden {
				t.Errorf("%s with %s: %d", path, header, rec.Code)
			}
		}
	}
	for path := range paths { // looking changes nothing
		w.do("GET", path, nil)
	}
	for _, call := range w.api.calls {
		if strings.HasPrefix(call, "POST") && !strings.Contains(call, `"dryRun":true`) {
			t.Errorf("the API was told %s", call)
		}
	}
	for path, form := range orders {
		if rec := w.do("POST", path, form, "Sec-Fetch-Site", "same-origin"); rec.Code != http.StatusSeeOther {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
	told := strings.Join(w.api.calls, "\n")
	if strings.Count(told, "POST /jobs/J20260102_000001/redrive") != 2 || strings.Count(told, "POST /jobs/J20260102_000001/cancel") != 1 {
		t.Errorf("the API was told\n%s", told)
	}
	w.do("POST", "/console/dead-letters/redrive", url.Values{"all": {"1"}, "code": {"SQL_P0001"}})
	if last := w.api.calls[len(w.api.calls)-1]; last != `POST /redrive {"status":"FAILED","errorCode":"SQL_P0001"}` {
		t.Errorf("all that match: %s", last)
	}
}

func TestWithoutTokensNobodySignsIn(t *testing.T) {
	open := func(string) (string, bool, bool) { return "default", true, true }
	w := setup(t, func(c *console.Config) {
		c.Identify = open
		c.API = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Errorf("a token was sent to an API without")
			}
			r.Header.Set("Authorization", "Bearer operator")
			c := &fakeAPI{job: map[string]any{"jobId": "J20260102_000001", "status": "IN_PROGRESS", "total": 1, "createdAt": "2026-01-02T10:00:00Z"}}
			c.ServeHTTP(rw, r)
		})
	})
	rec := w.do("GET", "/console/jobs", nil)
	if rec.Code != http.StatusOK || strings.Contains(rec.Body.String(), "Sign out") || !strings.Contains(rec.Body.String(), "J20260102_000001") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := w.do("GET", "/console/sign-in", nil); rec.Code != http.StatusSeeOther {
		t.Errorf("the form: %d", rec.Code)
	}
}

func TestFaultsBehindAPageAreTold(t *testing.T) {
	w := setup(t).signIn("operator")
	for form, want := range map[string]int{"job=%zz": 400, "job=" + strings.Repeat("J", 1<<20): 413} {
		r := httptest.NewRequest("POST", "/console/dead-letters/redrive", strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(w.cookies[0])
		rec := httptest.NewRecorder()
		if w.ServeHTTP(rec, r); rec.Code != want {
			t.Errorf("%.20s: %d, want %d", form, rec.Code, want)
		}
	}
	for path, want := range map[string]int{
		"/console/nothing": 404, "/console/jobs/J20260102_000009": 404, "/console/jobs/%2e%2e%2fworkers": 404, "/console/static/nothing.js": 404,
		"/console/dead-letters?key=%00": 400, "/console/dead-letters?code=%ff": 400, "/console/dead-letters?from=yesterday": 400, "/console/dead-letters/redrive?all=1&cause=x&key=%00": 400,
	} {
		if rec := w.do("GET", path, nil); rec.Code != want {
			t.Errorf("%s: %d, want %d", path, rec.Code, want)
		}
	}
	for status, want := range map[int]int{http.StatusBadRequest: 400, http.StatusConflict: 409, http.StatusServiceUnavailable: 503, http.StatusTooManyRequests: 503} {
		w.api.wrong = status
		rec := w.do("GET", "/console/jobs", nil)
		if rec.Code != want || strings.Contains(rec.Body.String(), "<i>no") {
			t.Errorf("the API answers %d: %d %s", status, rec.Code, rec.Body)
		}
	}
	w.api.wrong = 0
	w.store.err = errors.New("secret: password=hunter2")
	if rec := w.do("GET", "/console/dead-letters", nil); rec.Code != 500 || strings.Contains(rec.Body.String(), "hunter2") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

func TestStreamsAndFilesAreTheAPIsForTheToken(t *testing.T) {
	w := setup(t).signIn("operator")
	if rec := w.do("GET", "/console/jobs/J20260102_000001/events", nil); rec.Header().Get("Content-Type") != "text/event-stream" || !strings.Contains(rec.Body.String(), "data: Bearer operator\n") {
		t.Errorf("%v %s", rec.Header(), rec.Body)
	}
	rec := w.do("GET", "/console/jobs/J20260102_000001/files/"+url.PathEscape(hostileChunk), nil)
	if rec.Code != http.StatusTemporaryRedirect || rec.Header().Get("Location") != "https://bucket.example/file" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
}

func TestStaticFilesAreKeptByTheirVersion(t *testing.T) {
	w := setup(t)
	page := w.do("GET", "/console/sign-in", nil).Body.String()
	_, rest, _ := strings.Cut(page, `href="/console/static/console.css`)
	query, _, _ := strings.Cut(rest, `"`)
	rec := w.do("GET", "/console/static/console.css"+query, nil)
	if rec.Code != 200 || !strings.Contains(rec.Header().Get("Cache-Control"), "immutable") || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/css") {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	if again := w.do("GET", "/console/static/console.css", nil, "If-None-Match", rec.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("again: %d", again.Code)
	}
	if other := w.do("GET", "/console/static/console.css?v=other", nil); strings.Contains(other.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("another version: %v", other.Header())
	}
}

func TestTheAuditPageTellsWhoDidWhatAndGoesOn(t *testing.T) {
	w := setup(t).signIn("operator")
	body := w.do("GET", "/console/audit?job=J20260102_000001&token=9f86d081&cursor=c", nil).Body.String()
	for _, want := range []string{"refused: 403", ">3</td>", "9f86d081", `href="/console/audit?cursor=older&amp;job=J20260102_000001&amp;token=9f86d081"`, `href="/console/audit?job=J20260102_000001&amp;token=9f86d081"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if len(w.api.calls) != 1 || !strings.Contains(w.api.calls[0], "GET /audit") {
		t.Errorf("the API was asked %v", w.api.calls)
	}
}
