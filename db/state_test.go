package db_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"exportd/db"
	"exportd/export"
)

func TestTheStateCountsWhatIsOpen(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(5))
	id, more := submit(t, s, submission(3))
	must(t, s.Cancel(t.Context(), "", id))
	end(t, s, id)
	must(t, s.Heartbeat(t.Context(), "host", "v", 16, 0))

	claim(t, s, refs[0])
	must(t, s.Retry(t.Context(), claim(t, s, refs[1]), &export.Failure{Class: export.Transient, Code: "X", Err: context.Canceled}, time.Hour))
	sent := lease(t, s, 1)
	must(t, s.ConfirmSent(t.Context(), sent))
	must(t, s.ParkAsItCame(t.Context(), export.Message{Body: []byte("x")}))
	exec(t, pool, `insert into outbox (destination, headers, body, created_at) values ('https://receiver.example/x', '{}', '', now() - interval '1 h')`)
	exec(t, pool, `update dispatch set owed_at = now() - interval '2 h' where chunk_key = $1`, refs[4].ChunkKey())
	exec(t, pool, `update dispatch set sent_at = now() - interval '3 h' where chunk_key = $1`, sent[0].ChunkKey())

	got, err := s.State(t.Context())
	must(t, err)
	want := db.State{
		Jobs: map[export.JobStatus]int64{export.InProgress: 1}, Running: 1,
		Debts:   map[string]db.Waiting{"READY": {2, 2 * time.Hour}, "SENT": {1, 3 * time.Hour}, "WAIT": {1, 0}},
		Outbox:  map[string]db.Waiting{export.OutboxParking: {1, 0}, "webhook": {1, time.Hour}},
		Workers: 1, Concurrency: 16,
	}
	about := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < time.Minute })
	if diff := cmp.Diff(want, got, about, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("of %d and %d chunks: %s", len(refs), len(more), diff)
	}
}

func TestTheStateIsReadWithoutLookingAtWhatHasEnded(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	exec(t, pool, `insert into job (job_id, tenant, status, outcome, pinned_at, request_hash, priority, on_failure, reuse, compression, total, done, failed, cancelled, completed_at)
		select 'J20200101_' || n, 't', 'COMPLETED', 'COMPLETED', now(), '', 4, 'CONTINUE', true, 'NONE', 100, 100, 0, 0, now() from generate_series(100001, 100500) n`)
	exec(t, pool, `insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, claim_id, completed_at, s3_object_key, row_count, byte_count, sha256, etag)
		select 'J20200101_' || n, 'key=K:date=' || c, 'K', '2020-01-01', 'DONE', 1, gen_random_uuid(), now(), 'o', 1, 1, '', '' from generate_series(100001, 100500) n, generate_series(20200001, 20200100) c`)
	exec(t, pool, `analyze job, job_chunk`)
	submit(t, s, submission(5))
	read := func(relation string) (n int64) {
		must(t, pool.QueryRow(t.Context(), `select seq_tup_read + (select sum(idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid) from pg_stat_user_tables t
			where relname = $1`, relation).Scan(&n))
		return n
	}
	before := map[string]int64{"job": read("job"), "job_chunk": read("job_chunk")}
	// The statistics come late, and those of one transaction at once: the look at a table that only it reads tells when.
	exec(t, pool, `insert into worker (worker_id, host, version, concurrency) values ('w', 'h', 'v', 1)`)
	deadline := time.Now().Add(30 * time.Second)
	for read("worker") == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the statistics of the server do not come")
		}
		_, err := s.State(t.Context())
		must(t, err)
		time.Sleep(100 * time.Millisecond)
	}
	for relation, n := range before {
		if now := read(relation); now-n > 400 {
			t.Errorf("%d rows of %s were read", now-n, relation)
		}
	}
}
