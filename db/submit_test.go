package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// A statement has at most 65 535 parameters. From 1000 chunks on rows are copied: nobody is to see a difference.
func TestAJobIsStoredWholeHoweverManyChunksItHas(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := sessions(t, s)
	for _, n := range []int{1, 999, 1000, 73_200} {
		r := submission(n, func(r *export.SubmitRequest) { r.IdempotencyKey = fmt.Sprint(n) })
		id, _ := submit(t, s, r)
		var chunks, debts, like, ranks, step int
		must(t, conn.QueryRow(t.Context(), `select (select count(*) from job_chunk where job_id = $1), (select count(*) from dispatch where job_id = $1),
			(select count(*) from job_chunk c join dispatch d using (job_id, chunk_key) where job_id = $1 and c.status = 'PENDING' and c.attempts = 0 and d.state = 'READY' and d.sends = 0
				and c.chunk_key = 'key=' || c.key || ':date=' || to_char(c.effective_date, 'YYYYMMDD')),
			(select count(distinct rank) from dispatch where job_id = $1), (select (max(rank) - min(rank)) / greatest(count(*) - 1, 1) from dispatch where job_id = $1)`, id).
			Scan(&chunks, &debts, &like, &ranks, &step))
		if j := job(t, s, id); chunks != n || debts != n || like != n || ranks != n || j.Total != n || j.Pending != n {
			t.Errorf("%d chunks, %d debts, %d as they should be, %d ranks; %+v", chunks, debts, like, ranks, j)
		}
		if want := 2520 / (r.Priority + 1); n > 1 && step != want {
			t.Errorf("debts of %d chunks are %d apart, want %d", n, step, want)
		}
		if again, replayed, err := s.Submit(t.Context(), r); err != nil || !replayed || again.ID != id {
			t.Errorf("the same again: %+v, replayed %t, %v", again, replayed, err)
		}
	}
}

func TestAJobWhoseChunksCannotBeStoredLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 2000} {
		s := setup(t)
		conn := sessions(t, s)
		_, err := conn.Exec(t.Context(), `alter table dispatch add check (chunk_key not like '%08')`)
		must(t, err)
		if _, _, err := s.Submit(t.Context(), submission(n)); err == nil {
			t.Error("no error")
		}
		rows, err := conn.Query(t.Context(), `select 'job' from job union all select 'job_chunk' from job_chunk union all select 'dispatch' from dispatch`)
		must(t, err)
		if left, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left[:min(len(left), 3)], err)
		}
	}
}

// The first of two requests with one idempotency key freezes between the rows of its chunks.
func TestAFrozenSubmissionKeepsNobodyFromItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn, err := sessions(t, s).Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	const frozen, first = 1, 2
	_, err = conn.Exec(t.Context(), fmt.Sprintf(`
		create function stand_still() returns trigger language plpgsql as $$ begin
			if pg_try_advisory_xact_lock(%[2]d) then perform pg_advisory_xact_lock(%[1]d); end if;
			return new;
		end $$;
		create trigger still before insert on dispatch for each row execute function stand_still();
		select pg_advisory_lock(%[1]d)`, frozen, first))
	must(t, err)
	r := submission(2000, func(r *export.SubmitRequest) { r.IdempotencyKey = "one" })
	type answer struct {
		job      export.Job
		replayed bool
		err      error
	}
	late := make(chan answer, 1)
	go func() {
		job, replayed, err := s.Submit(t.Context(), r)
		late <- answer{job, replayed, err}
	}()
	poll(t, "the first waits", func() bool {
		var waits bool
		must(t, conn.QueryRow(t.Context(), `select exists (select from pg_locks where locktype = 'advisory' and not granted)`).Scan(&waits))
		return waits
	})
	done := make(chan answer, 1)
	go func() {
		job, replayed, err := s.Submit(t.Context(), r)
		done <- answer{job, replayed, err}
	}()
	var second answer
	select {
	case second = <-done:
	case <-time.After(15 * time.Second):
		t.Error("the second waits for the first")
	}
	_, err = conn.Exec(t.Context(), `select pg_advisory_unlock($1)`, frozen)
	must(t, err)
	one := <-late
	if second.err != nil || second.replayed || one.err != nil || !one.replayed || one.job.ID != second.job.ID {
		t.Errorf("the second: %+v; the first, thawed: %+v", second, one)
	}
	var jobs, chunks int
	must(t, conn.QueryRow(t.Context(), `select (select count(*) from job), (select count(*) from job_chunk)`).Scan(&jobs, &chunks))
	if jobs != 1 || chunks != 2000 {
		t.Errorf("%d jobs of %d chunks", jobs, chunks)
	}
}

func TestASubmissionThatAnAdministratorCancelsIsAnOutage(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	tx, err := pool.Begin(t.Context())
	must(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), `lock table dispatch`)
	must(t, err)
	for _, n := range []int{1, 1000} {
		done := make(chan error, 1)
		go func() {
			_, _, err := s.Submit(t.Context(), submission(n))
			done <- err
		}()
		poll(t, "it waits and is cancelled", func() bool {
			var cancelled int
			must(t, pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and case when cardinality(pg_blocking_pids(pid)) > 0 then pg_cancel_backend(pid) else false end`).Scan(&cancelled))
			return cancelled > 0
		})
		if f := export.FailureOf(<-done); f.Class != export.Outage {
			t.Errorf("%d chunks: %s, %v", n, f.Class, f)
		}
	}
}
