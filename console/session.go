package console

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The token itself is the session: it is good at every api of an installation, and ends when it leaves the tokens file.
const (
	cookieName = "exportd"
	cookieLife = 12 * time.Hour
)

func tokenOf(r *http.Request) string {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}
	return string(token)
}

func (v *visit) setCookie(token string, life time.Duration) {
	http.SetCookie(v.w, &http.Cookie{
		Name: cookieName, Value: base64.RawURLEncoding.EncodeToString([]byte(token)), Path: "/console", MaxAge: int(life.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: v.r.TLS != nil || strings.EqualFold(v.r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}

const signInPath = "/console/sign-in"

// sendToSignIn answers whoever is not signed in.
func (v *visit) sendToSignIn() error {
	if v.token != "" {
		// A guess is for the API to refuse: it counts them.
		if status := v.tried(v.token); status != http.StatusUnauthorized {
			return v.refuse(status)
		}
	}
	target := signInPath
	if v.r.Method == http.MethodGet && v.r.URL.Path != "/console/" {
		target += "?" + url.Values{"to": {v.r.URL.RequestURI()}}.Encode()
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
	return v.render(http.StatusOK, "sign-in", view{Title: "Sign in", Data: signInData{To: v.r.FormValue("to")}})
}

func (v *visit) signIn() error {
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
	v.setCookie(token, cookieLife)
	if !strings.HasPrefix(to, "/console/") {
		to = "/console/"
	}
	return v.back(to, nil)
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
	v.setCookie("", -time.Second)
	return v.back(signInPath, nil)
}
