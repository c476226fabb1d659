package db_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
	"exportd/export"
)

// Between the snapshot of a statement and the locks that it gets lies whatever others committed meanwhile. These tests hold a lock in a session of their
// own until the store's statement waits for it, change what it has read, and let it go on.

// meanwhile has do wait for the locks that the session takes with lock, then runs change in that session and commits.
func meanwhile(t *testing.T, pool *pgxpool.Pool, lock string, do func() error, change ...string) error {
	t.Helper()
	ctx := context.Background()
	tx, err := pool.Begin(ctx)
	must(t, err)
	defer tx.Rollback(ctx)
	_, err = tx.Exec(ctx, lock)
	must(t, err)
	done := make(chan error, 1)
	go func() { done <- do() }()
	eventually(t, func() *bool {
		var waits bool
		must(t, pool.QueryRow(ctx, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits))
		if !waits {
			return nil
		}
		return &waits
	})
	for _, sql := range change {
		_, err = tx.Exec(ctx, sql)
		must(t, err)
	}
	must(t, tx.Commit(ctx))
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("still waiting after the lock was released")
		return nil
	}
}

// owes is what OweExpired does, and holds.
const (
	locksAllChunks = `select from job_chunk for update`
	owes           = `insert into dispatch (job_id, chunk_key, state, rank) select job_id, chunk_key, 'WAIT', 0 from job_chunk`
)

func TestNoDebtOutlivesAChunkThatEndsWhileTheSweeperOwesItARun(t *testing.T) {
	t.Parallel()
	ends := map[string]func(context.Context, *db.Store, *export.Claim) error{
		"done":        func(ctx context.Context, s *db.Store, c *export.Claim) error { return s.Done(ctx, c, file(c), false) },
		"dead-letter": func(ctx context.Context, s *db.Store, c *export.Claim) error { return s.DeadLetter(ctx, c, broken) },
		"cancelled":   func(ctx context.Context, s *db.Store, c *export.Claim) error { return s.Retry(ctx, c, broken, 0) },
	}
	for name, do := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup(t)
			pool := sessions(t, s)
			id, refs := submit(t, s, submission(1))
			c := claim(t, s, refs[0])
			exec(t, pool, `update job_chunk set lease_until = now()`)
			if name == "cancelled" {
				must(t, s.Cancel(t.Context(), "", id))
			}
			must(t, meanwhile(t, pool, locksAllChunks, func() error { return do(context.Background(), s, c) }, owes))
			checkInvariants(t, pool)
			if name != "done" {
				end(t, s, id)
				if n, err := s.Redrive(t.Context(), "", id); err != nil || n != 1 {
					t.Fatalf("re-drive: %d %v", n, err)
				}
			}
		})
	}
}

func TestARetryThatMeetsTheSweepersDebtMakesItItsOwn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(1))
	c := claim(t, s, refs[0])
	must(t, meanwhile(t, pool, locksAllChunks, func() error { return s.Retry(context.Background(), c, broken, time.Hour) },
		owes, `update dispatch set state = 'SENT', sent_at = now(), sends = 3, due_at = now() + interval '1 day'`))
	var state string
	var sends int
	var due time.Duration
	must(t, pool.QueryRow(t.Context(), `select state, sends, due_at - now() from dispatch`).Scan(&state, &sends, &due))
	if state != "WAIT" || sends != 0 || due > time.Hour || due < 59*time.Minute {
		t.Fatalf("debt %s sends %d due in %s", state, sends, due)
	}
	checkInvariants(t, pool)
}

func TestAClaimTakesTheDebtThatWasWrittenWhileItWaited(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(1))
	c := claim(t, s, refs[0])
	must(t, s.GiveBack(t.Context(), c, broken, 0))
	must(t, meanwhile(t, pool, locksAllChunks, func() error {
		if c, refusal, err := s.Claim(context.Background(), refs[0], uuid.NewString()); c == nil {
			return errors.Join(err, errors.New(string(refusal)))
		}
		return nil
	}, `delete from dispatch`, owes))
	var n int
	must(t, pool.QueryRow(t.Context(), `select count(*) from dispatch`).Scan(&n))
	if n != 0 {
		t.Fatal("the debt is still there")
	}
}

func TestAClaimTakesTheDebtThatARelayRewroteMeanwhile(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(1))
	must(t, meanwhile(t, pool, `select from dispatch for update`, func() error {
		_, _, err := s.Claim(context.Background(), refs[0], uuid.NewString())
		return err
	}, `update dispatch set state = 'READY', due_at = now()`))
	var debts int
	must(t, pool.QueryRow(t.Context(), `select count(*) from dispatch`).Scan(&debts))
	if debts != 0 {
		t.Errorf("%d debts of a claimed chunk", debts)
	}
}

func TestAPinThatWaitedDoesNotEndTheRunAfterTheOneItSaw(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	id, refs := submit(t, s, submission(2))
	must(t, s.DeadLetter(t.Context(), claim(t, s, refs[0]), broken))
	var pinned *export.Ending
	must(t, meanwhile(t, pool, `select from job for update`,
		func() (err error) { pinned, err = s.Pin(context.Background(), id); return err },
		// What Pin, End and Redrive do.
		`update job set status = 'IN_PROGRESS', run = 2, ending = null, error_message = null`,
		`update job_chunk set status = 'PENDING', attempts = 0, completed_at = null`,
		`insert into dispatch (job_id, chunk_key, state, rank) select job_id, chunk_key, 'READY', 0 from job_chunk`))
	if pinned != nil {
		t.Fatalf("pinned %+v with two chunks open", pinned)
	}
	checkInvariants(t, pool)
}

func TestAnEndOfARunThatWasReDrivenMeanwhileChangesNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	id, refs := submit(t, s, submission(2))
	must(t, s.DeadLetter(t.Context(), claim(t, s, refs[0]), broken))
	e, err := s.Pin(t.Context(), id)
	must(t, err)
	must(t, meanwhile(t, pool, `select from job for update`, func() error { return s.End(context.Background(), *e) },
		`update job set status = 'IN_PROGRESS', run = 2, ending = null, outcome = null, pinned_at = null, error_message = null`,
		`update job_chunk set status = 'PENDING', attempts = 0, completed_at = null`,
		`insert into dispatch (job_id, chunk_key, state, rank) select job_id, chunk_key, 'READY', 0 from job_chunk`))
	if j := job(t, s, id); j.Status != export.InProgress || j.Pending != 2 {
		t.Fatalf("job %+v", j)
	}
	checkInvariants(t, pool)
}

func TestASettlementThatMissesACancelIsCancelledByTheSweeper(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	id, refs := submit(t, s, submission(1))
	c := claim(t, s, refs[0])
	must(t, meanwhile(t, pool, locksAllChunks, func() error { return s.Retry(context.Background(), c, broken, time.Hour) },
		`update job set ending = 'CANCEL', status = 'CANCELLING'`))
	if end(t, s, id) != nil {
		t.Fatal("ended with a chunk that waits")
	}
	if n, err := s.CancelLeftovers(t.Context()); err != nil || n != 1 {
		t.Fatalf("leftovers: %d %v", n, err)
	}
	if e := end(t, s, id); e == nil || e.Outcome != export.Cancelled {
		t.Fatalf("ending %+v", e)
	}
	checkInvariants(t, pool)
}

func TestLeftoversAreCancelledUnderTheLockOfTheirJob(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	submit(t, s, submission(1))
	exec(t, pool, `update job set ending = 'CANCEL', status = 'CANCELLING'`)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from job for update`); err != nil {
		t.Fatal(err)
	}
	if n, err := s.CancelLeftovers(t.Context()); err != nil || n != 0 {
		t.Fatalf("cancelled %d while a re-drive may be under way: %v", n, err)
	}
	must(t, tx.Commit(t.Context()))
	if n, err := s.CancelLeftovers(t.Context()); err != nil || n != 1 {
		t.Fatalf("leftovers: %d %v", n, err)
	}
}

func TestTheReaperWalksAwayFromAChunkThatFinishedMeanwhile(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *db.Config) { c.MaxAttempts = 1 })
	pool := sessions(t, s)
	for range 100 {
		_, refs := submit(t, s, submission(1))
		c := claim(t, s, refs[0])
		exec(t, pool, `update job_chunk set lease_until = now() - interval '1 s' where status = 'RUNNING'`)
		list, err := s.Expired(t.Context())
		must(t, err)
		if len(list) != 1 {
			t.Fatalf("expired %+v", list)
		}
		err = meanwhile(t, pool, `select from job_chunk where status = 'RUNNING' for update`, func() error { return s.EndExpired(context.Background(), list[0]) },
			`update job_chunk set status = 'DONE', completed_at = now(), lease_until = null, etag = 'e', s3_object_key = 'o', row_count = 1, byte_count = 1, sha256 = 's' where status = 'RUNNING'`)
		if !errors.Is(err, export.ErrStale) {
			t.Fatalf("the reaper answered %v", err)
		}
		must(t, s.Done(t.Context(), c, file(c), false)) // the owner's repeat
	}
	var n int
	must(t, pool.QueryRow(t.Context(), `select count(*) from job_chunk where status <> 'DONE'`).Scan(&n))
	if n > 0 {
		t.Fatalf("%d chunks are not DONE any more", n)
	}
	checkInvariants(t, pool)
}

func TestAnInvisibleLeaseIsSweptToo(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(1))
	claim(t, s, refs[0])
	exec(t, pool, `update job_chunk set lease_until = null`)
	if n, err := s.OweExpired(t.Context()); err != nil || n != 1 {
		t.Fatalf("owed %d: %v", n, err)
	}
	if c := claim(t, s, refs[0]); c.Attempt != 2 {
		t.Fatalf("claim %+v", c)
	}
}

// A late commit is not passed over: debts are found by their state, not by their place.
func TestASubmissionThatCommitsLateIsPublished(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), `
		insert into job (job_id, tenant, request_hash, priority, on_failure, reuse, compression, total) values ('J20260101_000000', 't', '', 4, 'CONTINUE', true, 'NONE', 1);
		insert into job_chunk (job_id, chunk_key, key, effective_date) values ('J20260101_000000', 'key=L:date=20260101', 'L', '2026-01-01');
		insert into dispatch (job_id, chunk_key, state, rank) values ('J20260101_000000', 'key=L:date=20260101', 'READY', 1)`)
	must(t, err)
	for range 20 {
		submit(t, s, submission(2))
		debts, err := s.LeaseDebts(t.Context(), 10)
		must(t, err)
		if len(debts) != 2 {
			t.Fatalf("leased %d", len(debts))
		}
		must(t, s.ConfirmSent(t.Context(), debts))
	}
	must(t, tx.Commit(t.Context()))
	debts, err := s.LeaseDebts(t.Context(), 10)
	must(t, err)
	if len(debts) != 1 || debts[0].Key != "L" {
		t.Fatalf("leased %+v", debts)
	}
}

func TestOfTwoSubmissionsUnderOneKeyTheSecondWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	r := submission(3, func(r *export.SubmitRequest) { r.IdempotencyKey = "k" })
	hash := r.Hash()
	insert := `insert into job (job_id, tenant, idempotency_key, request_hash, priority, on_failure, reuse, compression, total)
		values ('J20260101_000000', 't', 'k', $1, 4, 'CONTINUE', true, 'NONE', 3)`
	for name, finish := range map[string]func(pgx.Tx) error{
		"committed": func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
		"undone":    func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
	} {
		exec(t, pool, `truncate job, job_chunk, dispatch`)
		tx, err := pool.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), insert, hash[:])
		must(t, err)
		type result struct {
			job      export.Job
			replayed bool
			err      error
		}
		done := make(chan result, 1)
		go func() {
			job, replayed, err := s.Submit(context.Background(), r)
			done <- result{job, replayed, err}
		}()
		eventually(t, func() *int {
			var n int
			must(t, pool.QueryRow(context.Background(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n))
			if n == 0 {
				return nil
			}
			return &n
		})
		must(t, finish(tx))
		got := <-done
		if got.err != nil || got.replayed != (name == "committed") || got.replayed != (got.job.ID == "J20260101_000000") {
			t.Fatalf("%s: %+v", name, got)
		}
	}
}
