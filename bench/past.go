package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// How a consumer does beside what its predecessors have left.
const (
	pastName  = "full tables"
	pastEmpty = "tables nearly empty"
	pastFull  = "tables full"
)

// pastSQL makes a history of jobs of 100 chunks each, all of which have ended. $1 is the number of jobs.
var pastSQL = []string{`
insert into job (job_id, tenant, status, outcome, pinned_at, request_hash, priority, on_failure, reuse, compression, total, done, failed, cancelled, created_at, started_at, completed_at)
select 'J20200101_' || lpad(n::text, 6, '0'), 't', 'COMPLETED', 'COMPLETED', now(), '', 4, 'CONTINUE', true, 'NONE', 100, 100, 0, 0, t, t, t
from generate_series(1, $1::int) n cross join lateral (select now() - make_interval(mins => $1::int - n) as t) t`, `
insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, claim_id, lock_owner, started_at, completed_at, s3_object_key, row_count, byte_count, sha256, etag)
select 'J20200101_' || lpad(n::text, 6, '0'), 'key=' || key || ':date=20200101', key, '2020-01-01', 'DONE', 1, gen_random_uuid(), 'host/1/w', now(), now(),
       'exports/2020/01/01/' || key || '_20200101.csv', 10, 1140, repeat('a', 64), '"' || md5(key) || '"'
from generate_series(1, $1::int) n cross join generate_series(1, 100) c cross join lateral (select 'K' || n || '-' || c as key) k`, `
insert into file_cache (bucket, object_key, export_function, row_count, byte_count, sha256, etag, claim_id, claim_started_at, job_id)
select 'past', s3_object_key, 'export_rows', row_count, byte_count, sha256, etag, claim_id, started_at, job_id from job_chunk where job_id like 'J20200101_%' and $1::int > 0`,
}

// past takes rounds with the tables as they are, fills them, and takes the same rounds again.
func (b *bench) past(ctx context.Context) error {
	t := throughput{name: pastName, warmSet: "TINY", set: "TINY", chunks: b.sizes.Tiny, concurrency: 16}
	rounds := func(variant string) error {
		for round := range b.rounds {
			if err := b.settle(ctx); err != nil {
				return err
			}
			r := result{Workload: t.name, Variant: variant, Chunks: t.chunks, Round: round, Load: load()}
			in, err := b.startExportd(ctx, exportdDB, fmt.Sprintf("bench/%d", len(b.results)), t.concurrency)
			if err != nil {
				return err
			}
			if _, err = in.work(ctx, t.warmUp()); err == nil {
				err = b.watch(&r, in.own(), func() (took time.Duration, err error) { return in.work(ctx, t.work()) })
			}
			in.stop()
			if err != nil {
				return err
			}
			b.results = append(b.results, r)
			fmt.Println(r)
		}
		return nil
	}
	if err := rounds(pastEmpty); err != nil {
		return err
	}
	fmt.Printf("filling the tables with %d jobs of 100 chunks\n", b.sizes.PastJobs)
	for _, sql := range pastSQL {
		if _, err := b.conn.Exec(ctx, sql, b.sizes.PastJobs); err != nil {
			return err
		}
	}
	return rounds(pastFull)
}

func (b *bench) pastTable(s *strings.Builder) {
	if len(b.of(pastName, pastFull)) == 0 {
		return
	}
	fmt.Fprintf(s, "\n**Beside %d finished chunks of %d jobs** (10-row chunks, concurrency 16, from the database, %d a run)\n\n", b.sizes.PastJobs*100, b.sizes.PastJobs, b.sizes.Tiny)
	s.WriteString("| | chunks/s | of nearly empty tables | CPU ms a chunk, PostgreSQL |\n|---|---|---|---|\n")
	for _, variant := range []string{pastEmpty, pastFull} {
		runs := b.of(pastName, variant)
		fmt.Fprintf(s, "| %s | %s | %s | %s |\n", variant, short(median(each(runs, result.rate))), b.ratio(pastName, variant, pastEmpty, result.rate),
			short(median(each(runs, func(r result) float64 { return r.cpu("postgres") }))))
	}
}
