package api

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"exportd/export"
)

// request is what is known of the request being answered. It travels in the context.
type request struct {
	id          string
	traceparent string // well-formed, or empty
	caller      caller // set by authenticate
	client      string // set by limit: who is counted
	problem     string // the kind of the problem that was answered, for the log
	sender      sender
	page        *request // of the console, that asks in the visitor's name; nil: nobody stands between
	signsIn     bool     // a visitor of the console
}

type caller struct {
	tenant   string
	operator bool
	token    string // the token's hash; empty without tokens
}

// sees is the tenant whose jobs the caller may see; empty means any.
func (c caller) sees() string {
	if c.operator {
		return ""
	}
	return c.tenant
}

type requestKey struct{}

// requestOf never returns nil.
func requestOf(ctx context.Context) *request {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r
	}
	return &request{}
}

const requestIDHeader = "X-Request-Id"

// identify is the first middleware: from here on the request has a name, and the answer says it.
func (a *API) identify(c *gin.Context) {
	r := &request{traceparent: traceparent(c.GetHeader("traceparent"))}
	for _, header := range []string{requestIDHeader, "X-Correlation-Id"} {
		if id := c.GetHeader(header); saneID(id) {
			r.id = id
			break
		}
	}
	if r.id == "" {
		r.id = rand.Text()
	}
	r.page, _ = c.Request.Context().Value(requestKey{}).(*request)
	if r.page != nil {
		r.sender = r.page.sender
	} else {
		r.sender = senderOf(c.Request)
		r.signsIn = c.Request.Method == http.MethodPost && c.Request.URL.Path == signInPath
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), requestKey{}, r))
	c.Header(requestIDHeader, r.id)
	c.Next()
}

// saneID says whether a caller's request id may be repeated in headers, logs and messages.
func saneID(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._:/+=@", r))
	})
}

// traceparent returns s if it is a well-formed W3C traceparent, else nothing.
func traceparent(s string) string {
	if export.TraceID(s) == "" {
		return ""
	}
	return s
}

// pathValue is a parameter of the path, unescaped once.
func pathValue(s string) (string, error) {
	v, err := url.PathUnescape(s)
	if err != nil {
		return "", errNoRoute
	}
	return v, nil
}

// guard bounds the time that a request's body may take, refuses requests that another site made a browser send, and sets the headers
// that every answer has.
func (a *API) guard(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if c.Request.ContentLength != 0 {
		// Holds for a body that nobody reads, too: net/http discards it after the answer. Whoever reads a body to its end lifts the deadline.
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(a.Timeouts.Body))
	}
	if a.ThisHost && !namesThisHost(c.Request.Host) {
		a.fail(c, errOtherHost)
		return
	}
	if err := a.origin.Check(c.Request); err != nil {
		a.fail(c, errCrossOrigin)
		return
	}
	c.Next()
}

// namesThisHost says whether a request's Host is one that only this machine can be meant by. Without a Host it is no browser's.
func namesThisHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	ip, err := netip.ParseAddr(host)
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}
