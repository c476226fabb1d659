package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"exportd/client"
)

// server answers GET /jobs/J1 by job and the events by events, each told how often it was called before.
type server struct {
	job    func(n int, w http.ResponseWriter)
	events func(n int, w http.ResponseWriter, r *http.Request)

	mu            sync.Mutex
	jobs, streams int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	jobs, streams := s.jobs, s.streams
	if strings.HasSuffix(r.URL.Path, "/events") {
		s.streams++
		s.mu.Unlock()
		s.events(streams, w, r)
		return
	}
	s.jobs++
	s.mu.Unlock()
	s.job(jobs, w)
}

func view(status string, done int) string {
	return fmt.Sprintf(`{"jobId":"J1","status":%q,"total":9,"done":%d}`, status, done)
}

func event(w http.ResponseWriter, id, status string, done int) {
	fmt.Fprintf(w, "id: %s\nevent: progress\ndata: %s\n\n", id, view(status, done))
	w.(http.Flusher).Flush()
}

func start(t *testing.T, s *server) client.Client {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return client.Client{URL: h.URL, Every: time.Millisecond, Patience: time.Minute}
}

// watch returns what was seen, as status and number done.
func watch(t *testing.T, c client.Client) (seen []string, err error) {
	t.Helper()
	_, err = c.Watch(t.Context(), "J1", func(j client.Job) error {
		seen = append(seen, fmt.Sprintf("%s %d", j.Status, j.Done))
		return nil
	})
	return seen, err
}

func TestWatchSeesEachChangeOnceAndEndsWithTheJob(t *testing.T) {
	t.Parallel()
	s := &server{
		job: func(_ int, w http.ResponseWriter) { io.WriteString(w, view("SUBMITTED", 0)) },
		events: func(_ int, w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "retry: 2000\n\n: alive\n\n")
			event(w, "1-SUBMITTED", "SUBMITTED", 0)
			event(w, "1-IN_PROGRESS", "IN_PROGRESS", 3)
			io.WriteString(w, ": alive\n\n")
			event(w, "1-IN_PROGRESS", "IN_PROGRESS", 3)
			// one event may come on several lines
			fmt.Fprint(w, "id: 1-COMPLETED\ndata: {\"jobId\":\"J1\",\"status\":\"COMPLETED\",\ndata: \"total\":9,\"done\":9}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done() // the watcher leaves
		},
	}
	seen, err := watch(t, start(t, s))
	if want := "[SUBMITTED 0 IN_PROGRESS 3 COMPLETED 9]"; err != nil || fmt.Sprint(seen) != want {
		t.Errorf("saw %v, %v; want %s", seen, err, want)
	}
}

func TestWatchGoesOnWhereAStreamBrokeOff(t *testing.T) {
	t.Parallel()
	last := make(chan string, 1)
	s := &server{
		job: func(n int, w http.ResponseWriter) {
			if n == 1 {
				http.Error(w, "restarting", http.StatusServiceUnavailable)
				return
			}
			io.WriteString(w, view("IN_PROGRESS", 1+n))
		},
		events: func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 0 {
				event(w, "1-IN_PROGRESS", "IN_PROGRESS", 2)
				panic(http.ErrAbortHandler)
			}
			last <- r.Header.Get("Last-Event-ID")
			event(w, "1-FAILED", "FAILED", 5)
		},
	}
	away := 0
	c := start(t, s)
	c.Away = func(err error) {
		away++
		if !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("told of %v", err)
		}
	}
	seen, err := watch(t, c)
	if want := "[IN_PROGRESS 1 IN_PROGRESS 2 IN_PROGRESS 3 FAILED 5]"; err != nil || fmt.Sprint(seen) != want || away != 1 {
		t.Errorf("saw %v, %v, told %d times; want %s, told once", seen, err, away, want)
	}
	if id := <-last; id != "1-IN_PROGRESS" {
		t.Errorf("Last-Event-ID %q", id)
	}
}

func TestWatchLeavesAStreamThatSaysNothing(t *testing.T) {
	t.Parallel()
	s := &server{
		job: func(n int, w http.ResponseWriter) {
			if n < 2 {
				io.WriteString(w, view("IN_PROGRESS", n))
				return
			}
			io.WriteString(w, view("COMPLETED", 9))
		},
		events: func(n int, w http.ResponseWriter, r *http.Request) {
			if n == 1 { // not even a header, as behind a proxy that holds answers back
				<-r.Context().Done()
				return
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	}
	c := start(t, s)
	c.Quiet = 50 * time.Millisecond
	seen, err := watch(t, c)
	if want := "[IN_PROGRESS 0 IN_PROGRESS 1 COMPLETED 9]"; err != nil || fmt.Sprint(seen) != want {
		t.Errorf("saw %v, %v; want %s", seen, err, want)
	}
}

func TestWatchStaysWithAStreamThatGivesSignsOfLife(t *testing.T) {
	t.Parallel()
	s := &server{
		job: func(_ int, w http.ResponseWriter) { io.WriteString(w, view("IN_PROGRESS", 0)) },
		events: func(n int, w http.ResponseWriter, r *http.Request) {
			for range 15 {
				io.WriteString(w, ": alive\n\n")
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
			event(w, "1-COMPLETED", "COMPLETED", 10+n)
		},
	}
	c := start(t, s)
	c.Quiet = time.Second
	seen, err := watch(t, c)
	if want := "[IN_PROGRESS 0 COMPLETED 10]"; err != nil || fmt.Sprint(seen) != want {
		t.Errorf("saw %v, %v; want %s: the first stream", seen, err, want)
	}
}

func TestWatchPollsWhereThereAreNoEvents(t *testing.T) {
	t.Parallel()
	for _, refuse := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { http.Error(w, "<html>", http.StatusNotFound) },
		func(w http.ResponseWriter) { http.Error(w, "too many", http.StatusTooManyRequests) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		func(w http.ResponseWriter) { io.WriteString(w, "data: <html>\n\n") },
		func(w http.ResponseWriter) { io.WriteString(w, "data: "+strings.Repeat("x", 2<<20)) },
	} {
		s := &server{
			job: func(n int, w http.ResponseWriter) {
				io.WriteString(w, view([]string{"IN_PROGRESS", "IN_PROGRESS", "CANCELLED"}[min(n, 2)], n))
			},
			events: func(_ int, w http.ResponseWriter, _ *http.Request) { refuse(w) },
		}
		seen, err := watch(t, start(t, s))
		if want := "[IN_PROGRESS 0 IN_PROGRESS 1 CANCELLED 2]"; err != nil || fmt.Sprint(seen) != want {
			t.Errorf("saw %v, %v; want %s", seen, err, want)
		}
	}
}

func TestWatchGivesUpAnAPIThatStaysAway(t *testing.T) {
	t.Parallel()
	s := &server{
		job: func(n int, w http.ResponseWriter) {
			if n == 0 {
				io.WriteString(w, view("IN_PROGRESS", 1))
				return
			}
			http.Error(w, "away", http.StatusBadGateway)
		},
		events: func(_ int, w http.ResponseWriter, _ *http.Request) { http.Error(w, "away", http.StatusBadGateway) },
	}
	c := start(t, s)
	c.Patience = 50 * time.Millisecond
	seen, err := watch(t, c)
	if !errors.Is(err, client.ErrUnreachable) || fmt.Sprint(seen) != "[IN_PROGRESS 1]" {
		t.Errorf("saw %v, %v", seen, err)
	}
}

func TestWatchWaitsForAnAPIThatSaysItCannotWorkYet(t *testing.T) {
	t.Parallel()
	s := &server{job: func(n int, w http.ResponseWriter) {
		if n < 2 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, `{"title": "Away", "status": 503, "detail": "The database does not answer."}`)
			return
		}
		io.WriteString(w, view("COMPLETED", 1))
	}}
	seen, err := watch(t, start(t, s))
	if err != nil || fmt.Sprint(seen) != "[COMPLETED 1]" {
		t.Errorf("saw %v, %v", seen, err)
	}
}

func TestWatchEndsAtOnceWhenItIsToldTo(t *testing.T) {
	t.Parallel()
	s := &server{
		job: func(_ int, w http.ResponseWriter) { io.WriteString(w, view("IN_PROGRESS", 0)) },
		events: func(_ int, w http.ResponseWriter, r *http.Request) {
			event(w, "1-IN_PROGRESS", "IN_PROGRESS", 1)
			<-r.Context().Done()
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := start(t, s).Watch(ctx, "J1", func(j client.Job) error {
		if j.Done == 1 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	full := errors.New("the disk is full")
	if _, err := start(t, s).Watch(t.Context(), "J1", func(client.Job) error { return full }); !errors.Is(err, full) {
		t.Errorf("ended with %v", err)
	}
}

func TestWatchOnOutlastsAnAPIThatWentAwayAfterItAnswered(t *testing.T) {
	t.Parallel()
	s := &server{
		job: func(n int, w http.ResponseWriter) {
			if n < 3 {
				http.Error(w, "away", http.StatusBadGateway)
				return
			}
			io.WriteString(w, view("COMPLETED", 9))
		},
	}
	last, err := start(t, s).WatchOn(t.Context(), client.Job{JobID: "J1"}, func(client.Job) error { return nil })
	if err != nil || last.Status != "COMPLETED" {
		t.Errorf("%+v, %v", last, err)
	}
}

func TestCallsWaitWhenTheAPIAsksForIt(t *testing.T) {
	t.Parallel()
	s := &server{job: func(n int, w http.ResponseWriter) {
		if n == 0 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "slow down", http.StatusTooManyRequests)
			return
		}
		io.WriteString(w, view("COMPLETED", 9))
	}}
	if job, err := start(t, s).Job(t.Context(), "J1"); err != nil || job.Done != 9 {
		t.Errorf("%+v, %v", job, err)
	}
	s.job = func(_ int, w http.ResponseWriter) {
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}
	if _, err := start(t, s).Job(t.Context(), "J1"); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("an hour of it: %v", err)
	}
}
