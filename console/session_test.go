package console_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func cookie(token string) *http.Cookie {
	return &http.Cookie{Name: "exportd", Value: base64.RawURLEncoding.EncodeToString([]byte(token))}
}

func TestSignInLeadsToThisConsoleOnly(t *testing.T) {
	w := setup(t)
	chunk := "/console/jobs/J20260102_000001/chunks/" + url.PathEscape(hostileChunk)
	for to, want := range map[string]string{
		"/console": "/console", chunk: chunk, "/console/jobs?key=a%5Cb": "/console/jobs?key=a%5Cb",
		`/console/../\evil.example`: "/console/", `/console/..\evil.example`: "/console/", "/console/../%5Cevil.example": "/console/", "/console/%2e%2e/%5cevil.example": "/console/",
		"/console/..//evil.example": "/console/", "/console/%2e%2e//evil.example": "/console/", "/console/..%2f..%2fjobs": "/console/", "/console/../jobs": "/console/",
		"/console/\t/evil.example": "/console/", "/console/%0d%0aevil": "/console/", "/consoles": "/console/", "https:/console/": "/console/", "https:console/": "/console/",
		"//evil@/console/": "/console/", "console/": "/console/", "/console/%zz": "/console/",
	} {
		rec := w.do("POST", "/console/sign-in", url.Values{"token": {"operator"}, "to": {to}})
		if got := rec.Header().Get("Location"); rec.Code != http.StatusSeeOther || got != want {
			t.Errorf("back to %q: %d %q, want %q", to, rec.Code, got, want)
		}
	}
}

func TestGuessesInCookiesAreCountedAtTheFormToo(t *testing.T) {
	w := setup(t)
	w.cookies = []*http.Cookie{cookie("guess"), cookie("another")}
	if rec := w.do("GET", "/console/sign-in", nil); rec.Code != http.StatusOK || len(w.api.calls) != 2 {
		t.Errorf("%d, the API was asked %q", rec.Code, w.api.calls)
	}
	w.api.wrong = http.StatusTooManyRequests
	if rec := w.do("GET", "/console/sign-in", nil); rec.Code != http.StatusTooManyRequests {
		t.Errorf("too many guesses: %d", rec.Code)
	}

	// A form that is refused uncounted is the same, whatever the cookie is.
	w.api.wrong = 0
	var answers []string
	for _, token := range []string{"guess", "operator"} {
		w.cookies = []*http.Cookie{cookie(token)}
		answers = append(answers, w.do("POST", "/console/sign-in", nil).Body.String())
	}
	if answers[0] != answers[1] {
		t.Error("the answer to an empty form tells whether the cookie is a token")
	}
}

func TestOfSeveralCookiesTheOneThatIsKnownCounts(t *testing.T) {
	w := setup(t)
	for name, cookies := range map[string][]*http.Cookie{
		"the first": {cookie("operator"), cookie("other")}, "the second": {cookie("other"), cookie("operator")}, "after what is no token": {{Name: "exportd", Value: "!"}, cookie("operator")},
	} {
		w.cookies = cookies
		if rec := w.do("GET", "/console/fleet", nil); rec.Code != http.StatusOK {
			t.Errorf("%s: %d", name, rec.Code)
		}
	}
	w.cookies = nil
	for range 50 {
		w.cookies = append(w.cookies, cookie("guess"))
	}
	w.cookies = append(w.cookies, cookie("operator"))
	w.api.calls = nil
	if rec := w.do("GET", "/console/fleet", nil); rec.Code != http.StatusSeeOther || len(w.api.calls) > 4 {
		t.Errorf("many guesses at once: %d, the API was asked %d times", rec.Code, len(w.api.calls))
	}
}

func TestAfterTheCookieEndsThePageIsComeBackToNotItsPart(t *testing.T) {
	w := setup(t)
	for _, c := range []struct{ part, page, want string }{
		{"/console/jobs?part=list&status=FAILED", "", "/console/jobs?status=FAILED"},
		{"/console/jobs?part=list", "https://console.example/console/jobs?q=a", "/console/jobs?q=a"},
		{"/console/queues?part=tile", "https://console.example/console/jobs", "/console/jobs"},
		{"/console/queues?part=tile", "https://console.example/console/", ""},
		{"/console/?part=now", "", ""},
	} {
		headers := []string{"HX-Request", "true"}
		if c.page != "" {
			headers = append(headers, "HX-Current-URL", c.page)
		}
		rec := w.do("GET", c.part, nil, headers...)
		at, err := url.Parse(rec.Header().Get("HX-Redirect"))
		if err != nil || rec.Code != http.StatusUnauthorized || at.Path != "/console/sign-in" || at.Query().Get("to") != c.want {
			t.Errorf("%s on %s: %d to %s", c.part, c.page, rec.Code, at)
		}
	}
}

func TestBehindSeveralProxiesTheFirstSaysWhetherTheCookieIsSecure(t *testing.T) {
	w := setup(t)
	for proto, secure := range map[string]bool{"https, http": true, " HTTPS ,http": true, "https,https": true, "http, https": false, "": false} {
		rec := w.do("POST", "/console/sign-in", url.Values{"token": {"operator"}}, "X-Forwarded-Proto", proto)
		if c := rec.Result().Cookies()[0]; c.Secure != secure {
			t.Errorf("%q: %+v", proto, c)
		}
	}
}

func TestOnlyWhatWasDoneIsTold(t *testing.T) {
	w := setup(t).signIn("operator")
	const notice = `class="told"`
	for _, link := range []string{"/console/dead-letters?told=redrive-all&n=5000&jobs=9", "/console/jobs/J20260102_000001?told=cancel"} {
		if body := w.do("GET", link, nil).Body.String(); strings.Contains(body, notice) {
			t.Errorf("%s is believed", link)
		}
	}
	session := w.cookies
	for path, form := range map[string]url.Values{
		"/console/jobs/J20260102_000001/cancel": nil, "/console/jobs/J20260102_000001/redrive": nil, "/console/dead-letters/redrive": {"all": {"1"}},
	} {
		w.cookies = session
		done := w.do("POST", path, form)
		w.cookies = append(session[:1:1], done.Result().Cookies()...)
		at := done.Header().Get("Location")
		if body := w.do("GET", at, nil).Body.String(); !strings.Contains(body, notice) {
			t.Errorf("%s is not told at %s", path, at)
		}
		if body := w.do("GET", "/console/dead-letters?told=redrive-all&n=5000&jobs=9", nil).Body.String(); strings.Contains(body, notice) {
			t.Errorf("after %s another link is believed", path)
		}
	}
}
