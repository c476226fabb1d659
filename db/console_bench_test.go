package db_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/export"
)

// BenchmarkConsole times what the console asks for, with 50 000 jobs of 2 000 000 chunks and, beyond what history makes, 20 000 dead letters with long errors:
// 10 000 of one job and one of each of the newest failed jobs.
func BenchmarkConsole(b *testing.B) {
	s := setup(b)
	one, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	one.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), one)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	large := history(b, pool, 50_000)
	const broken = "J20260101_000001"
	exec(b, pool, `update job_chunk set status = 'DLQ', completed_at = coalesce(completed_at, now()), etag = null, s3_object_key = null, sha256 = null, error_code = 'SQL_P0001',
		error_message = 'row ' || chunk_key || ' is cursed (SQLSTATE P0001); where: ' || repeat(md5(chunk_key), 60)
		where job_id in (select job_id from job where job_id <> $1 order by job_id desc limit 250)`, large)
	exec(b, pool, `insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, claim_id, completed_at, error_code, error_message)
		select $1, 'key=BAD:date=' || to_char(date '2000-01-01' + n, 'YYYYMMDD'), 'BAD', date '2000-01-01' + n, 'DLQ', 3, gen_random_uuid(), now(), 'SQL_P0001',
			'row ' || n || ' is cursed (SQLSTATE P0001); where: ' || repeat(md5(n::text), 60) from generate_series(1, 10000) n`, broken)
	exec(b, pool, `vacuum analyze job_chunk`)
	ctx := context.Background()
	for _, c := range []struct {
		name string
		ask  func() error
	}{
		{"counts", func() error { _, err := s.Counts(ctx, ""); return err }},
		{"counts/tenant", func() error { _, err := s.Counts(ctx, "t3"); return err }},
		{"activity", func() error { _, err := s.Activity(ctx, ""); return err }},
		{"activity/tenant", func() error { _, err := s.Activity(ctx, "t3"); return err }},
		{"cells", func() error { _, err := s.Cells(ctx, "", large); return err }},
		{"failures/none", func() error { _, err := s.Failures(ctx, "", large); return err }},
		{"failures/all", func() error { _, err := s.Failures(ctx, "", broken); return err }},
		{"dead", func() error { _, _, err := s.DeadLetters(ctx, export.RedriveFilter{}); return err }},
		{"dead/tenant", func() error {
			_, _, err := s.DeadLetters(ctx, export.RedriveFilter{JobFilter: export.JobFilter{Tenant: "t3"}})
			return err
		}},
		{"dead/code", func() error {
			_, _, err := s.DeadLetters(ctx, export.RedriveFilter{ErrorCode: "SQL_22012"})
			return err
		}},
		{"dead/nocode", func() error { _, _, err := s.DeadLetters(ctx, export.RedriveFilter{ErrorCode: "NONE"}); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if err := c.ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
