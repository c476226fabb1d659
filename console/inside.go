package console

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
)

// inside calls a handler in process, as a client's transport.
type inside struct {
	handler    http.Handler
	remoteAddr string // of the visitor: who has no token is counted by address
	requestID  string // so that the log tells which page asked
}

func (t inside) RoundTrip(req *http.Request) (*http.Response, error) {
	in := req.Clone(req.Context())
	in.Host, in.RemoteAddr, in.RequestURI = "localhost", t.remoteAddr, in.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	if t.requestID != "" {
		in.Header.Set("X-Request-Id", t.requestID)
	}
	a := &answer{header: http.Header{}}
	t.handler.ServeHTTP(a, in)
	a.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: req,
	}, nil
}

// answer keeps what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// pass has the API answer the visitor itself, about the job of the path: what is a stream.
func (v *visit) pass(what string) error {
	id := v.r.PathValue("job")
	in := v.r.Clone(v.ctx())
	in.URL = &url.URL{Path: "/jobs/" + id + "/" + what, RawPath: "/jobs/" + url.PathEscape(id) + "/" + what}
	in.RequestURI = in.URL.RawPath
	in.Header.Del("Cookie")
	if v.token != "" {
		in.Header.Set("Authorization", "Bearer "+v.token)
	}
	v.API.ServeHTTP(v.w, in)
	return nil
}
