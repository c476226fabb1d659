package db_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
	"exportd/export"
)

// BenchmarkCostsOfAChunk says what a chunk costs the server of the truth, step by step: bytes of WAL without full-page images, and transactions that write, of which each needs the log on
// disk. Then what it leaves in the tables. docs/scale.md reckons with these.
func BenchmarkCostsOfAChunk(b *testing.B) {
	const n = 10_000
	for _, workers := range []int{1, 16} {
		b.Run(map[int]string{1: "alone", 16: "grouped"}[workers], func(b *testing.B) {
			s := setup(b, func(c *db.Config) { c.Pool, c.Backlog = 20, 2*n })
			pool := sessions(b, s)
			ctx := context.Background()
			for b.Loop() {
				r := submission(n)
				c := costs{b: b, pool: pool, n: n}
				c.from()
				job, _, err := s.Submit(ctx, r)
				ok(b, err)
				c.step("submit")
				for left := n; left > 0; {
					debts := lease(b, s, 500)
					ok(b, s.ConfirmSent(ctx, debts))
					left -= len(debts)
				}
				c.step("relay")
				refs := r.Refs(job.ID)
				claims := make([]*export.Claim, n)
				each(n, workers, func(i int) error {
					claim, _, err := s.Claim(ctx, refs[i], uuid.NewString())
					claims[i] = claim
					return err
				}, b)
				c.step("claim")
				each(n, workers, func(i int) error { return s.Announce(ctx, claims[i], file(claims[i]).ObjectKey, facts) }, b)
				c.step("announce")
				each(n, workers, func(i int) error { return s.Done(ctx, claims[i], file(claims[i]), false) }, b)
				c.step("settle")
				var chunk, cached int64
				ok(b, pool.QueryRow(ctx, `select pg_total_relation_size('job_chunk'), pg_total_relation_size('file_cache')`).Scan(&chunk, &cached))
				b.ReportMetric(float64(chunk)/n, "chunk-B")
				b.ReportMetric(float64(cached)/n, "file-B")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func ok(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// each does n things, some at a time.
func each(n, workers int, do func(int) error, b *testing.B) {
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// costs since the last step.
type costs struct {
	b     *testing.B
	pool  *pgxpool.Pool
	n     int
	bytes int64
	txs   int64
}

func (c *costs) from() {
	ok(c.b, c.pool.QueryRow(context.Background(), `select (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&c.bytes, &c.txs))
}

func (c *costs) step(name string) {
	before := *c
	c.from()
	c.b.ReportMetric(float64(c.bytes-before.bytes)/float64(c.n), name+"-WAL-B")
	c.b.ReportMetric(float64(c.txs-before.txs)/float64(c.n), name+"-commits")
}
