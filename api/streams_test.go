package api_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"exportd/api"
	"exportd/export"
)

// eventually waits until the question is answered by yes.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ask(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// held waits until so many streams and waits are open.
func (w *world) held(n string) {
	w.t.Helper()
	eventually(w.t, n+" answers are held", func() bool {
		return strings.Contains(string(w.do("GET", "/metrics", "").body), "\nexportd_http_held_answers "+n+"\n")
	})
}

// Not in parallel with other tests: it counts goroutines.
func TestOfManyStreamsSurvivorsSeeTheEndAndNothingIsLeftBehind(t *testing.T) {
	w := setup(t, func(c *api.Config) { c.Timeouts.Poll = 20 * time.Millisecond })
	w.do("POST", "/jobs", oneChunk)
	w.held("0")
	before := runtime.NumGoroutine()
	const streams = 500
	var survivors []func() (map[string]string, bool)
	gone, vanish := context.WithCancel(t.Context())
	for n := range streams {
		ctx := t.Context()
		if n%2 == 0 {
			ctx = gone
		}
		_, next := w.stream(ctx, first+"/events")
		if e, ok := next(); !ok || e["event"] != "progress" {
			t.Fatalf("stream %d: %v", n, e)
		}
		if n%2 == 1 {
			survivors = append(survivors, next)
		}
	}
	w.held("500")
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Pending, j.Running = export.InProgress, 0, 1 })
	vanish()
	w.held("250")
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Running, j.Done = export.Completed, 0, 1 })
	for n, next := range survivors {
		last := ""
		for e, ok := next(); ok; e, ok = next() {
			last = e["event"]
		}
		if last != "end" {
			t.Errorf("survivor %d saw %q last", n, last)
		}
	}
	w.held("0")
	w.client.CloseIdleConnections()
	eventually(t, "goroutines come back", func() bool { return runtime.NumGoroutine() <= before+4 })
}

func TestStreamsBeyondTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	withTokens := tenants(t)
	w := setup(t, func(c *api.Config) { withTokens(c); c.Streams = api.Streams{Client: 2, All: 3} })
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	w.do("POST", "/jobs", oneChunk, as("t2")...)
	second := "/jobs/" + job(2)
	open := func(token, path string, status int) (leave func()) {
		t.Helper()
		ctx, leave := context.WithCancel(t.Context())
		t.Cleanup(leave)
		resp, next := w.stream(ctx, path+"/events", as(token)...)
		if resp.StatusCode != status {
			t.Fatalf("%s: %d, want %d", token, resp.StatusCode, status)
		}
		if status == 200 {
			next()
			return leave
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		kind := map[int]string{429: "too-many-requests", 503: "unavailable"}[status]
		if (answer{resp, body}).problem(t, status, kind); resp.Header.Get("Retry-After") == "" {
			t.Errorf("%v", resp.Header)
		}
		return nil
	}
	leave := open("t1", first, 200)
	waiting := make(chan answer, 1)
	go func() { waiting <- w.do("GET", first, "", append(as("t1"), "Prefer", "wait=60")...) }()
	w.held("2") // a wait is counted as a stream is
	open("t1", first, 429)
	w.do("GET", first, "", append(as("t1"), "Prefer", "wait=60")...).problem(t, 429, "too-many-requests")
	open("t2", second, 200)
	open("t2", second, 503)
	if a := w.do("GET", first, "", as("t1")...); a.StatusCode != 200 {
		t.Errorf("without waiting: %d", a.StatusCode)
	}
	leave()
	w.held("2")
	open("t2", second, 200)
	w.store.change(job(1), func(j *export.Job) { j.Status = export.InProgress })
	if a := <-waiting; a.StatusCode != http.StatusOK {
		t.Errorf("the wait got %d", a.StatusCode)
	}
}

func TestAnEndedJobIsNoStream(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.Streams = api.Streams{Client: 1} })
	w.do("POST", "/jobs", oneChunk)
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Pending, j.Done = export.Completed, 0, 1 })
	for range 3 { // each gives its place back
		if a := w.do("GET", first+"/events", ""); a.StatusCode != 200 || !strings.Contains(string(a.body), "event: end\n") {
			t.Errorf("%d %s", a.StatusCode, a.body)
		}
		if a := w.do("GET", first+"/events", "", "Last-Event-ID", "1-COMPLETED"); a.StatusCode != 204 {
			t.Errorf("%d", a.StatusCode)
		}
	}
	w.held("0")
}
