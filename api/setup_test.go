package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"exportd/api"
	"exportd/api/apitest"
	"exportd/export"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

// TestMain holds the suite against the document: whoever documents an answer has it tested.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if code == 0 && whole() {
		if unseen := served().Unseen(); len(unseen) > 0 {
			fmt.Fprintf(os.Stderr, "documented, but no test comes across it:\n  %s\n", strings.Join(unseen, "\n  "))
			code = 1
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// whole says whether all tests were asked for.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if flag.Lookup(name).Value.String() != "" {
			return false
		}
	}
	return true
}

// served is the document, which every answer of the suite is held against.
var served = sync.OnceValue(func() *apitest.Contract {
	server := httptest.NewServer(newHandler())
	defer server.Close()
	c, err := apitest.Fetch(server.Client(), server.URL)
	if err != nil {
		panic(err)
	}
	return c
})

// world is one API that listens, with its store and its log.
type world struct {
	t      *testing.T
	store  *memory
	log    *safeBuffer
	addr   string
	client *http.Client
	stop   func() // ends Serve, as SIGTERM does
}

// setup starts an API; change may alter its configuration.
func setup(t *testing.T, change func(*api.Config)) *world {
	t.Helper()
	w := &world{t: t, store: newMemory(), log: &safeBuffer{}}
	config := api.Config{
		Store: w.store, Limits: export.Limits{MaxChunks: 100}, MaxBody: 64 << 10, S3BasePath: "s3://bucket/exports", BasePath: "exports", Objects: bucket{},
		Callbacks: func(string) error { return nil },
		Timeouts:  api.Timeouts{Poll: 5 * time.Millisecond},
		Metrics:   prometheus.NewRegistry(), Version: "test",
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&config)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = listener.Addr().String()
	transport := &http.Transport{}
	w.client = &http.Client{Transport: transport}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	ended := make(chan error, 1)
	server := api.New(config)
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return w
}

type answer struct {
	*http.Response
	body []byte
}

// do sends a request; headers are pairs.
func (w *world) do(method, path, body string, headers ...string) answer {
	w.t.Helper()
	req, err := http.NewRequest(method, "http://"+w.addr+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := served().Check(method, req.URL.RequestURI(), resp, b); err != nil {
		w.t.Error(err)
	}
	return answer{resp, b}
}

type problem struct {
	Type, Title, Detail, RequestID string
	Status                         int
	Errors                         []struct {
		Pointer                   *string
		Header, Parameter, Detail string
	}
}

// problem checks that the answer is a well-formed problem of the kind.
func (a answer) problem(t *testing.T, status int, kind string) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%d %s: %v", a.StatusCode, a.body, err)
	}
	if a.StatusCode != status || p.Status != status || p.Type != "/problems/"+kind || p.Title == "" || p.Detail == "" {
		t.Errorf("%d %s, want %d %s", a.StatusCode, a.body, status, kind)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q", ct)
	}
	if id := a.Header.Get("X-Request-Id"); id == "" || id != p.RequestID {
		t.Errorf("request id %q in the header, %q in the problem", id, p.RequestID)
	}
	return p
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil {
		t.Fatalf("%d %s: %v", a.StatusCode, a.body, err)
	}
	return m
}

const oneChunk = `{"items":[{"key":"ABC","effectiveDates":["20250215"]}]}`

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// setupHandler is for fuzzing: no network, and header values that no network would let through.
func setupHandler() func(body string, headers map[string]string) (status int, answer string) {
	handler := newHandler()
	return func(body string, headers map[string]string) (int, string) {
		req := httptest.NewRequest("POST", "/jobs", strings.NewReader(body))
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, req)
		if err := served().Check("POST", "/jobs", rec.Result(), rec.Body.Bytes()); err != nil {
			return 0, err.Error()
		}
		return rec.Code, rec.Body.String()
	}
}

func newHandler() http.Handler {
	return api.New(api.Config{
		Store: newMemory(), Limits: export.Limits{MaxChunks: 100}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	}).Handler()
}
