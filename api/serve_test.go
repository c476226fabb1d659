package api_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"exportd/api"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// stuck is an API with a request that waits for goOn, and that has been told to stop.
func stuck(t *testing.T, grace time.Duration) (server *api.API, goOn func(), ended <-chan error) {
	t.Helper()
	store := newMemory()
	entered, leave := make(chan struct{}), make(chan struct{})
	store.before = func(context.Context) error { close(entered); <-leave; return nil }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	checked := api.Check{Name: "database", Check: func(context.Context) error { return nil }}
	server = api.New(api.Config{
		Store: store, Checks: []api.Check{checked}, Timeouts: api.Timeouts{Shutdown: grace}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if status, answer := readiness(t, server); status != 200 || answer["status"] != "ready" {
		t.Errorf("before: %d %v", status, answer)
	}
	ctx, stop := context.WithCancel(t.Context())
	end, answered := make(chan error, 1), make(chan struct{})
	go func() { end <- server.Serve(ctx, listener) }()
	go func() {
		defer close(answered)
		if resp, err := http.Get("http://" + listener.Addr().String() + first); err == nil { // an error is the connection cut off
			resp.Body.Close()
		}
	}()
	<-entered
	stop()
	t.Cleanup(func() { <-answered; http.DefaultClient.CloseIdleConnections() })
	return server, func() { close(leave) }, end
}

func readiness(t *testing.T, server *api.API) (int, map[string]any) {
	t.Helper()
	rec := httptest.NewRecorder()
	server.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/readyz", nil))
	if err := served().Check("GET", "/readyz", rec.Result(), rec.Body.Bytes()); err != nil {
		t.Error(err)
	}
	return rec.Code, answer{rec.Result(), rec.Body.Bytes()}.json(t)
}

func TestAProcessThatIsStoppingIsNotReady(t *testing.T) {
	t.Parallel()
	server, goOn, ended := stuck(t, time.Minute)
	eventually(t, "not ready", func() bool { status, _ := readiness(t, server); return status == 503 })
	status, answer := readiness(t, server)
	if diff := cmp.Diff(map[string]any{"status": "stopping", "checks": map[string]any{}}, answer); diff != "" || status != 503 {
		t.Errorf("%d %s", status, diff)
	}
	select {
	case err := <-ended:
		t.Errorf("ended with a request in flight: %v", err)
	default:
	}
	goOn()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	stopping := make(chan struct{})
	probes := api.NewProbes(api.Config{Stopping: stopping, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if status, _ := readiness(t, probes); status != 200 {
		t.Errorf("before: %d", status)
	}
	close(stopping) // a consumer that drains
	if status, _ := readiness(t, probes); status != 503 {
		t.Errorf("probes of a process that drains: %d", status)
	}
}

func TestRequestsAreCutOffWhenTheTimeToStopIsOver(t *testing.T) {
	t.Parallel()
	_, goOn, ended := stuck(t, 50*time.Millisecond)
	defer goOn()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no word of what was cut off")
		}
	case <-time.After(30 * time.Second):
		t.Error("still waiting")
	}
}
