package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/consumer"
	"exportd/db"
	"exportd/export"
)

func TestAJobCancelledDuringTheLastStepNamesTheObjectThatIsThere(t *testing.T) {
	for _, kind := range []string{"one part", "multipart"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			if kind == "multipart" {
				w.bucket.partSize = 1
			}
			var attempt context.Context
			id := ""
			w.bucket.after = func(key string) error {
				if key != objectKey("A") {
					return nil
				}
				if err := w.store.Cancel(context.Background(), "t", id); err != nil {
					t.Error(err)
				}
				<-attempt.Done()
				return condition{ambiguous: true} // the connection was cut
			}
			submitted := make(chan struct{})
			w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
				<-submitted
				attempt = ctx
				return rows(ctx, key, out)
			}})
			id = w.submit(export.FailFast, "A")
			close(submitted)
			j := w.ended(id, export.Cancelled)
			if _, there := w.bucket.get(objectKey("A")); !there || j.Done != 1 {
				t.Errorf("object there: %t; %+v", there, j)
			}
		})
	}
}

func TestAStaleOwnerLeavesTheObjectThatItsSuccessorHasJustFound(t *testing.T) {
	w := newWorld(t)
	written, resume := make(chan struct{}), make(chan struct{})
	w.bucket.after = func(key string) error {
		if key == objectKey("A") {
			close(written)
			<-resume
		}
		return nil
	}
	unpause := sync.OnceFunc(func() { close(resume) })
	// A row of the same identity that is not committed makes every settlement as DONE wait.
	holder, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { holder.Close(context.Background()) })
	t.Cleanup(release)
	tx, err := holder.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `insert into file_cache (bucket, object_key, export_function, row_count, byte_count, sha256, etag, claim_id, claim_started_at, job_id)
		values ('bucket', $1, 'export_rows', 0, 0, '', '', gen_random_uuid(), '-infinity', '')`, objectKey("A")); err != nil {
		t.Fatal(err)
	}
	slow := w.start("slow", sourceFunc{export: rows}, func(c *consumer.Config) { c.Concurrency = 1 })
	id := w.submit(export.FailFast, "A")
	<-written
	w.start("fast", sourceFunc{export: rows})
	t.Cleanup(unpause)
	t.Cleanup(release) // before the consumers are stopped, which waits for their settlements
	w.eventually("a successor has found the object", func() bool {
		w.exec(`update job_chunk set lease_until = now() - interval '1 s' where lock_owner = 'slow' and status = 'RUNNING'`)
		return one[bool](w, fmt.Sprintf(`select exists (select from pg_stat_activity where datname = current_database() and %d = any(pg_blocking_pids(pid)))`, holder.PgConn().PID()))
	})
	unpause()
	w.eventually("the stale owner has done what it does", func() bool { return slow.Stats.LeasesLost.Load() == 1 && slow.InFlight() == 0 })
	release()
	w.ended(id, export.Completed)
	if _, there := w.bucket.get(objectKey("A")); !there {
		t.Error("the object of a DONE chunk is gone")
	}
}

func TestTheObjectOfADeadWorkerIsFoundByWhatItTellsOfItself(t *testing.T) {
	for _, kind := range []string{"taken over", "out of attempts"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			id := w.submit(export.FailFast, "A")
			const claimID = "11111111-1111-4111-8111-111111111111"
			dead, _, err := w.store.Claim(t.Context(), export.Ref{JobID: id, Key: "A", Date: 20200131}, claimID)
			if err != nil || dead == nil {
				t.Fatal(dead, err)
			}
			w.bucket.put(objectKey("A"), "dead", map[string]string{"claim": claimID, "job": id, "rows": "9", "sha256": strings.Repeat("ab", 32)})
			if kind == "out of attempts" {
				w.exec(`update job_chunk set attempts = 3`)
			}
			w.exec(`update job_chunk set lease_until = now() - interval '1 s'`)
			w.start("a", sourceFunc{export: func(context.Context, string, io.Writer) (int64, error) {
				t.Error("the query ran again")
				return 0, errGone
			}})
			if j := w.ended(id, export.Completed); j.RowCount != 9 || j.ByteCount != 4 {
				t.Fatalf("job %+v", j)
			}
		})
	}
}

// deaf is a store that renews nothing, and may have given the claims away meanwhile.
type deaf struct {
	*db.Store
	renewals  chan struct{} // asked for
	announced atomic.Int32
}

func (d *deaf) Renew(context.Context, []*export.Claim) (map[string]export.Renewal, error) {
	d.renewals <- struct{}{}
	return nil, errGone
}

func (d *deaf) Announce(context.Context, *export.Claim, string, export.Facts) error {
	d.announced.Add(1)
	return export.ErrStale
}

func TestTheLastStepIsTakenWithoutAskingOnlyWhileTheLeaseIsFresh(t *testing.T) {
	for _, c := range []struct {
		name      string
		lease     time.Duration
		renewals  int // that fail during the attempt: from one to the next it is a quarter of the lease, and more
		partSize  int
		announced int32
	}{
		{"fresh", time.Hour, 0, 1 << 20, 0},
		{"more than half of it is over", 300 * time.Millisecond, 3, 1 << 20, 1},
		{"fresh, but in parts, which tell nothing of themselves", time.Hour, 0, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.bucket.partSize = c.partSize
			d := &deaf{renewals: make(chan struct{}, 1000)}
			r := w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
				for range c.renewals {
					<-d.renewals
				}
				return rows(ctx, key, out)
			}}, func(cfg *consumer.Config) {
				d.Store = cfg.Store.(*db.Store)
				cfg.Store, cfg.Lease = d, c.lease
			})
			w.submit(export.FailFast, "A")
			w.eventually("the claim ends", func() bool { return r.Stats.LeasesLost.Load()+r.Stats.Generated.Load() == 1 })
			if _, there := w.bucket.get(objectKey("A")); d.announced.Load() != c.announced || there == (c.announced > 0) {
				t.Errorf("asked %d times, object there: %t", d.announced.Load(), there)
			}
		})
	}
}

func TestAJobEndsAlthoughTheBucketDoesNotSayWhatADeadWorkerLeft(t *testing.T) {
	w := newWorld(t)
	w.bucket.before = func(step, _ string) error {
		if step == "head" {
			return &export.Failure{Class: export.Outage, Code: "S3_AWAY", Dependency: "s3", Err: errGone}
		}
		return nil
	}
	id := w.submit(export.FailFast, "A")
	dead, _, err := w.store.Claim(t.Context(), export.Ref{JobID: id, Key: "A", Date: 20200131}, "11111111-1111-4111-8111-111111111111")
	if err != nil || dead == nil {
		t.Fatal(dead, err)
	}
	w.exec(`update job_chunk set attempts = 3, lease_until = now() - interval '9 min'`)
	r := w.start("a", sourceFunc{export: rows})
	sweeper := consumer.Sweeper{Store: w.store, Objects: w.bucket, Lease: w.lease, Finisher: r.Finisher, Log: slog.New(slog.DiscardHandler)}
	if err := sweeper.EndExpired(t.Context()); !errors.Is(err, errGone) || w.job(id).Status.Ended() {
		t.Errorf("while the bucket may come back: %v, %+v", err, w.job(id))
	}
	w.exec(`update job_chunk set lease_until = now() - interval '11 min'`)
	w.ended(id, export.Failed)
}

// A round that has no time left must not take the bucket for away, or it would end without a look what is long overdue.
func TestARoundThatRunsOutOfTimeEndsNothingUnseen(t *testing.T) {
	w := newWorld(t)
	id := w.submit(export.Continue, "A", "B")
	for i, key := range []string{"A", "B"} {
		c, _, err := w.store.Claim(t.Context(), export.Ref{JobID: id, Key: key, Date: 20200131}, strings.Repeat(string(rune('1'+i)), 8)+"-1111-4111-8111-111111111111")
		if err != nil || c == nil {
			t.Fatal(c, err)
		}
		w.bucket.put(objectKey(key), "dead", map[string]string{"claim": c.ID, "job": id, "rows": "9", "sha256": strings.Repeat("ab", 32)})
	}
	w.exec(`update job_chunk set attempts = 3, lease_until = now() - case key when 'A' then interval '31 min' else interval '30 min' end`)
	looks := 0
	w.bucket.before = func(step, _ string) error {
		if looks++; step == "head" && looks == 2 {
			return context.DeadlineExceeded
		}
		return nil
	}
	finisher := consumer.NewFinisher(w.store, w.bucket, "b", func(k string) string { return k }, slog.New(slog.DiscardHandler))
	sweeper := consumer.Sweeper{Store: w.store, Objects: w.bucket, Lease: w.lease, Finisher: finisher, Log: slog.New(slog.DiscardHandler)}
	if err := sweeper.EndExpired(t.Context()); !errors.Is(err, context.DeadlineExceeded) || w.job(id).Done != 1 || w.job(id).Running != 1 {
		t.Errorf("first round: %v, %+v", err, w.job(id))
	}
	if err := sweeper.EndExpired(t.Context()); err != nil || w.job(id).Done != 2 {
		t.Errorf("second round: %v, %+v", err, w.job(id))
	}
}
