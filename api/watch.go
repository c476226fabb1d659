package api

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"exportd/export"
)

// watches look at jobs for those who wait for changes: one poll of the store per job, however many wait. Who reads slowly misses states in between,
// never the last one.
type watches struct {
	store   store
	every   time.Duration
	patient time.Duration // for one look

	mu   sync.Mutex // guards the map and the listeners of each watch, so that nobody joins a watch that is just ending
	jobs map[string]*watch
}

type watch struct {
	stop      context.CancelFunc
	listeners map[chan export.Job]bool
}

func newWatches(c Config) *watches {
	return &watches{store: c.Store, every: c.Timeouts.Poll, patient: c.Timeouts.Query, jobs: map[string]*watch{}}
}

// join has changes of the job sent until leave is called, which must happen. The channel is closed when the job has been removed. What the job is
// like now must be asked for after joining.
func (w *watches) join(jobID string) (changes <-chan export.Job, leave func()) {
	ch := make(chan export.Job, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	watched := w.jobs[jobID]
	if watched == nil {
		ctx, stop := context.WithCancel(context.Background())
		watched = &watch{stop: stop, listeners: map[chan export.Job]bool{}}
		w.jobs[jobID] = watched
		go w.look(ctx, jobID, watched)
	}
	watched.listeners[ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(watched.listeners, ch)
		if len(watched.listeners) == 0 {
			watched.stop()
			if w.jobs[jobID] == watched {
				delete(w.jobs, jobID)
			}
		}
	}
}

// look ends with ctx, or with the job.
func (w *watches) look(ctx context.Context, jobID string, watched *watch) {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	var last export.Job
	for {
		bounded, cancel := context.WithTimeout(ctx, w.patient)
		job, err := w.store.Job(bounded, "", jobID) // who joined may see it
		cancel()
		switch {
		case err == nil && !reflect.DeepEqual(job, last):
			last = job
			w.tell(watched, job)
		case errors.Is(err, export.ErrNotFound):
			w.end(jobID, watched)
			return
		} // any other error: the next look may succeed, and those who wait see the store's state by their own calls
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell replaces what a listener has not taken yet.
func (w *watches) tell(watched *watch, job export.Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range watched.listeners {
		select {
		case <-ch:
		default:
		}
		ch <- job // never blocks: it has room for one, and only this goroutine sends
	}
}

func (w *watches) end(jobID string, watched *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, jobID)
	for ch := range watched.listeners {
		close(ch)
	}
}

// mostWait is the longest that an answer is held, in seconds.
const mostWait = 60

// preferredWait reads wait=N of a Prefer header (RFC 7240); 0 if there is none that can be read.
func preferredWait(prefer string) int {
	for preference := range strings.SplitSeq(prefer, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
		if strings.EqualFold(strings.TrimSpace(name), "wait") {
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
			if err != nil {
				return 0
			}
			return int(min(n, mostWait))
		}
	}
	return 0
}

// changed waits until the job is in another state than it was, or another run, and answers with what it is like then; with what it is like at the end of
// patience, or of the process, otherwise. An ended job is not waited for.
func (a *API) changed(ctx context.Context, was export.Job, patience time.Duration) (export.Job, error) {
	if was.Status.Ended() {
		return was, nil
	}
	changes, leave := a.watches.join(was.ID)
	defer leave()
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		select {
		case job, ok := <-changes:
			if !ok {
				return job, export.ErrNotFound
			}
			if cmp.Or(cmp.Compare(job.Status, was.Status), cmp.Compare(job.Run, was.Run)) != 0 {
				return job, nil
			}
			was = job
		case <-over.C:
			return was, nil
		case <-a.stopping:
			return was, nil
		case <-ctx.Done():
			return was, ctx.Err()
		}
	}
}
