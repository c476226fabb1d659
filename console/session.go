package console

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode"
)

// The token itself is the session: it is good at every api of an installation, and ends when it leaves the tokens file.
const (
	cookieName = "exportd"
	cookieLife = 12 * time.Hour
	// mostCookies of one name are looked at: another service of the host, or of its domain, may set one, too.
	mostCookies = 4
)

func cookiesOf(r *http.Request, name string) (values []string) {
	cookies := r.CookiesNamed(name)
	for _, cookie := range cookies[:min(len(cookies), mostCookies)] {
		if value, err := base64.RawURLEncoding.DecodeString(cookie.Value); err == nil && len(value) > 0 {
			values = append(values, string(value))
		}
	}
	return values
}

func (v *visit) setCookie(name, value string, life time.Duration) {
	proto, _, _ := strings.Cut(v.r.Header.Get("X-Forwarded-Proto"), ",") // of several proxies the first is the browser's
	http.SetCookie(v.w, &http.Cookie{
		Name: name, Value: base64.RawURLEncoding.EncodeToString([]byte(value)), Path: "/console", MaxAge: int(life.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: v.r.TLS != nil || strings.EqualFold(strings.TrimSpace(proto), "https"),
	})
}

const signInPath = "/console/sign-in"

// sendToSignIn answers whoever is not signed in.
func (v *visit) sendToSignIn() error {
	if status := v.guessed(); status != http.StatusUnauthorized {
		return v.refuse(status)
	}
	target, page := signInPath, v.r.URL
	if at, err := url.Parse(v.r.Header.Get("HX-Current-URL")); err == nil && at.Path != "" {
		page = at // what was asked for is a part of it
	}
	if v.r.Method == http.MethodGet && page.Path != "/console/" {
		query := page.Query()
		query.Del("part")
		target += "?" + url.Values{"to": {(&url.URL{Path: page.Path, RawPath: page.RawPath, RawQuery: query.Encode()}).RequestURI()}}.Encode()
	}
	switch {
	case v.r.Header.Get("HX-Request") != "": // a part of a page: the whole page goes there
		v.w.Header().Set("HX-Redirect", target)
		v.w.WriteHeader(http.StatusUnauthorized)
	case v.r.Header.Get("Sec-Fetch-Site") == "cross-site" && v.r.Method == http.MethodGet:
		// A link of another site comes without the cookie, which the page's own reload sends.
		v.render(http.StatusOK, "reload", view{Title: "One moment"})
	default:
		http.Redirect(v.w, v.r, target, http.StatusSeeOther)
	}
	return nil
}

// guessed has the API refuse the cookies that are no tokens, because it counts guesses.
func (v *visit) guessed() (status int) {
	for _, token := range v.guesses {
		if status := v.tried(token); status != http.StatusUnauthorized {
			return status
		}
	}
	return http.StatusUnauthorized
}

// tried is the API's answer to a call with the token.
func (v *visit) tried(token string) (status int) {
	req, err := http.NewRequestWithContext(v.ctx(), http.MethodGet, "http://localhost/jobs?limit=1", nil)
	if err != nil {
		return http.StatusInternalServerError
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := v.api.Transport.RoundTrip(req)
	if err != nil {
		return http.StatusInternalServerError
	}
	return resp.StatusCode
}

type signInData struct{ To, Fault string }

func (v *visit) askSignIn() error {
	if v.known {
		return v.back("/console/", nil)
	}
	if status := v.guessed(); status != http.StatusUnauthorized {
		return v.refuse(status)
	}
	return v.render(http.StatusOK, "sign-in", view{Title: "Sign in", Data: signInData{To: v.r.FormValue("to")}})
}

func (v *visit) signIn() error {
	v.visitor = visitor{} // the answer says nothing about the cookie, which nobody counted
	if err := v.parseForm(); err != nil {
		return err
	}
	token, to := strings.TrimSpace(v.r.PostForm.Get("token")), v.r.PostForm.Get("to")
	status := http.StatusUnauthorized
	if token != "" && !strings.ContainsAny(token, "\r\n\x00") {
		status = v.tried(token)
	}
	if _, _, ok := v.Identify(token); status != http.StatusOK && !(ok && status >= http.StatusInternalServerError) {
		return v.refuse(status)
	}
	v.setCookie(cookieName, token, cookieLife)
	if !ofConsole(to) {
		to = "/console/"
	}
	return v.back(to, nil)
}

// ofConsole says whether the address is one of the console, however a browser reads it.
func ofConsole(to string) bool {
	u, err := url.Parse(to)
	if err != nil || !strings.HasPrefix(to, "/console") || strings.ContainsFunc(to+u.Path, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }) {
		return false
	}
	clean := path.Clean(u.Path)
	return clean == "/console" || strings.HasPrefix(clean, "/console/")
}

// refuse shows the form again.
func (v *visit) refuse(status int) error {
	fault := "This token is not known. Check that all of it was pasted."
	switch {
	case status == http.StatusTooManyRequests:
		fault = "Too many attempts. Wait a little and try again."
	case status >= http.StatusInternalServerError:
		fault = "The database does not answer. Try again in a moment."
	}
	return v.render(status, "sign-in", view{Title: "Sign in", Data: signInData{To: v.r.FormValue("to"), Fault: fault}})
}

func (v *visit) signOut() error {
	v.setCookie(cookieName, "", -time.Second)
	return v.back(signInPath, nil)
}
