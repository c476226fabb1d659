package consumer_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"exportd/consumer"
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
		return one[bool](w, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%into file_cache%')`)
	})
	unpause()
	w.eventually("the stale owner has done what it does", func() bool { return slow.Stats.LeasesLost.Load() == 1 && slow.InFlight() == 0 })
	release()
	w.ended(id, export.Completed)
	if _, there := w.bucket.get(objectKey("A")); !there {
		t.Error("the object of a DONE chunk is gone")
	}
}
