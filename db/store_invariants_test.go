package db_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
)

// breaches lists what must never be seen in the tables, by whatever session at whatever moment.
const breaches = `
select 'a runnable chunk without a debt: ' || c.job_id || ' ' || c.chunk_key from job_chunk c join job j using (job_id)
where c.status in ('PENDING', 'RETRY_WAIT') and j.ending is null and not exists (select from dispatch d where (d.job_id, d.chunk_key) = (c.job_id, c.chunk_key))
union all
select 'a debt of an ended chunk: ' || c.job_id || ' ' || c.chunk_key || ' ' || c.status from job_chunk c join dispatch d using (job_id, chunk_key)
where c.status in ('DONE', 'DLQ', 'CANCELLED')
union all
select 'a debt of no chunk: ' || d.job_id || ' ' || d.chunk_key from dispatch d
where not exists (select from job_chunk c where (d.job_id, d.chunk_key) = (c.job_id, c.chunk_key))
union all
select 'an open chunk in an ended or pinned job: ' || c.job_id || ' ' || c.chunk_key || ' ' || c.status from job_chunk c join job j using (job_id)
where c.status in ('PENDING', 'RUNNING', 'RETRY_WAIT') and (j.completed_at is not null or j.outcome is not null)
union all
select 'total is not the number of chunks: ' || j.job_id from job j where total <> (select count(*) from job_chunk c where c.job_id = j.job_id)
union all
select 'stored counts differ from the chunks: ' || j.job_id from job j where completed_at is not null
and (done::bigint, failed::bigint, cancelled::bigint, files_reused::bigint) is distinct from (select (count(*) filter (where status = 'DONE'), count(*) filter (where status = 'DLQ'),
	count(*) filter (where status = 'CANCELLED'), count(*) filter (where status = 'DONE' and reused)) from job_chunk c where c.job_id = j.job_id)
union all
select 'the outcome contradicts the chunks: ' || j.job_id || ' ' || outcome from job j where outcome is not null and outcome <> case
	when ending = 'CANCEL' then 'CANCELLED' when exists (select from job_chunk c where c.job_id = j.job_id and c.status = 'DLQ') then 'FAILED' else 'COMPLETED' end
union all
select 'a COMPLETED job with a chunk that is not DONE: ' || j.job_id from job j where outcome = 'COMPLETED'
and exists (select from job_chunk c where c.job_id = j.job_id and c.status <> 'DONE')
union all
select 'a dead letter without its notice, or with two: ' || c.job_id || ' ' || c.chunk_key from job_chunk c
where (select count(*) from chunk_attempt a where a.job_id = c.job_id and a.chunk_key = c.chunk_key and a.outcome = 'DLQ')
   <> (select count(*) from outbox o where o.destination = 'parking' and o.headers ->> 'jobId' = c.job_id and o.headers ->> 'chunkKey' = c.chunk_key)
union all
select 'a success among the unsuccessful attempts: ' || c.job_id || ' ' || c.chunk_key from job_chunk c join chunk_attempt a using (claim_id) where c.status = 'DONE'
union all
select 'the claim that dead-lettered the chunk is not recorded: ' || c.job_id || ' ' || c.chunk_key from job_chunk c
where c.status = 'DLQ' and not exists (select from chunk_attempt a where a.claim_id = c.claim_id and a.outcome = 'DLQ')`

// checkInvariants is for moments when nobody writes, and for any other: each look is one snapshot.
func checkInvariants(t fataler, q querier) {
	t.Helper()
	rows, err := q.Query(context.Background(), breaches)
	if err != nil {
		t.Fatalf("look for breaches: %v", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("look for breaches: %v", err)
	}
	if len(found) > 0 {
		t.Fatalf("%d breaches:\n%s", len(found), strings.Join(found[:min(len(found), 10)], "\n"))
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// sessions gives the test connections of its own to the store's database, for what no store would do.
func sessions(t testing.TB, s *db.Store) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t fataler, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
