package db_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/export"
)

// history fills the tables with jobs of 40 chunks, one a minute: of each hundred one failed, one was cancelled, and the last two hundred of all are open; and
// with a job of 10 000 done chunks among them.
func history(b testing.TB, pool *pgxpool.Pool, jobs int) (large string) {
	b.Helper()
	large = "J20260101_000000"
	exec(b, pool, `create temp table made as
		select 'J20260101_' || lpad(n::text, 6, '0') as job_id, n, case when n > $1 - 200 then 'IN_PROGRESS' when n % 100 = 1 then 'FAILED' when n % 100 = 2 then 'CANCELLED' else 'COMPLETED' end as status,
			case n when 0 then 10000 else 40 end as total, now() - make_interval(mins => $1 - n) as at from generate_series(0, $1::int) n`, jobs)
	exec(b, pool, `insert into job (job_id, tenant, status, ending, outcome, pinned_at, request_hash, priority, on_failure, reuse, compression, total, done, failed, cancelled, files_reused, row_count, byte_count, created_at, updated_at, completed_at)
		select job_id, 't' || n % 5, status, case status when 'CANCELLED' then 'CANCEL' when 'FAILED' then 'FAIL' end, e, case when e is not null then at end, '', 4, 'FAIL_FAST', true, 'NONE', total,
			case when e is not null then total - bad - off end, case when e is not null then bad end, case when e is not null then off end, 0, 0, 0, at, at, case when e is not null then at + interval '1 min' end
		from (select *, case when status <> 'IN_PROGRESS' then status end as e, (status = 'FAILED')::int as bad, case when status = 'CANCELLED' then 20 else 0 end as off from made) m`)
	exec(b, pool, `insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, claim_id, completed_at, s3_object_key, row_count, byte_count, sha256, etag, error_code, error_message)
		select job_id, 'key=' || key || ':date=' || to_char(day, 'YYYYMMDD'), key, day, s, 1, gen_random_uuid(), case when s <> 'PENDING' then at end,
			case when d then 'exports/' || key || to_char(day, '_YYYYMMDD') || '.csv' end, case when d then 10 end, case when d then 1000 end, case when d then repeat('a', 64) end, case when d then '"e"' end,
			case when s = 'DLQ' then 'SQL_22012' end, case when s = 'DLQ' then 'division by zero' end
		from (select *, s = 'DONE' as d from (
			select m.job_id, m.at, 'K' || (n * 7 + c / 4) % 1000 as key, date '2020-01-01' + c % 4 + (c / 4000) * 4 as day,
				case when m.status = 'IN_PROGRESS' and c >= 20 then 'PENDING' when m.status = 'FAILED' and c = 0 then 'DLQ' when m.status = 'CANCELLED' and c < 20 then 'CANCELLED' else 'DONE' end as s
			from made m cross join lateral generate_series(0, m.total - 1) c) x) y`)
	exec(b, pool, `insert into dispatch (job_id, chunk_key, state, rank) select job_id, chunk_key, 'READY', row_number() over (partition by job_id) * 504 from job_chunk where status = 'PENDING'`)
	exec(b, pool, `drop table made`)
	exec(b, pool, `vacuum analyze job, job_chunk, dispatch, chunk_attempt`)
	return large
}

// BenchmarkLists times what people ask, with 300 jobs in the tables and with 50 000 jobs of 2 000 000 chunks.
func BenchmarkLists(b *testing.B) {
	for name, jobs := range map[string]int{"jobs=300": 300, "jobs=50000": 50_000} {
		s := setup(b)
		one, err := pgxpool.ParseConfig(s.URL)
		if err != nil {
			b.Fatal(err)
		}
		one.MaxConns = 1 // its temporary table
		pool, err := pgxpool.NewWithConfig(context.Background(), one)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(pool.Close)
		large := history(b, pool, jobs)
		ctx := context.Background()
		list := func(f export.JobFilter, pages int) func() error {
			return func() error {
				var after *export.Place
				for range pages {
					_, next, err := s.Jobs(ctx, f, after, 50)
					if err != nil || next == nil {
						return err
					}
					after = next
				}
				return nil
			}
		}
		chunks := func(job string, f export.ChunkFilter) func() error {
			return func() error { _, _, err := s.Chunks(ctx, "", job, f, "", 50); return err }
		}
		for call, do := range map[string]func() error{
			"jobs":           list(export.JobFilter{}, 1),
			"jobs/tenant":    list(export.JobFilter{Tenant: "t3"}, 1),
			"jobs/open":      list(export.JobFilter{Status: export.InProgress}, 1),
			"jobs/failed":    list(export.JobFilter{Status: export.Failed}, 1),
			"jobs/cancelled": list(export.JobFilter{Status: export.Cancelled, Tenant: "t2"}, 1),
			"jobs/submitted": list(export.JobFilter{Status: export.Submitted}, 1),
			"jobs/key":       list(export.JobFilter{Key: "K7"}, 1),
			"jobs/nokey":     list(export.JobFilter{Key: "NONE"}, 1),
			"jobs/window":    list(export.JobFilter{From: time.Now().Add(-4 * time.Hour), To: time.Now().Add(-2 * time.Hour)}, 1),
			"jobs/tenpages":  list(export.JobFilter{}, 10),
			"job":            func() error { _, err := s.Job(ctx, "", large); return err },
			"job/open":       func() error { _, err := s.Job(ctx, "", fmt.Sprintf("J20260101_%06d", jobs)); return err },
			"chunks":         chunks(large, export.ChunkFilter{}),
			"chunks/done":    chunks(large, export.ChunkFilter{Status: export.Done}),
			"chunks/dlq":     chunks(large, export.ChunkFilter{Status: export.DeadLetter}),
			"chunks/key":     chunks(large, export.ChunkFilter{Key: "K70"}),
			"chunk":          func() error { _, _, err := s.Chunk(ctx, "", large, "key=K70:date=20200101"); return err },
			"redrivable": func() error {
				_, err := s.Redrivable(ctx, export.RedriveFilter{ErrorCode: "SQL_22012"}, 100)
				return err
			},
			"workers": func() error { _, err := s.Workers(ctx); return err },
		} {
			b.Run(name+"/"+call, func(b *testing.B) {
				for b.Loop() {
					if err := do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
