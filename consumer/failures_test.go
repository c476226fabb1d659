package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportd/consumer"
	"exportd/export"
)

func TestAPermanentFailureIsDeadLetteredAtTheFirstAttemptInPlainWords(t *testing.T) {
	permanent := func(code, text string) error {
		return &export.Failure{Class: export.Permanent, Code: code, Err: errors.New(text)}
	}
	for code, text := range map[string]string{
		"SQL_42883":         "function export_rows(text, date) does not exist (SQLSTATE 42883)",
		"S3_NO_SUCH_BUCKET": "writing s3://bucket/A: the bucket bucket does not exist",
	} {
		t.Run(code, func(t *testing.T) {
			w := newWorld(t)
			export1 := rows
			if strings.HasPrefix(code, "SQL") {
				export1 = func(context.Context, string, io.Writer) (int64, error) { return 0, permanent(code, text) }
			} else {
				w.bucket.before = func(step, key string) error {
					if step == "commit" && key == objectKey("A") {
						return permanent(code, text)
					}
					return nil
				}
			}
			w.start("a", sourceFunc{export: export1})
			j := w.ended(w.submit(export.FailFast, "A"), export.Failed)
			if want := "Chunk failed after 1 attempt: key=A date=2020-01-31: " + text; j.ErrorMessage != want {
				t.Errorf("the job says %q, want %q", j.ErrorMessage, want)
			}
			if got := one[string](w, `select status || attempts || error_code from job_chunk`); got != "DLQ1"+code {
				t.Errorf("the chunk is %s", got)
			}
			if n := one[int](w, `select count(*) from outbox`); n != 1 {
				t.Errorf("%d notices", n)
			}
		})
	}
}

// An error that comes after megabytes have reached the store must leave nothing.
func TestAnErrorInTheLastRowLeavesNothing(t *testing.T) {
	for _, kind := range []string{"one part", "multipart"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			if kind == "multipart" {
				w.bucket.partSize = 1
			}
			w.bucket.before = func(step, key string) error {
				if step == "commit" && key == objectKey("A") {
					t.Error("the last step was taken")
				}
				return nil
			}
			w.start("a", sourceFunc{export: func(_ context.Context, _ string, out io.Writer) (int64, error) {
				if _, err := io.WriteString(out, "k\nfirst\n"); err != nil {
					return 0, err
				}
				return 1, errors.New("the last row is out of range")
			}})
			w.ended(w.submit(export.FailFast, "A"), export.Failed) // which checks that no upload is open
			if _, there := w.bucket.get(objectKey("A")); there {
				t.Error("half a file is there")
			}
		})
	}
}

func TestWhatAnOutageGaveBackDoesNotComeBackAtOnce(t *testing.T) {
	w := newWorld(t)
	var arrived sync.WaitGroup
	const n = 24
	arrived.Add(n)
	w.start("a", sourceFunc{
		export: func(context.Context, string, io.Writer) (int64, error) {
			arrived.Done()
			arrived.Wait() // all meet the same moment
			return 0, &export.Failure{Class: export.Outage, Code: "SQL_CONNECT", Dependency: "source", Err: errGone}
		},
		probe: func() error { return errGone },
	}, func(c *consumer.Config) { c.Concurrency = n })
	keys := make([]string, n)
	for i := range keys {
		keys[i] = string(rune('A' + i))
	}
	w.submit(export.Continue, keys...)
	w.eventually("all are given back", func() bool {
		return one[int](w, `select count(*) from chunk_attempt where outcome = 'GIVEN_BACK'`) == n
	})
	// Between 5 and 10 s after their end.
	first := one[float64](w, `select extract(epoch from min(d.due_at - a.ended_at)) from dispatch d join chunk_attempt a using (job_id, chunk_key)`)
	spread := one[float64](w, `select extract(epoch from max(d.due_at - a.ended_at) - min(d.due_at - a.ended_at)) from dispatch d join chunk_attempt a using (job_id, chunk_key)`)
	if first < 4.9 || spread < 2.5 || spread > 5.1 {
		t.Errorf("they come back %.1f s after the outage at the earliest, within %.1f s", first, spread)
	}
}

func TestAJobWhoseLastChunkWasSettledByADyingWorkerEnds(t *testing.T) {
	w := newWorld(t)
	id := w.submit(export.FailFast, "A")
	c, _, err := w.store.Claim(t.Context(), export.Ref{JobID: id, Key: "A", Date: 20200131}, "11111111-1111-4111-8111-111111111111")
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	o := w.bucket.put(objectKey("A"), "rows", nil)
	f := export.File{ObjectKey: objectKey("A"), Facts: export.Facts{Rows: 1, Bytes: 4, SHA256: strings.Repeat("ab", 32)}, ETag: o.etag, ClaimID: c.ID, ClaimStartedAt: c.StartedAt}
	if err := w.store.Done(t.Context(), c, f, false); err != nil {
		t.Fatal(err)
	}
	w.start("another", sourceFunc{export: rows})
	w.ended(id, export.Completed)
}

func TestWhatLiesAtThePathWithoutARecordIsReplaced(t *testing.T) {
	for name, body := range map[string]string{"empty": "", "cut off": "k\n", "of the right size": "k\nB\n"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bucket.put(objectKey("A"), body, nil)
			w.start("a", sourceFunc{export: rows})
			if j := w.ended(w.submit(export.FailFast, "A"), export.Completed); j.FilesGenerated != 1 {
				t.Errorf("%+v", j)
			}
			if o, _ := w.bucket.get(objectKey("A")); o.body != "k\nA\n" {
				t.Errorf("the object is %q", o.body)
			}
		})
	}
}

// A cancel that comes while one chunk runs, one waits for its retry and one has not begun, twenty times at once; then a re-drive.
func TestACancelMeetsChunksInEveryOpenState(t *testing.T) {
	w := newWorld(t)
	var commits atomic.Int32
	w.bucket.before = func(step, key string) error {
		if step == "commit" && strings.HasSuffix(key, ".csv") {
			commits.Add(1)
		}
		return nil
	}
	running := make(chan struct{}, 3)
	var cancelled atomic.Bool
	w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
		switch {
		case cancelled.Load():
			return rows(ctx, key, out)
		case key == "RETRY":
			return 0, errors.New("not now")
		default:
			running <- struct{}{}
			<-ctx.Done()
			return 0, ctx.Err()
		}
	}}, func(c *consumer.Config) { c.Concurrency, c.RetryBase, c.RetryMax = 2, time.Hour, time.Hour })
	id := w.submit(export.Continue, "RETRY", "RUN1", "RUN2", "WAIT1", "WAIT2")
	<-running
	<-running
	w.eventually("one waits for its retry", func() bool { return one[int](w, `select count(*) from job_chunk where status = 'RETRY_WAIT'`) == 1 })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := w.store.Cancel(context.Background(), "t", id); err != nil && !errors.Is(err, export.ErrEnded) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if j := w.ended(id, export.Cancelled); j.Cancelled != 5 || commits.Load() > 0 {
		t.Errorf("%d last steps; %+v", commits.Load(), j)
	}
	cancelled.Store(true)
	if n, err := w.store.Redrive(t.Context(), "t", id); err != nil || n != 5 {
		t.Fatalf("re-drove %d: %v", n, err)
	}
	w.ended(id, export.Completed)
	if err := w.store.Cancel(t.Context(), "t", id); !errors.Is(err, export.ErrEnded) {
		t.Errorf("the cancel of a completed job: %v", err)
	}
	if j := w.job(id); j.Status != export.Completed || j.Done != 5 {
		t.Errorf("%+v", j)
	}
}

func TestAnUploadThatTheStoreDidNotAbortIsAbortedLater(t *testing.T) {
	w := newWorld(t)
	w.bucket.partSize = 1
	var refused atomic.Int32
	w.bucket.before = func(step, key string) error {
		if step == "abort" && refused.Add(1) <= 2 {
			return &export.Failure{Class: export.Outage, Code: "S3_AWAY", Dependency: "s3", Err: errGone}
		}
		return nil
	}
	broken := &export.Failure{Class: export.Permanent, Code: "BROKEN", Err: errors.New("broken")}
	w.start("a", sourceFunc{export: func(_ context.Context, _ string, out io.Writer) (int64, error) {
		io.WriteString(out, "k\n1\n")
		return 0, broken
	}})
	id := w.submit(export.Continue, "A")
	w.eventually("the upload is aborted", func() bool {
		w.bucket.mu.Lock()
		defer w.bucket.mu.Unlock()
		return refused.Load() > 2 && len(w.bucket.uploads) == 0
	})
	w.ended(id, export.Failed)
}

// What goes well at once when it is tried again (the source has learned how to ask) spends no attempt; if it does not, it is a failure like others.
func TestAnExportToBeTriedOnceMoreSpendsNoAttempt(t *testing.T) {
	w := newWorld(t)
	var tries atomic.Int64
	w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
		if n := tries.Add(1); n == 1 || key == "NEVER" {
			io.WriteString(out, "half a file")
			return 0, &export.Failure{Class: export.Transient, Code: "AGAIN", Err: fmt.Errorf("asked in the wrong way: %w", export.ErrOnceMore)}
		}
		return rows(ctx, key, out)
	}}, func(c *consumer.Config) { c.MaxAttempts = 1 })
	w.ended(w.submit(export.FailFast, "K"), export.Completed)
	if o, _ := w.bucket.get(objectKey("K")); o.body != "k\nK\n" || tries.Load() != 2 {
		t.Errorf("the object is %q after %d tries", o.body, tries.Load())
	}
	w.ended(w.submit(export.FailFast, "NEVER"), export.Failed)
	if tries.Load() != 4 {
		t.Errorf("%d tries, want two for each of the two attempts", tries.Load())
	}
}
