package db_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
	"exportd/export"
)

// BenchmarkSubmit compares the submission of 10 000 chunks with the least that any design pays: the rows of job_chunk alone.
func BenchmarkSubmit(b *testing.B) {
	const n = 10_000
	s := setup(b)
	pool := sessions(b, s)
	r := submission(n)
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := s.Submit(context.Background(), r); err != nil {
				b.Fatal(err)
			}
		}
	})
	bare := 0
	each := func(put func(job string, refs []export.Ref) error) func(*testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				bare++
				job := fmt.Sprintf("J20260101_%06d", bare)
				if err := put(job, r.Refs(job)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("copy", each(func(job string, refs []export.Ref) error {
		_, err := pool.CopyFrom(context.Background(), pgx.Identifier{"job_chunk"}, []string{"job_id", "chunk_key", "key", "effective_date"},
			pgx.CopyFromSlice(n, func(i int) ([]any, error) {
				return []any{job, refs[i].ChunkKey(), refs[i].Key, refs[i].Date.Time()}, nil
			}))
		return err
	}))
	b.Run("unnest", each(func(job string, refs []export.Ref) error {
		chunkKeys, keys, dates := make([]string, n), make([]string, n), make([]time.Time, n)
		for i, ref := range refs {
			chunkKeys[i], keys[i], dates[i] = ref.ChunkKey(), ref.Key, ref.Date.Time()
		}
		_, err := pool.Exec(context.Background(), `insert into job_chunk (job_id, chunk_key, key, effective_date)
			select $1, * from unnest($2::text[], $3::text[], $4::date[])`, job, chunkKeys, keys, dates)
		return err
	}))
}

// past fills the tables with what a fleet leaves behind, and with what it still has to do.
func past(b testing.TB, pool *pgxpool.Pool, finished, openJobs, pending int) {
	b.Helper()
	exec(b, pool, `insert into job (job_id, tenant, status, outcome, pinned_at, request_hash, priority, on_failure, reuse, compression, total, done, failed, cancelled, completed_at, created_at)
		select 'J20200101_' || lpad(n::text, 6, '0'), 't', 'COMPLETED', 'COMPLETED', now(), '', 4, 'CONTINUE', true, 'NONE', 1000, 1000, 0, 0, now(), now() - interval '1 day'
		from generate_series(1, $1::int / 1000) n`, finished)
	exec(b, pool, `insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, claim_id, completed_at, s3_object_key, row_count, byte_count, sha256, etag)
		select 'J20200101_' || lpad((n / 1000 + 1)::text, 6, '0'), 'key=K' || n || ':date=20200101', 'K' || n, '2020-01-01', 'DONE', 1, gen_random_uuid(), now(),
		       'exports/2020/01/01/K' || n || '_20200101.csv', 1, 1, repeat('a', 64), '"' || md5(n::text) || '"'
		from generate_series(0, $1::int - 1) n`, finished)
	if openJobs > 0 {
		exec(b, pool, `insert into job (job_id, tenant, status, request_hash, priority, on_failure, reuse, compression, total)
			select 'J20210101_' || lpad(n::text, 6, '0'), 't', 'IN_PROGRESS', '', 4, 'CONTINUE', true, 'NONE', $2::int / $1::int from generate_series(1, $1::int) n`, openJobs, pending)
		exec(b, pool, `insert into job_chunk (job_id, chunk_key, key, effective_date)
			select 'J20210101_' || lpad((n % $1::int + 1)::text, 6, '0'), 'key=K' || n || ':date=20210101', 'K' || n, '2021-01-01' from generate_series(0, $2::int - 1) n`, openJobs, pending)
		exec(b, pool, `insert into dispatch (job_id, chunk_key, state, rank) select job_id, chunk_key, 'READY', row_number() over (partition by job_id) * 504 from job_chunk where status = 'PENDING'`)
	}
	exec(b, pool, `vacuum analyze job, job_chunk, dispatch`)
}

// BenchmarkClaims takes chunks through claim, announcement and settlement in groups, on a table with a million finished chunks.
func BenchmarkClaims(b *testing.B) {
	s := setup(b, func(c *db.Config) { c.Pool = 16 })
	pool := sessions(b, s)
	past(b, pool, 1_000_000, 0, 0)
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			var refs []export.Ref
			for range (b.N + 9999) / 10000 {
				r := submission(10_000)
				job, _, err := s.Submit(context.Background(), r)
				if err != nil {
					b.Fatal(err)
				}
				refs = append(refs, r.Refs(job.ID)...)
			}
			next := make(chan export.Ref, b.N)
			for _, ref := range refs[:b.N] {
				next <- ref
			}
			close(next)
			b.ResetTimer()
			before := serverCPU(b, pool)
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for ref := range next {
						c, _, err := s.Claim(context.Background(), ref, uuid.NewString())
						if err != nil || c == nil {
							b.Error(err)
							return
						}
						if err := s.Announce(context.Background(), c, file(c).ObjectKey, facts); err != nil {
							b.Error(err)
						}
						if err := s.Done(context.Background(), c, file(c), false); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "chunks/s")
			b.ReportMetric(float64((serverCPU(b, pool)-before).Microseconds())/float64(b.N), "server-us/chunk")
		})
	}
}

// serverCPU is the CPU time that the backends of this database have taken, where the server runs on this machine.
func serverCPU(b *testing.B, pool *pgxpool.Pool) (sum time.Duration) {
	b.Helper()
	rows, err := pool.Query(context.Background(), `select pid from pg_stat_activity where datname = current_database()`)
	if err != nil {
		b.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 13 {
			continue
		}
		for _, ticks := range fields[11:13] { // user and system, in 1/100 s
			n, _ := strconv.Atoi(ticks)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// BenchmarkSweeps times what every process does every few seconds, with 5 000 open jobs and 100 000 chunks that wait.
func BenchmarkSweeps(b *testing.B) {
	s := setup(b, func(c *db.Config) { c.Backlog = 1 << 20 })
	pool := sessions(b, s)
	past(b, pool, 1_000_000, 5_000, 100_000)
	ctx := context.Background()
	for name, do := range map[string]func() error{
		"OweExpired":      func() error { _, err := s.OweExpired(ctx); return err },
		"Expired":         func() error { _, err := s.Expired(ctx); return err },
		"CancelLeftovers": func() error { _, err := s.CancelLeftovers(ctx); return err },
		"Unfinished":      func() error { _, err := s.Unfinished(ctx, time.Minute); return err },
		"Expire":          func() error { _, err := s.Expire(ctx, 365*24*time.Hour); return err },
		"NextDue":         func() error { _, err := s.NextDue(ctx); return err },
		"LeaseDebts":      func() error { _, err := s.LeaseDebts(ctx, 64); return err },
		"TakeDebts":       func() error { _, err := s.TakeDebts(ctx, 8, time.Hour); return err },
		"Pin":             func() error { _, err := s.Pin(ctx, "J20210101_000001"); return err },
		"Job":             func() error { _, err := s.Job(ctx, "", "J20210101_000001"); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
