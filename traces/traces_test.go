package traces_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"exportd/export"
	"exportd/traces"
	"exportd/traces/tracestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const callers = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// lines are what a logger writes.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func config(environ map[string]string) traces.Config {
	return traces.Config{Getenv: func(name string) string { return environ[name] }, Service: "exportd-test", Version: "v", Instance: "i", Log: slog.New(slog.DiscardHandler)}
}

func TestStepsArriveInTheTraceOfTheirCaller(t *testing.T) {
	c := tracestest.Start(t)
	start, end, err := traces.Open(t.Context(), config(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, above, endServer := start(t.Context(), export.Span{Name: "server", Kind: export.SpanServer, Parent: callers, Attrs: []slog.Attr{slog.String("a", "1")}})
	_, _, endInner := start(ctx, export.Span{Name: "inner"})
	_, _, endFar := start(context.Background(), export.Span{Name: "far", Kind: export.SpanConsumer, Parent: above})
	endFar(nil, slog.Int("n", 2), slog.Bool("b", true))
	endInner(errors.New("x"))
	endServer(nil)
	if err := end(); err != nil {
		t.Error(err)
	}

	got := map[string]tracestest.Span{}
	for _, s := range c.Spans() {
		got[s.Name] = s
		if s.Trace != "0af7651916cd43dd8448eb211c80319c" || s.Service != "exportd-test" {
			t.Errorf("got %+v", s)
		}
	}
	server := got["server"]
	if server.Parent != "b7ad6b7169203331" || server.Kind != "SPAN_KIND_SERVER" || got["inner"].Parent != server.ID || got["far"].Parent != server.ID {
		t.Errorf("got %+v", got)
	}
	if above != "00-"+server.Trace+"-"+server.ID+"-01" || export.TraceID(above) != server.Trace {
		t.Errorf("got %q for %+v", above, server)
	}
	if !got["inner"].Failed || got["inner"].Status != "x" || got["far"].Failed || got["far"].Kind != "SPAN_KIND_CONSUMER" {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(map[string]string{"n": "2", "b": "true"}, got["far"].Attributes); diff != "" {
		t.Error(diff)
	}
}

func TestACallerThatDoesNotSampleIsNotTraced(t *testing.T) {
	c := tracestest.Start(t)
	start, end, err := traces.Open(t.Context(), config(map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL + "/v1/traces"}))
	if err != nil {
		t.Fatal(err)
	}
	_, below, done := start(t.Context(), export.Span{Name: "x", Parent: strings.TrimSuffix(callers, "01") + "00"})
	done(nil)
	_, _, done = start(t.Context(), export.Span{Name: "y", Parent: "no traceparent"})
	done(nil)
	if err := end(); err != nil {
		t.Error(err)
	}
	if spans := c.Spans(); len(spans) != 1 || spans[0].Name != "y" || spans[0].Parent != "" {
		t.Errorf("got %+v", spans)
	}
	if export.TraceID(below) != export.TraceID(callers) || !strings.HasSuffix(below, "-00") {
		t.Errorf("got %q", below)
	}
}

func TestThereAreNoTracesUnlessAskedFor(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, environ := range map[string]map[string]string{
		"nothing set": {}, "none": {endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, "disabled": {endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
	} {
		start, end, err := traces.Open(t.Context(), config(environ))
		if start != nil || err != nil || end() != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for want, environ := range map[string]map[string]string{
		"not of the form":             {endpoint: "collector:4318"},
		"OTEL_EXPORTER_OTLP_TRACES_E": {endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "grpc://u:secret@h:1"},
		"only http/protobuf":          {endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		"must be otlp":                {endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "zipkin"},
	} {
		if start, _, err := traces.Open(t.Context(), config(environ)); start != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// The collector takes connections and never says a word.
func TestASilentCollectorSlowsNothingAndIsLoggedOnce(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100") // ms
	said := make(chan string, 100)
	cfg := config(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:secret@" + silent.Addr().String()})
	cfg.Log = slog.New(slog.NewTextHandler(lines(said), nil))
	start, end, err := traces.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 50_000 { // many times the queue
		_, _, done := start(context.Background(), export.Span{Name: "x"})
		done(nil)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("50 000 steps took %s", took)
	}
	var log string
	for deadline := time.After(time.Minute); !strings.Contains(log, "cannot be sent"); {
		select {
		case line := <-said:
			log += line
		case <-deadline:
			t.Fatalf("logged: %s", log)
		}
	}
	began = time.Now()
	_ = end() // the last spans are lost: nothing to be done
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the end took %s", took)
	}
	for len(said) > 0 {
		log += <-said
	}
	if n := strings.Count(log, "cannot be sent"); n != 1 || strings.Contains(log, "secret") {
		t.Errorf("logged %d times: %s", n, log)
	}
}
