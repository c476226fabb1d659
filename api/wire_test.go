package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportd/api"
	"exportd/export"

	"github.com/prometheus/client_golang/prometheus"
)

// raw sends bytes over a connection of its own and reads the answer; it returns when the server has closed the connection, or fails after 20 s.
// An answer of exportd's own, and not of net/http, is held against the document.
func (w *world) raw(write func(net.Conn)) (*http.Response, error) {
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	said := &firstLine{Conn: conn}
	go write(said)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	method, target := said.request()
	if resp.Header.Get("X-Request-Id") != "" && strings.HasPrefix(target, "/") && method != http.MethodHead {
		body, err := io.ReadAll(resp.Body)
		if err == nil {
			err = served().Check(method, target, resp, body)
		}
		if err != nil {
			w.t.Errorf("%s %s: %v", method, target, err)
		}
	}
	_, err = io.Copy(io.Discard, in)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		return resp, err
	}
	return resp, nil // a reset is a way to close, too
}

// firstLine remembers the first line that is written.
type firstLine struct {
	net.Conn
	mu   sync.Mutex
	line string
}

func (f *firstLine) Write(b []byte) (int, error) {
	f.mu.Lock()
	if f.line == "" {
		f.line, _, _ = strings.Cut(string(b), "\r\n")
	}
	f.mu.Unlock()
	return f.Conn.Write(b)
}

func (f *firstLine) request() (method, target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	method, rest, _ := strings.Cut(f.line, " ")
	target, _, _ = strings.Cut(rest, " ")
	return method, target
}

func TestClientGoneAfterTheLastByteStillStoresOnce(t *testing.T) {
	t.Parallel()
	store := newMemory()
	inStore, clientGone := make(chan struct{}), make(chan struct{})
	storing := make(chan error, 1)
	store.before = func(ctx context.Context) error {
		close(inStore)
		<-clientGone
		storing <- ctx.Err()
		return nil
	}
	handler := api.New(api.Config{Store: store, Limits: export.Limits{MaxChunks: 1}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}).Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		go func() {
			<-r.Context().Done()
			close(clientGone)
		}()
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /jobs HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", len(oneChunk), oneChunk)
	<-inStore
	conn.Close()
	if err := <-storing; err != nil {
		t.Errorf("the store was told to stop: %v", err)
	}
	server.Close() // waits for the handler
	store.before = nil
	rec := httptest.NewRecorder()
	again := httptest.NewRequest("POST", "/jobs", strings.NewReader(oneChunk))
	again.Header.Set("Idempotency-Key", "k")
	handler.ServeHTTP(rec, again)
	if rec.Code != 202 || rec.Header().Get("Idempotency-Replayed") != "true" || len(store.all()) != 1 {
		t.Errorf("%d %v, %d jobs", rec.Code, rec.Header(), len(store.all()))
	}
}

func TestChunkedBodyOverTheLimitIsCutOff(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	var sent atomic.Int64
	resp, err := w.raw(func(conn net.Conn) {
		fmt.Fprint(conn, "POST /jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		block := fmt.Sprintf("1000\r\n%s\r\n", strings.Repeat(" ", 0x1000))
		for range 1 << 14 { // 64 MiB, if anyone read them
			n, err := conn.Write([]byte(block))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	if err != nil || resp.StatusCode != 413 || !resp.Close {
		t.Fatalf("%v %v", resp, err)
	}
	if n := sent.Load(); n > 16<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.Timeouts.Header, c.Timeouts.Body = 100*time.Millisecond, 100*time.Millisecond })
	for name, c := range map[string]struct {
		head string
		want int
	}{
		"header":             {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", 0}, // net/http's own business: 400 or nothing
		"body":               {"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 408},
		"body in chunks":     {"POST /jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n", 408},
		"body nobody reads":  {"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 404},
		"body of a GET":      {"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 200},
		"body never started": {"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", 100},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			resp, err := w.raw(func(conn net.Conn) {
				fmt.Fprint(conn, c.head)
				for range 1000 {
					if _, err := fmt.Fprint(conn, "1"); err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond) // the slowness of this client
				}
			})
			if c.want != 0 && (err != nil || resp.StatusCode != c.want) {
				t.Errorf("%v %v", resp, err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
	if n := len(w.store.all()); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

func TestHostileRequestLines(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	for _, line := range []string{"GET /jobs/%zz", "GET *", "CONNECT x:1", "OPTIONS *", "GET http://x", "GET /jobs/%00", "GET /jobs/%", "PRI *", "FOO /jobs", "GET /jobs/a%2fb", "HEAD *"} {
		resp, err := w.raw(func(conn net.Conn) { fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", line) })
		if err != nil || resp.StatusCode >= 500 {
			t.Errorf("%s: %v %v", line, resp, err)
		}
	}
}

func TestServeLetsRequestsInFlightFinish(t *testing.T) {
	t.Parallel()
	store := newMemory()
	entered, goOn := make(chan struct{}), make(chan struct{})
	store.before = func(context.Context) error { close(entered); <-goOn; return nil }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	a := api.New(api.Config{Store: store, Limits: export.Limits{MaxChunks: 1}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	go func() { ended <- a.Serve(ctx, listener) }()
	w := &world{t: t, addr: listener.Addr().String()}
	status := make(chan int, 1)
	go func() {
		resp, err := w.raw(func(conn net.Conn) {
			fmt.Fprintf(conn, "POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(oneChunk), oneChunk)
		})
		if err != nil {
			status <- 0
			return
		}
		status <- resp.StatusCode
	}()
	<-entered
	stop()
	close(goOn)
	if got := <-status; got != 202 {
		t.Errorf("the request in flight got %d", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}
