package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

func TestTheNewsOfDebtsComesAgainAfterTheConnectionWasCut(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	ctx, stop := context.WithCancel(t.Context())
	owed, heard := make(chan struct{}, 1), make(chan struct{}, 1)
	var both sync.WaitGroup
	both.Go(func() { s.NotifyOwed(ctx, owed) })
	both.Go(func() {
		s.ListenOwed(ctx, func() {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
	})
	defer both.Wait()
	defer stop()
	// The listener may still be on its way: who looks for debts does not rely on it either.
	hear := func() {
		t.Helper()
		for deadline := time.After(30 * time.Second); ; {
			select {
			case owed <- struct{}{}:
			default:
			}
			select {
			case <-heard:
				return
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				t.Fatal("nothing was heard within 30 s")
			}
		}
	}
	hear()
	tag, err := pool.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query = 'listen exportd_owed'`)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatal(tag, err)
	}
	for len(heard) > 0 {
		<-heard
	}
	hear()
}

// The pooler hands out the session that listens to whoever comes next, whose connection would keep all it hears.
func TestNoSessionOfAPoolerIsLeftListening(t *testing.T) {
	t.Parallel()
	direct := setup(t)
	for _, query := range []string{"", "&default_query_exec_mode=exec"} {
		cfg := direct.Config
		cfg.URL = dbtest.Pooler(t, direct.URL) + query
		s, err := db.Open(t.Context(), cfg)
		must(t, err)
		t.Cleanup(s.Close)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.ListenOwed(ctx, func() { t.Error("heard") })
		}()
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			t.Error("it listens still")
		}
		stop()
		<-ended
		var listening int
		must(t, s.InTx(t.Context(), func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `select count(*) from pg_listening_channels()`).Scan(&listening)
		}))
		if listening > 0 {
			t.Errorf("the session of the next transaction listens to %d channels", listening)
		}
	}
}

// A worker that ends one chunk and goes on to the next pays for one commit.
func TestASettlementAndTheNextClaimThatWaitTogetherAreOneTransaction(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	ctx := t.Context()
	_, refs := submit(t, s, submission(3))
	mine := claim(t, s, refs[0])
	tx, err := pool.Begin(ctx)
	must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(ctx, `select from job_chunk where chunk_key = $1 for update`, refs[2].ChunkKey())
	must(t, err)
	take := func(ref export.Ref) func() {
		return func() {
			if c, refusal, err := s.Claim(ctx, ref, uuid.NewString()); c == nil || err != nil {
				t.Error(refusal, err)
			}
		}
	}
	var all sync.WaitGroup
	all.Go(take(refs[2]))
	poll(t, "a claim waits for the lock", func() bool { return s.Turns() == (db.Turns{Flying: true}) })
	all.Go(func() {
		if err := s.Done(ctx, mine, file(mine), false); err != nil {
			t.Error(err)
		}
	})
	all.Go(take(refs[1]))
	poll(t, "two wait for it", func() bool { return s.Turns() == (db.Turns{Flying: true, Waiting: 2}) })
	must(t, tx.Rollback(ctx))
	all.Wait()
	var transactions int
	must(t, pool.QueryRow(ctx, `select count(distinct xmin::text) from job_chunk where chunk_key = any($1)`, []string{refs[0].ChunkKey(), refs[1].ChunkKey()}).Scan(&transactions))
	if transactions != 1 {
		t.Errorf("%d transactions", transactions)
	}
}
