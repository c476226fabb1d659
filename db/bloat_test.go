package db_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
	"exportd/export"
)

// Somebody's long transaction (a dump, a report, an export of half an hour) keeps every dead version of the rows that a queue changes all the time. What is
// measured is what claims read, in blocks, and not their time.
func TestClaimsDoNotSlowDownWhileALongTransactionKeepsDeadRows(t *testing.T) {
	t.Parallel()
	const sample, many = 200, 3000
	s := setup(t, func(c *db.Config) { c.Backlog = 1 << 20 })
	pool := sessions(t, s)
	through(t, s, sample) // the catalog is warm
	exec(t, pool, `vacuum analyze job, job_chunk, dispatch`)
	before := blocks(t, s, pool, sample)

	holder, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	defer holder.Rollback(context.Background())
	_, err = holder.Exec(t.Context(), `select count(*) from job_chunk`)
	must(t, err)
	through(t, s, many)
	exec(t, pool, `vacuum analyze job, job_chunk, dispatch`) // in vain, but for the planner's numbers
	after := blocks(t, s, pool, sample)
	t.Logf("blocks for each of %d chunks: %.1f, and %.1f beside the dead rows of %d", sample, before, after, many)
	if after > 5*before {
		t.Errorf("%.1f blocks for a chunk have become %.1f", before, after)
	}
}

// blocks is what one chunk's way costs, in blocks of the three tables and their indexes.
func blocks(t *testing.T, s *db.Store, pool *pgxpool.Pool, n int) float64 {
	t.Helper()
	read := func() (n float64) {
		must(t, pool.QueryRow(t.Context(), `select sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::float8
			from pg_statio_user_tables where relname in ('job', 'job_chunk', 'dispatch')`).Scan(&n))
		return n
	}
	was := read()
	own := with(t, s, "") // the end of its sessions makes them report
	through(t, own, n)
	own.Close()
	var now float64
	poll(t, "the sessions have reported", func() bool {
		var open int
		must(t, pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'exportd' and state <> 'idle' and pid <> pg_backend_pid()`).Scan(&open))
		last := now
		now = read()
		return open <= 1 && now > was && now == last
	})
	return (now - was) / float64(n)
}

// through takes n chunks through their whole life, in batches as a fleet does.
func through(t *testing.T, s *db.Store, n int) {
	t.Helper()
	ctx := t.Context()
	submit(t, s, submission(n))
	for done := 0; done < n; {
		debts, err := s.LeaseDebts(ctx, 50)
		must(t, err)
		must(t, s.ConfirmSent(ctx, debts))
		if len(debts) == 0 {
			t.Fatalf("nothing is owed any more after %d of %d", done, n)
		}
		steps := make([]func() error, len(debts))
		for i, d := range debts {
			steps[i] = func() error { return whole(ctx, s, d.Ref) }
		}
		together(t, steps...)
		done += len(debts)
	}
}

// whole is the life of one claim.
func whole(ctx context.Context, s *db.Store, ref export.Ref) error {
	c, _, err := s.Claim(ctx, ref, uuid.NewString())
	if err != nil || c == nil {
		return err
	}
	if _, err := s.Renew(ctx, []*export.Claim{c}); err != nil {
		return err
	}
	if err := s.Announce(ctx, c, file(c).ObjectKey, facts); err != nil {
		return err
	}
	return s.Done(ctx, c, file(c), false)
}
