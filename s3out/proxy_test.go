package s3out_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// proxy stands before an S3 and may do something else with a request than forward it.
type proxy struct {
	endpoint string
	forward  http.Handler

	mu    sync.Mutex
	fault fault
	seen  []request
}

// fault answers a request, or forwards it.
type fault func(w http.ResponseWriter, r *http.Request, forward http.Handler)

type request struct {
	at     time.Time
	method string
	path   string
	query  url.Values
	header http.Header
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	p := &proxy{forward: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:    transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	s := httptest.NewServer(p)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	p.endpoint = s.URL
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = append(p.seen, request{time.Now(), r.Method, r.URL.Path, r.URL.Query(), r.Header.Clone()})
	f := p.fault
	p.mu.Unlock()
	if f == nil {
		f = func(w http.ResponseWriter, r *http.Request, forward http.Handler) { forward.ServeHTTP(w, r) }
	}
	f(w, r, p.forward)
}

// use puts a fault in force; nil forwards everything.
func (p *proxy) use(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *proxy) requests() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]request(nil), p.seen...)
}

func ignoreConditions(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	if r.Method != http.MethodGet {
		r.Header.Del("If-Match")
		r.Header.Del("If-None-Match")
	}
	forward.ServeHTTP(w, r)
}

func isPut(r *http.Request) bool {
	return r.Method == http.MethodPut && !r.URL.Query().Has("partNumber")
}
func isPart(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Has("partNumber")
}
func isComplete(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
}

// dropAnswer lets the request have its effect and cuts the connection instead of answering.
func dropAnswer(r *http.Request, forward http.Handler) {
	forward.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

func answerError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	w.Write([]byte(`<?xml version="1.0"?><Error><Code>` + code + `</Code><Message>from the test</Message></Error>`))
}
