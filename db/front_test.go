package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/db"
)

func TestBoundedLooksFindWhatCameInBeforeThem(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.SlowLook(1) // every whole look bounds the next ones
	pool := sessions(t, s)
	submit(t, s, submission(10))
	first := lease(t, s, 3)
	exec(t, pool, `update dispatch set rank = -5 where (job_id, chunk_key) in (select job_id, chunk_key from dispatch where state = 'READY' order by rank desc limit 1)`) // as one that was committed late
	if n := len(lease(t, s, 100)); n != 6 {
		t.Errorf("%d found behind the front", n)
	}
	if n := len(lease(t, s, 100)); n != 1 {
		t.Errorf("%d found before it, when nothing was left behind it", n)
	}
	must(t, s.ReturnDebts(t.Context(), first))
	if n := len(lease(t, s, 100)); n != 3 {
		t.Errorf("%d found of 3 that were returned", n)
	}
	submit(t, s, submission(4)) // in line from the beginning again
	if n := len(lease(t, s, 100)); n != 4 {
		t.Errorf("%d found of a new job", n)
	}
}

// Measured are the blocks that looks read, and not their time.
func TestLooksDoNotSlowDownWhileALongTransactionKeepsDeadDebts(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *db.Config) { c.Backlog = 1 << 20 })
	pool := sessions(t, s)
	holder, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, err)
	defer holder.Rollback(context.Background())
	_, err = holder.Exec(t.Context(), `select count(*) from dispatch`)
	must(t, err)
	exec(t, pool, `insert into dispatch (job_id, chunk_key, state, rank, due_at) select 'paid', n, case when n % 2 = 0 then 'READY' else 'SENT' end, n - 60000, now() - interval '1 hour' from generate_series(1, 50000) n`)
	exec(t, pool, `delete from dispatch`)
	submit(t, s, submission(200))
	s.Close() // its sessions report at their end, and not meanwhile
	read := func(slow time.Duration) (blocks int) {
		count := func() (n int) {
			exec(t, pool, `select pg_stat_force_next_flush()`)
			must(t, pool.QueryRow(t.Context(), `select (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int from pg_statio_user_tables where relname = 'dispatch'`).Scan(&n))
			return n
		}
		before := count()
		own := with(t, s, "application_name=looks")
		own.SlowLook(slow)
		for range 10 {
			if debts, err := own.TakeDebts(t.Context(), 10, 0); err != nil || len(debts) != 10 {
				t.Fatalf("%d debts, %v", len(debts), err)
			}
			if _, err := own.NextDue(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		own.Close()
		poll(t, "its sessions have ended, and with that reported", func() (ended bool) {
			must(t, pool.QueryRow(t.Context(), `select not exists (select from pg_stat_activity where datname = current_database() and application_name = 'looks')`).Scan(&ended))
			return ended
		})
		return count() - before
	}
	whole, bounded := read(time.Hour), read(1)
	t.Logf("10 looks read %d blocks, bounded ones %d", whole, bounded)
	if bounded > whole/3 {
		t.Errorf("bounded looks read %d blocks, whole ones %d", bounded, whole)
	}
}
