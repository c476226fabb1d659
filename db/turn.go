package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// turnAsk is what a worker asks between two attempts: to end the claim that it had, or for the next one. One of the two is set.
type turnAsk struct {
	done  *doneAsk
	claim *claimAsk
}

type turnAnswer struct {
	done  bool
	claim claimAnswer
}

// isRunning says it so that the planner does not think of the index of running chunks, dead entries and all: see announceSQL.
const isRunning = `case c.status when 'RUNNING' then true else false end`

// turnSQL settles the claims that are current and claims the chunks that wait: what nearly all requests want, in one statement that finds each chunk once
// and changes them in the order of locking. What it leaves to those that look closer: chunks whose lease is over or that are owed a run all the same (the debt has to
// go), the second request for a chunk in one turn, what was done before, and all that is to be refused.
//
// What the attempt needs of the job and of the recorded file comes with a claim. The facts that a request to claim lacks become null in the row. The debt of a claimed
// chunk is deleted if the statement could see it: not if it was written while the statement waited for the chunk.
var turnSQL = `
with turned as (
    update job_chunk c
    set status = case when w.done then 'DONE' else 'RUNNING' end, claim_id = w.claim_id, attempts = c.attempts + (not w.done)::int,
        lock_owner = case when w.done then c.lock_owner else $13 end, started_at = case when w.done then c.started_at else now() end,
        lease_until = case when not w.done then now() + $14::interval end, completed_at = case when w.done then now() end, next_retry_at = null, upload_id = null,
        s3_object_key = case when w.done then w.object_key end, row_count = w.row_count, byte_count = w.byte_count, sha256 = w.sha256, etag = w.etag, reused = w.reused,
        error_code = case when not w.done then c.error_code end, error_message = case when not w.done then c.error_message end
    from (
        select n, ($1::text[])[n] as job_id, ($2::text[])[n] as chunk_key, ($3::uuid[])[n] as claim_id, ($8::text[])[n] is not null as done, ($4::text[])[n] as object_key, ($5::bigint[])[n] as row_count,
            ($6::bigint[])[n] as byte_count, ($7::text[])[n] as sha256, ($8::text[])[n] as etag, ($9::boolean[])[n] as reused, ($10::uuid[])[n] as file_claim, ($11::timestamptz[])[n] as file_started
        from generate_series(1, cardinality($1::text[])) n
        order by ($1::text[])[n] collate "C", ($2::text[])[n] collate "C", n
    ) w cross join lateral (select * from job j where j.job_id = w.job_id offset 0) j ` + recordedJoin("$12", "$15", "not w.done") + `
    where ` + thatChunk + ` and case
        when w.done then c.claim_id = w.claim_id and ` + isRunning + ` and c.lease_until > now() + interval '1 s'
             and not exists (select from dispatch d where d.job_id = w.job_id and d.chunk_key = w.chunk_key offset 0)
        else j.ending is null and j.outcome is null
             and c.claim_id is distinct from w.claim_id and not exists (select from chunk_attempt a where a.claim_id = w.claim_id offset 0) -- an ID is used once
             and case c.status when 'PENDING' then true when 'RETRY_WAIT' then c.next_retry_at <= now() else false end
        end
    returning w.n, w.done, w.job_id, w.chunk_key, w.object_key, w.row_count, w.byte_count, w.sha256, w.etag, w.file_claim, w.file_started,
        c.attempts, c.started_at, j.created_at, j.compression, j.reuse, j.request_id, j.traceparent, j.status = 'SUBMITTED' as first,
        f.object_key as key_0, f.row_count as rows_0, f.byte_count as bytes_0, f.sha256 as sha256_0, f.etag as etag_0, f.claim_id::text as claim_0, f.claim_started_at as started_0
), paid as (
    delete from dispatch c using turned w where not w.done and ` + thatChunk + ` returning w.n
), cached as (
    insert into file_cache as f (` + cachedColumns + `)
    select distinct on (object_key) $12, object_key, $15, row_count, byte_count, sha256, etag, file_claim, file_started, job_id
    from turned where file_claim is not null order by object_key, file_started desc` + cachedUnlessOlder + `
)
select n, n in (select n from paid), attempts, started_at, created_at, compression, reuse, request_id, traceparent, first, key_0, rows_0, bytes_0, sha256_0, etag_0, claim_0, started_0
from turned`

// claimedSQL deletes the debts that turnSQL did not see, of chunks that it claimed.
var claimedSQL = paidSQL(`c.claim_id = w.claim_id and ` + isRunning)

// turnAll settles and claims whatever waits.
func (s *Store) turnAll(ctx context.Context, asks []turnAsk) ([]turnAnswer, error) {
	answers := make([]turnAnswer, len(asks))
	if !s.careful {
		if err := s.turn(ctx, asks, answers); err != nil {
			return nil, err
		}
	}
	var dones, claims []int // ordinals of what is left
	for i, a := range answers {
		switch {
		case asks[i].done != nil && !a.done:
			dones = append(dones, i)
		case asks[i].claim != nil && a.claim.claim == nil:
			claims = append(claims, i)
		}
	}
	if len(dones) > 0 {
		if err := s.doneMany(ctx, asks, dones, answers); err != nil {
			return nil, err
		}
	}
	if len(claims) > 0 {
		if err := s.claimMany(ctx, asks, claims, answers); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// turn is turnSQL, and what it could not see. It answers those whose wish is met.
func (s *Store) turn(ctx context.Context, asks []turnAsk, answers []turnAnswer) error {
	size := len(asks)
	w := newColumns(size)
	keys, nrows, nbytes, sums, etags, reused := make([]string, size), make([]*int64, size), make([]*int64, size), make([]*string, size), make([]*string, size), make([]bool, size)
	fileClaims, fileStarts := make([]*string, size), make([]*time.Time, size)
	for i, a := range asks {
		if c := a.claim; c != nil {
			w.jobs[i], w.chunks[i], w.claims[i], keys[i] = c.ref.JobID, c.ref.ChunkKey(), c.claimID, s.objectKey(c.ref, export.None)
			continue
		}
		f := &a.done.file
		w.set(i, a.done.claim)
		keys[i], nrows[i], nbytes[i], sums[i], etags[i], reused[i] = f.ObjectKey, &f.Rows, &f.Bytes, &f.SHA256, &f.ETag, a.done.reused
		fileClaims[i], fileStarts[i] = a.done.madeBy()
	}
	rows, err := s.pool.Query(ctx, turnSQL, w.jobs, w.chunks, w.claims, keys, nrows, nbytes, sums, etags, reused, fileClaims, fileStarts, s.Bucket, s.Worker, s.Lease, s.Function)
	if err != nil {
		return err
	}
	var first []string
	var unpaid columns
	var r turnRow
	if _, err := pgx.ForEachRow(rows, r.targets(), func() error {
		i := r.n - 1
		a := asks[i].claim
		if a == nil {
			answers[i].done = true
			return nil
		}
		answers[i].claim.claim = &export.Claim{ID: a.claimID, Ref: a.ref, Attempt: r.attempts, StartedAt: r.startedAt, Job: r.job,
			ObjectKey: s.objectKey(a.ref, r.job.Compression), Recorded: r.recorded.file()}
		if r.first {
			first = append(first, a.ref.JobID)
		}
		if !r.paid {
			unpaid.add(w, i)
		}
		return nil
	}); err != nil {
		return err
	}
	if len(unpaid.jobs) > 0 {
		if _, err := s.pool.Exec(ctx, claimedSQL, unpaid.jobs, unpaid.chunks, unpaid.claims); err != nil {
			return err
		}
	}
	s.begun(ctx, first)
	return nil
}

// turnRow is one row of turnSQL.
type turnRow struct {
	n, attempts int
	paid        bool
	startedAt   time.Time
	job         export.ClaimJob
	first       bool
	recorded    recordedRow
}

func (r *turnRow) targets() []any {
	return append([]any{&r.n, &r.paid, &r.attempts, &r.startedAt, &r.job.CreatedAt, &r.job.Compression, &r.job.Reuse, &r.job.RequestID, &r.job.Traceparent, &r.first}, r.recorded.targets()...)
}

// madeBy is the claim that made the file, as far as it is known.
func (a doneAsk) madeBy() (claimID *string, started *time.Time) {
	if a.file.ClaimID == "" || a.file.ClaimStartedAt.IsZero() {
		return nil, nil
	}
	return &a.file.ClaimID, &a.file.ClaimStartedAt
}
