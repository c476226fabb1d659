package api_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportd/api"
	"exportd/export"
)

func TestAPreferredWaitEndsWithTheNextState(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	w.do("GET", first, "", append(as("t2"), "Prefer", "wait=60")...).problem(t, 404, "not-found")
	type held struct {
		answer
		took time.Duration
	}
	got := make(chan held)
	for range 3 {
		go func() {
			start := time.Now()
			a := w.do("GET", first, "", append(as("t1"), "Prefer", "respond-async, Wait = 45")...)
			got <- held{a, time.Since(start)}
		}()
	}
	w.store.change(job(1), func(j *export.Job) { j.Pending, j.Running = 0, 1 }) // no change of the state
	select {
	case h := <-got:
		t.Fatalf("answered before: %s", h.body)
	case <-time.After(100 * time.Millisecond):
	}
	w.store.change(job(1), func(j *export.Job) { j.Status = export.InProgress })
	for range 3 {
		if h := <-got; h.json(t)["status"] != "IN_PROGRESS" || h.Header.Get("Preference-Applied") != "wait=45" || h.took > 20*time.Second {
			t.Errorf("%s %v %v", h.body, h.Header, h.took)
		}
	}
	start := time.Now()
	if a := w.do("GET", first, "", append(as("t1"), "Prefer", "wait=1")...); a.StatusCode != 200 || time.Since(start) < time.Second || a.json(t)["running"] != 1. {
		t.Errorf("%d %s after %v", a.StatusCode, a.body, time.Since(start))
	}
	for _, nothing := range []string{"wait=0", "wait=x", "wait=-1", "wait", "await=30"} {
		if a := w.do("GET", first, "", append(as("t1"), "Prefer", nothing)...); a.Header.Get("Preference-Applied") != "" {
			t.Errorf("%s: %v", nothing, a.Header)
		}
	}
	w.store.change(job(1), func(j *export.Job) { j.Status = export.Completed })
	if a := w.do("GET", first, "", append(as("t1"), "Prefer", "wait=9999")...); a.json(t)["status"] != "COMPLETED" || a.Header.Get("Preference-Applied") != "wait=60" {
		t.Errorf("%s", a.body)
	}
}

// stream reads the events of a job; headers are pairs.
func (w *world) stream(ctx context.Context, path string, headers ...string) (*http.Response, func() (map[string]string, bool)) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+w.addr+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	if err := served().Check("GET", path, resp, nil); err != nil && resp.StatusCode < 400 { // a problem's body is the caller's to read
		w.t.Error(err)
	}
	lines := bufio.NewScanner(resp.Body)
	return resp, func() (map[string]string, bool) {
		event := map[string]string{}
		for lines.Scan() {
			if lines.Text() == "" {
				if event["event"] != "" {
					if err := served().CheckSchema("Job", []byte(event["data"])); err != nil {
						w.t.Error(err)
					}
					return event, true
				}
				continue
			}
			name, value, _ := strings.Cut(lines.Text(), ": ")
			event[name] = value
		}
		return event, false
	}
}

func TestEventsTellOfProgressAndOfTheEnd(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	resp, next := w.stream(t.Context(), first+"/events", as("t1")...)
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"} {
		if resp.Header.Get(name) != want || resp.StatusCode != 200 {
			t.Errorf("%s is %q", name, resp.Header.Get(name))
		}
	}
	expect := func(id, event, data string) {
		t.Helper()
		if e, ok := next(); !ok || e["id"] != id || e["event"] != event || !strings.Contains(e["data"], data) {
			t.Errorf("got %v, want %s %s %s", e, id, event, data)
		}
	}
	expect("1-SUBMITTED", "progress", `"pending":1`)
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Pending, j.Running = export.InProgress, 0, 1 })
	expect("1-IN_PROGRESS", "progress", `"running":1`)
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Running, j.Done = export.Completed, 0, 1 })
	expect("1-COMPLETED", "end", `"done":1`)
	if e, more := next(); more {
		t.Errorf("after the end: %v", e)
	}

	_, next = w.stream(t.Context(), first+"/events", append(as("t1"), "Last-Event-ID", "1-IN_PROGRESS")...)
	expect("1-COMPLETED", "end", "")
	if resp, _ := w.stream(t.Context(), first+"/events", append(as("t1"), "Last-Event-ID", "1-COMPLETED")...); resp.StatusCode != 204 {
		t.Errorf("after the end was seen: %d", resp.StatusCode)
	}
	w.store.change(job(1), func(j *export.Job) { j.Run, j.Status = 2, export.InProgress })
	_, next = w.stream(t.Context(), first+"/events", append(as("t1"), "Last-Event-ID", "1-COMPLETED")...)
	expect("2-IN_PROGRESS", "progress", "")
	if a := w.do("HEAD", first+"/events", "", as("t1")...); a.StatusCode != 200 {
		t.Errorf("HEAD: %d", a.StatusCode)
	}
	w.do("GET", first+"/events", "", as("t2")...).problem(t, 404, "not-found")
	w.do("GET", first+"/events", "").problem(t, 401, "unauthorized")
}

func TestManyStreamsOfAJobShareOneLook(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	w := setup(t, func(c *api.Config) {
		c.Timeouts.Poll, c.Timeouts.Alive = 20*time.Millisecond, 5*time.Millisecond
	})
	w.store.before = func(context.Context) error { looks.Add(1); return nil }
	w.do("POST", "/jobs", oneChunk)
	const streams = 40
	var ends []func() (map[string]string, bool)
	for n := range streams {
		ctx, vanish := context.WithCancel(t.Context())
		defer vanish()
		_, next := w.stream(ctx, first+"/events")
		if e, ok := next(); !ok {
			t.Fatal(e)
		}
		if n%2 == 0 {
			vanish()
		} else {
			ends = append(ends, next)
		}
	}
	before, start := looks.Load(), time.Now()
	time.Sleep(200 * time.Millisecond) // the time in which looks are counted
	if n, most := looks.Load()-before, int64(time.Since(start)/(20*time.Millisecond))+2; n == 0 || n > most {
		t.Errorf("%d looks for %d streams, at most %d expected", n, len(ends), most)
	}
	w.store.change(job(1), func(j *export.Job) { j.Status = export.Cancelled })
	for _, next := range ends {
		if e, ok := next(); !ok || e["event"] != "end" || e[""] != "alive" {
			t.Errorf("a survivor got %v", e)
		}
	}
}

func TestStreamsAndWaitsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.Timeouts.Poll = time.Hour })
	asked := make(chan struct{}, 100)
	w.store.before = func(context.Context) error { asked <- struct{}{}; return nil }
	w.do("POST", "/jobs", oneChunk)
	_, next := w.stream(t.Context(), first+"/events")
	next()
	for range 4 { // the submission, two of the stream, one of its watch
		<-asked
	}
	waited := make(chan answer, 1)
	go func() { waited <- w.do("GET", first, "", "Prefer", "wait=60") }()
	<-asked
	start := time.Now()
	w.stop()
	if e, more := next(); more {
		t.Errorf("got %v", e)
	}
	if a := <-waited; a.StatusCode != 200 || time.Since(start) > 10*time.Second {
		t.Errorf("%d after %v", a.StatusCode, time.Since(start))
	}
}
