package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

type claimAsk struct {
	ref     export.Ref
	claimID string
}

type claimAnswer struct {
	claim   *export.Claim
	refusal export.Refusal
}

// Claim takes the chunk for claimID (a fresh UUID) until the lease is over, and spends an attempt. The debt goes with it. Without a claim the answer
// says why; the caller may forget the chunk, its debt (if it has one) is still there.
//
// A chunk whose lease is over is taken only if it is owed a run (OweExpired): a message alone, delivered again because its consumer lost the broker, must
// not take it from an owner who could not renew for lack of a database. Claiming again with the same claimID after a lost answer gives the same claim.
func (s *Store) Claim(ctx context.Context, ref export.Ref, claimID string) (*export.Claim, export.Refusal, error) {
	a, err := s.turns.do(ctx, turnAsk{claim: &claimAsk{ref, claimID}})
	return a.claim.claim, a.claim.refusal, err
}

// The chunks are locked once each, however often the group names them: rows of held are made while others are changed, and a chunk that this very
// statement has changed could not be locked any more.
//
// The arrays of this and the other statements for groups come as sub-selects, so that the planner cannot see their lengths: it would believe that a plan
// made for one length is better than the general one, and plan anew for every group, which costs five times what a small group does.
var claimSQL = `
with want as (
    select n, job_id, chunk_key, claim_id::uuid, object_key
    from unnest((select $1::text[]), (select $2::text[]), (select $3::text[]), (select $7::text[])) with ordinality as w(job_id, chunk_key, claim_id, object_key, n)
), ` + heldSQL("status, claim_id, attempts, lock_owner, started_at, lease_until, next_retry_at, upload_id, s3_object_key, row_count, byte_count, sha256", "", "") + `, due as materialized (
    select job_id, chunk_key, w.claim_id
    from held h join want w using (job_id, chunk_key) join job j using (job_id)
    where j.ending is null and j.outcome is null
      and h.claim_id is distinct from w.claim_id and not exists (select from chunk_attempt a where a.claim_id = w.claim_id) -- an ID is used once
      and (h.status = 'PENDING'
           or h.status = 'RETRY_WAIT' and h.next_retry_at <= now()
           or h.status = 'RUNNING' and coalesce(h.lease_until, '-infinity') < now() and h.attempts < $6
              and (select true from dispatch d where d.job_id = h.job_id and d.chunk_key = h.chunk_key))
), taken as (
    update job_chunk c
    set status = 'RUNNING', attempts = c.attempts + 1, claim_id = w.claim_id, lock_owner = $4, started_at = now(), lease_until = now() + $5::interval, next_retry_at = null,
        upload_id = null, s3_object_key = null, row_count = null, byte_count = null, sha256 = null
    from due w where ` + thatChunk + `
    returning c.job_id, c.chunk_key, c.claim_id
), lost as (
    insert into chunk_attempt (claim_id, job_id, chunk_key, run, attempt, worker, started_at, outcome, error_code, error_message)
    select h.claim_id, h.job_id, h.chunk_key, j.run, h.attempts, h.lock_owner, h.started_at, 'LOST', 'WORKER_LOST',
           'the worker stopped renewing its lease'
    from held h join taken t using (job_id, chunk_key) join job j using (job_id)
    where h.status = 'RUNNING'
    on conflict do nothing
)
select w.n, coalesce(t.claim_id = w.claim_id, false), case when t.claim_id is null then h.status else 'RUNNING' end, coalesce(h.claim_id = w.claim_id, false),
       j.ending is not null, h.attempts, coalesce(h.started_at, now()), now(),
       j.created_at, j.compression, j.reuse, j.request_id, j.traceparent, j.status = 'SUBMITTED',
       case when h.status = 'RUNNING' then h.claim_id::text end, h.upload_id, h.s3_object_key, h.row_count, h.byte_count, h.sha256,
       ` + recordedColumns + `
from want w join held h using (job_id, chunk_key) join job j using (job_id) left join taken t using (job_id, chunk_key) ` + recordedJoin("$8", "$9", "true")

// heldSQL locks the chunks of want, in order of their keys, and answers them as they are then. Each is looked up by itself: the planner, which takes new tables
// and those that were empty for tiny, would rather read a whole index, and keeps to that when they have grown.
func heldSQL(columns, more, locked string) string {
	key, match := "job_id, chunk_key", ""
	if more != "" {
		key, match = key+", "+more, " and c."+more+" = w."+more
	}
	return `held as (
    select c.* from (select ` + key + ` from want group by ` + key + ` order by job_id collate "C", chunk_key collate "C") w
    cross join lateral (select job_id, chunk_key, ` + columns + ` from job_chunk c where c.job_id = w.job_id and c.chunk_key = w.chunk_key` + match + ` for update ` + locked + `) c
)`
}

// thatChunk finds chunk c of row w by its key. Against an array of one the condition is good for a look-up, and neither for a merge nor for a hash of
// all chunks. Where w is joined from several it has to be materialized, or the planner would look up half of the key.
const thatChunk = `c.job_id = any(array[w.job_id]) and c.chunk_key = w.chunk_key`

// claimMany answers the claims among asks that the ordinals name.
func (s *Store) claimMany(ctx context.Context, asks []turnAsk, ordinals []int, answers []turnAnswer) error {
	jobs, chunks, ids, objects := make([]string, len(ordinals)), make([]string, len(ordinals)), make([]string, len(ordinals)), make([]string, len(ordinals))
	for n, i := range ordinals {
		a := asks[i].claim
		jobs[n], chunks[n], ids[n], objects[n] = a.ref.JobID, a.ref.ChunkKey(), a.claimID, s.objectKey(a.ref, export.None)
		answers[i].claim.refusal = export.RefusedUnknown
	}
	var first []string
	var b pgx.Batch
	b.Queue(claimSQL, jobs, chunks, ids, s.Worker, s.Lease, s.MaxAttempts, objects, s.Bucket, s.Function).Query(func(rows pgx.Rows) error {
		var r claimRow
		_, err := pgx.ForEachRow(rows, r.targets(), func() error {
			i := ordinals[r.n-1]
			answers[i].claim = r.answer(*asks[i].claim, s.objectKey)
			if answers[i].claim.claim != nil && r.first {
				first = append(first, asks[i].claim.ref.JobID)
			}
			return nil
		})
		return err
	})
	b.Queue(paidSQL(`c.status = 'RUNNING' and c.claim_id = w.claim_id or c.status in ('DONE', 'DLQ', 'CANCELLED')`), jobs, chunks, ids)
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	s.begun(ctx, first)
	return nil
}

// begun marks the jobs as started, in a statement of its own after the claim's commit: claims never hold a job. The next claim repairs what a crash leaves
// out here.
func (s *Store) begun(ctx context.Context, jobs []string) {
	if len(jobs) == 0 {
		return
	}
	if err := s.markStarted(ctx, jobs); err != nil {
		s.Log.Warn("mark jobs as started", "error", err)
	}
}

func (s *Store) markStarted(ctx context.Context, jobs []string) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `
			update job set status = 'IN_PROGRESS', started_at = coalesce(started_at, now()), updated_at = now()
			where job_id in (select job_id from job where job_id = any($1) and status = 'SUBMITTED' order by job_id for update)`, jobs)
		return err
	})
}

// paidSQL deletes the debts of chunks that were claimed or have ended, for which guard holds. It is a statement of its own, after the one that locked
// and changed the chunks: that one cannot see a debt that the sweeper wrote while it waited for the lock.
//
// The debts are found by their keys: by the place that a look before had found, one that a relay has just rewritten would be missed. A plain join would read the whole
// index: a queue is mostly empty, so the planner takes it for tiny, but while a long transaction anywhere in the database keeps dead rows, the index holds every debt
// that was paid since.
func paidSQL(guard string) string {
	return `
delete from dispatch c using (
    select w.job_id, w.chunk_key
    from (
        select ($1::text[])[n] as job_id, ($2::text[])[n] as chunk_key, ($3::uuid[])[n] as claim_id from generate_series(1, cardinality($1::text[])) n
        order by ($1::text[])[n] collate "C", ($2::text[])[n] collate "C"
    ) w
    cross join lateral (select from job_chunk c where c.job_id = w.job_id and c.chunk_key = w.chunk_key and (` + guard + `) offset 0) c
    offset 0
) w where ` + thatChunk
}

// claimRow is one row of claimSQL.
type claimRow struct {
	n                   int
	taken               bool
	status              export.ChunkStatus
	mine, ending        bool
	attempts            int
	heldStarted, now    time.Time
	job                 export.ClaimJob
	first               bool
	prevClaim           *string
	uploadID, objectKey *string
	prevRows, prevBytes *int64
	prevSHA256          *string
	recorded            recordedRow
}

func (r *claimRow) targets() []any {
	return append([]any{&r.n, &r.taken, &r.status, &r.mine, &r.ending, &r.attempts, &r.heldStarted, &r.now,
		&r.job.CreatedAt, &r.job.Compression, &r.job.Reuse, &r.job.RequestID, &r.job.Traceparent, &r.first,
		&r.prevClaim, &r.uploadID, &r.objectKey, &r.prevRows, &r.prevBytes, &r.prevSHA256}, r.recorded.targets()...)
}

func (r *claimRow) answer(a claimAsk, objectKey func(export.Ref, export.Compression) string) claimAnswer {
	claim := export.Claim{ID: a.claimID, Ref: a.ref, Job: r.job, ObjectKey: objectKey(a.ref, r.job.Compression), Recorded: r.recorded.file()}
	switch {
	case r.taken:
		claim.Attempt, claim.StartedAt, claim.Previous = r.attempts+1, r.now, r.previous(claim.ObjectKey)
	case r.mine && r.status == export.Running:
		claim.Attempt, claim.StartedAt = r.attempts, r.heldStarted
	case !r.status.Open():
		return claimAnswer{refusal: export.RefusedEnded}
	case r.ending:
		return claimAnswer{refusal: export.RefusedEnding}
	case r.status == export.Running:
		return claimAnswer{refusal: export.RefusedRunning}
	default: // not due; or the claim was given back before, and is not taken again
		return claimAnswer{refusal: export.RefusedWaiting}
	}
	return claimAnswer{claim: &claim}
}

// previous is the claim that was overtaken, if one was.
func (r *claimRow) previous(objectKey string) *export.Overtaken {
	if r.prevClaim == nil {
		return nil
	}
	o := &export.Overtaken{ClaimID: *r.prevClaim, StartedAt: r.heldStarted, ObjectKey: objectKey}
	if r.objectKey != nil {
		o.ObjectKey = *r.objectKey
	}
	if r.uploadID != nil {
		o.UploadID = *r.uploadID
	}
	if r.prevSHA256 != nil {
		o.Facts = &export.Facts{Rows: *r.prevRows, Bytes: *r.prevBytes, SHA256: *r.prevSHA256}
	}
	return o
}

var renewSQL = `
with want as (
    select job_id, chunk_key, claim_id::uuid from unnest((select $1::text[]), (select $2::text[]), (select $3::text[])) as w(job_id, chunk_key, claim_id)
), ` + heldSQL("status", "claim_id", "skip locked") + `, renewed as (
    update job_chunk c set lease_until = now() + $4::interval from held w
    where ` + thatChunk + ` and w.status = 'RUNNING'
    returning c.job_id, c.chunk_key
)
select w.claim_id::text, c.status, r.job_id is not null
from want w join job_chunk c on ` + thatChunk + ` and c.claim_id = w.claim_id
left join renewed r on r.job_id = w.job_id and r.chunk_key = w.chunk_key`

// Renew prolongs the claims, all in one statement, and answers per claim ID.
func (s *Store) Renew(ctx context.Context, claims []*export.Claim) (map[string]export.Renewal, error) {
	jobs, chunks, ids := make([]string, len(claims)), make([]string, len(claims)), make([]string, len(claims))
	for i, c := range claims {
		jobs[i], chunks[i], ids[i] = c.JobID, c.ChunkKey(), c.ID
	}
	var answers map[string]export.Renewal
	err := again(ctx, func(ctx context.Context) error {
		answers = make(map[string]export.Renewal, len(claims))
		rows, err := s.pool.Query(ctx, renewSQL, jobs, chunks, ids, s.Lease)
		if err != nil {
			return err
		}
		var id string
		var status export.ChunkStatus
		var renewed bool
		_, err = pgx.ForEachRow(rows, []any{&id, &status, &renewed}, func() error {
			switch {
			case renewed:
				answers[id] = export.Renewed
			case status == export.Running:
				answers[id] = export.RenewalLocked
			}
			return nil
		})
		return err
	})
	return answers, err
}

// EndingJobs says which of the jobs are ending or ended: their chunks must stop.
func (s *Store) EndingJobs(ctx context.Context, jobs []string) (ending []string, err error) {
	rows, err := s.pool.Query(ctx, `select job_id from job where job_id = any($1) and (ending is not null or completed_at is not null)`, jobs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
