package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportd/api"

	"github.com/google/go-cmp/cmp"
)

func TestReadinessNamesEachDependency(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var looks atomic.Int32
	w := setup(t, func(c *api.Config) {
		c.Timeouts.Check = 50 * time.Millisecond
		c.Checks = []api.Check{
			{Name: "database", Check: func(context.Context) error { looks.Add(1); return nil }},
			{Name: "broker", Check: func(ctx context.Context) error {
				if down.Load() {
					return errors.New("secret address")
				}
				return nil
			}},
			{Name: "s3", Check: func(ctx context.Context) error {
				if down.Load() {
					<-ctx.Done()
				}
				return ctx.Err()
			}},
			{Name: "source", Check: func(context.Context) error {
				if down.Load() {
					panic("x")
				}
				return nil
			}},
		}
	})
	a := w.do("GET", "/readyz", "")
	if diff := cmp.Diff(map[string]any{"status": "ready", "checks": map[string]any{"database": "ok", "broker": "ok", "s3": "ok", "source": "ok"}}, a.json(t)); diff != "" || a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, diff)
	}
	for range 20 {
		w.do("GET", "/readyz", "")
	}
	if n := looks.Load(); n > 5 {
		t.Errorf("%d looks", n)
	}
	down.Store(true)
	for deadline := time.Now().Add(10 * time.Second); ; {
		if a = w.do("GET", "/readyz", ""); a.StatusCode == 503 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %d %s", a.StatusCode, a.body)
		}
		time.Sleep(20 * time.Millisecond) // polling
	}
	if diff := cmp.Diff(map[string]any{"status": "not ready", "checks": map[string]any{"database": "ok", "broker": "unavailable", "s3": "unavailable", "source": "unavailable"}}, a.json(t)); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(string(a.body), "secret") || !strings.Contains(w.log.String(), "secret address") {
		t.Errorf("%s %s", a.body, w.log)
	}
	if a := w.do("GET", "/healthz", ""); a.StatusCode != 200 {
		t.Errorf("healthz depends on something: %d", a.StatusCode)
	}
}

func TestMetricsHoldNoUserInput(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	before := strings.Count(string(w.do("GET", "/metrics", "").body), "\n")
	for i := range 300 {
		w.do("GET", fmt.Sprintf("/scan/%d", i), "")
		w.do("GET", fmt.Sprintf("/jobs/J20260102_%06d", i+50), "")
		w.do(fmt.Sprintf("M%d", i), "/jobs", "")
	}
	text := string(w.do("GET", "/metrics", "").body)
	if after := strings.Count(text, "\n"); after > before+150 {
		t.Errorf("%d lines became %d", before, after)
	}
	for _, line := range []string{`exportd_http_requests_total{route="POST /jobs",status="202"} 1`, `exportd_http_requests_total{route="GET /jobs/:jobId",status="404"} 300`, `exportd_http_requests_total{route="unknown",status="404"} 300`} {
		if !strings.Contains(text, line) {
			t.Errorf("no line %s", line)
		}
	}
}
