package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

type announceAsk struct {
	claim *export.Claim
	key   string
	facts export.Facts
}

// Announce confirms the claim and records what its object will be, before the last step of the upload. It also renews the lease.
func (s *Store) Announce(ctx context.Context, c *export.Claim, objectKey string, facts export.Facts) error {
	return staleUnless(s.announces.do(ctx, announceAsk{c, objectKey, facts}))
}

func staleUnless(ok bool, err error) error {
	if err == nil && !ok {
		return export.ErrStale
	}
	return err
}

// The state is looked at after the lock: naming it before would let the planner scan the index of running chunks, dead entries and all.
var announceSQL = `
with want as (
    select n, job_id, chunk_key, claim_id::uuid, object_key, row_count, byte_count, sha256
    from unnest((select $1::text[]), (select $2::text[]), (select $3::text[]), (select $4::text[]), (select $5::bigint[]), (select $6::bigint[]), (select $7::text[]))
         with ordinality as w(job_id, chunk_key, claim_id, object_key, row_count, byte_count, sha256, n)
), ` + heldSQL("claim_id, status", "claim_id", "") + `, mine as materialized (
    select w.* from held h join want w using (job_id, chunk_key, claim_id) where h.status = 'RUNNING'
), done as (
    update job_chunk c ` + announceSet("$8") + `
    from mine w where ` + thatChunk + `
)
select n from want join held using (job_id, chunk_key, claim_id) where status = 'RUNNING'`

// announceSet records the facts of row w in chunk c.
func announceSet(lease string) string {
	return `set s3_object_key = w.object_key, row_count = w.row_count, byte_count = w.byte_count, sha256 = w.sha256, lease_until = now() + ` + lease + `::interval`
}

func (s *Store) announceAll(ctx context.Context, asks []announceAsk) ([]bool, error) {
	w := newColumns(len(asks))
	keys, nrows, nbytes, sums := make([]string, len(asks)), make([]int64, len(asks)), make([]int64, len(asks)), make([]string, len(asks))
	for i, a := range asks {
		w.set(i, a.claim)
		keys[i], nrows[i], nbytes[i], sums[i] = a.key, a.facts.Rows, a.facts.Bytes, a.facts.SHA256
	}
	rows, err := s.pool.Query(ctx, announceSQL, w.jobs, w.chunks, w.claims, keys, nrows, nbytes, sums, s.Lease)
	return marks(len(asks), rows, err)
}

// RecordUpload notes the claim's multipart upload, so that whoever takes over can abort it. Call it before the first part.
func (s *Store) RecordUpload(ctx context.Context, c *export.Claim, objectKey, uploadID string) error {
	return again(ctx, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `update job_chunk set upload_id = $4, s3_object_key = $5
			where job_id = $1 and chunk_key = $2 and claim_id = $3::uuid and status = 'RUNNING'`, c.JobID, c.ChunkKey(), c.ID, uploadID, objectKey)
		return staleUnless(tag.RowsAffected() == 1, err)
	})
}

type doneAsk struct {
	claim  *export.Claim
	file   export.File
	reused bool
}

// Done ends the claim: the chunk is answered by the file. reused says that an earlier chunk made it. A current claim may be settled although its
// lease is over or its job is ending: the file is there.
func (s *Store) Done(ctx context.Context, c *export.Claim, f export.File, reused bool) error {
	a, err := s.turns.do(ctx, turnAsk{done: &doneAsk{c, f, reused}})
	return staleUnless(a.done, err)
}

// A row of file_cache moves to the claim that began last, so that a late settlement cannot bring back an older file's facts.
const (
	cachedColumns     = `bucket, object_key, export_function, row_count, byte_count, sha256, etag, claim_id, claim_started_at, job_id`
	cachedUnlessOlder = `
    on conflict (bucket, object_key, export_function) do update
    set row_count = excluded.row_count, byte_count = excluded.byte_count, sha256 = excluded.sha256, etag = excluded.etag, claim_id = excluded.claim_id,
        claim_started_at = excluded.claim_started_at, job_id = excluded.job_id, last_generated_at = now()
    where f.claim_started_at < excluded.claim_started_at`
)

var doneSQL = `
with want as (
    select n, job_id, chunk_key, claim_id::uuid, object_key, row_count, byte_count, sha256, etag, reused, file_claim::uuid, file_started
    from unnest((select $1::text[]), (select $2::text[]), (select $3::text[]), (select $4::text[]), (select $5::bigint[]), (select $6::bigint[]), (select $7::text[]), (select $8::text[]), (select $9::boolean[]), (select $10::text[]), (select $11::timestamptz[]))
         with ordinality as w(job_id, chunk_key, claim_id, object_key, row_count, byte_count, sha256, etag, reused, file_claim, file_started, n)
), ` + heldSQL("claim_id, status", "claim_id", "") + `, mine as materialized (
    select w.* from held h join want w using (job_id, chunk_key, claim_id) where h.status = 'RUNNING'
), ended as (
    update job_chunk c
    set status = 'DONE', completed_at = now(), lease_until = null, upload_id = null, reused = w.reused, error_code = null, error_message = null,
        s3_object_key = w.object_key, row_count = w.row_count, byte_count = w.byte_count, sha256 = w.sha256, etag = w.etag
    from mine w where ` + thatChunk + `
    returning w.*
), cached as (
    insert into file_cache as f (` + cachedColumns + `)
    select distinct on (object_key) $12, object_key, $13, row_count, byte_count, sha256, etag, file_claim, file_started, job_id
    from ended where file_claim is not null order by object_key, file_started desc` + cachedUnlessOlder + `
)
select n from want join held using (job_id, chunk_key, claim_id) where status in ('RUNNING', 'DONE')`

// doneMany answers the settlements among asks that the ordinals name.
func (s *Store) doneMany(ctx context.Context, asks []turnAsk, ordinals []int, answers []turnAnswer) error {
	size := len(ordinals)
	w := newColumns(size)
	keys, sums, etags := make([]string, size), make([]string, size), make([]string, size)
	nrows, nbytes, reused := make([]int64, size), make([]int64, size), make([]bool, size)
	fileClaims, fileStarts := make([]*string, size), make([]*time.Time, size)
	for n, i := range ordinals {
		a := asks[i].done
		w.set(n, a.claim)
		keys[n], sums[n], etags[n] = a.file.ObjectKey, a.file.SHA256, a.file.ETag
		nrows[n], nbytes[n], reused[n] = a.file.Rows, a.file.Bytes, a.reused
		fileClaims[n], fileStarts[n] = a.madeBy()
	}
	met, err := s.settle(ctx, w, export.Done, doneSQL, w.jobs, w.chunks, w.claims, keys, nrows, nbytes, sums, etags, reused, fileClaims, fileStarts, s.Bucket, s.Function)
	for n, i := range ordinals[:len(met)] {
		answers[i].done = met[n]
	}
	return err
}

// settle runs sql, which answers the ordinals of the requests that it met, and deletes the debts of those whose chunk is now in the state to.
func (s *Store) settle(ctx context.Context, w columns, to export.ChunkStatus, sql string, args ...any) (met []bool, err error) {
	var b pgx.Batch
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		met, err = marks(len(w.claims), rows, nil)
		return err
	})
	b.Queue(paidSQL(`c.claim_id = w.claim_id and c.status = $4`), w.jobs, w.chunks, w.claims, to)
	err = s.pool.SendBatch(ctx, &b).Close()
	return met, err
}

type releaseAsk struct {
	claim  *export.Claim
	refund bool
	delay  time.Duration
	why    *export.Failure
}

// Retry ends the claim after a failure: the attempt is spent, and a debt is due after delay. In an ending job the chunk is CANCELLED instead.
func (s *Store) Retry(ctx context.Context, c *export.Claim, why *export.Failure, delay time.Duration) error {
	return staleUnless(s.releases.do(ctx, releaseAsk{c, false, delay, why}))
}

// GiveBack ends the claim without spending its attempt: the chunk is PENDING, its debt due after delay. In an ending job the chunk is CANCELLED instead.
func (s *Store) GiveBack(ctx context.Context, c *export.Claim, why *export.Failure, delay time.Duration) error {
	return staleUnless(s.releases.do(ctx, releaseAsk{c, true, delay, why}))
}

var releaseSQL = `
with want as (
    select n, job_id, chunk_key, claim_id::uuid, refund, delay, code, message
    from unnest((select $1::text[]), (select $2::text[]), (select $3::text[]), (select $4::boolean[]), (select $5::interval[]), (select $6::text[]), (select $7::text[]))
         with ordinality as w(job_id, chunk_key, claim_id, refund, delay, code, message, n)
), ` + heldSQL("claim_id, status, attempts, started_at, lock_owner", "claim_id", "") + `, mine as materialized (
    select w.*, h.attempts, h.started_at, h.lock_owner, j.ending, j.run
    from held h join want w using (job_id, chunk_key, claim_id) join job j using (job_id) where h.status = 'RUNNING'
), ended as (
    update job_chunk c
    set status = case when w.ending is not null then 'CANCELLED' when w.refund then 'PENDING' else 'RETRY_WAIT' end,
        attempts = c.attempts - w.refund::int,
        next_retry_at = case when w.ending is null and not w.refund then now() + w.delay end,
        completed_at = case when w.ending is not null then now() end,
        lease_until = null, upload_id = null, s3_object_key = null, row_count = null, byte_count = null, sha256 = null,
        error_code = w.code, error_message = w.message
    from mine w where ` + thatChunk + `
    returning w.*, c.status
), owed as (
    insert into dispatch as d (job_id, chunk_key, state, rank, due_at)
    select job_id, chunk_key, 'WAIT', 0, now() + delay from ended where status <> 'CANCELLED' order by job_id, chunk_key
    on conflict (job_id, chunk_key) do update -- the sweeper owed a run of the chunk while its lease was over: that is another debt, of no concern any more
    set debt_id = default, state = 'WAIT', due_at = excluded.due_at, owed_at = excluded.owed_at, sent_at = null, sends = 0, error = null
), noted as (
    insert into chunk_attempt (claim_id, job_id, chunk_key, run, attempt, worker, started_at, outcome, error_code, error_message)
    select claim_id, job_id, chunk_key, run, attempts, lock_owner, started_at,
           case when status = 'CANCELLED' then 'CANCELLED' when refund then 'GIVEN_BACK' else 'RETRY' end, code, message
    from ended
    on conflict do nothing
)
select n from want join held using (job_id, chunk_key, claim_id) where status <> 'DONE'`

func (s *Store) releaseAll(ctx context.Context, asks []releaseAsk) ([]bool, error) {
	w := newColumns(len(asks))
	refunds, delays := make([]bool, len(asks)), make([]time.Duration, len(asks))
	codes, messages := make([]*string, len(asks)), make([]*string, len(asks))
	for i, a := range asks {
		w.set(i, a.claim)
		refunds[i], delays[i] = a.refund, a.delay
		if a.why != nil {
			text := export.ErrorText(a.why.Error())
			codes[i], messages[i] = &a.why.Code, &text
		}
	}
	return s.settle(ctx, w, export.ChunkCancelled, releaseSQL, w.jobs, w.chunks, w.claims, refunds, delays, codes, messages)
}

// columns are the arrays that name the claims of a group.
type columns struct{ jobs, chunks, claims []string }

func newColumns(n int) columns {
	return columns{make([]string, n), make([]string, n), make([]string, n)}
}

// add appends the i-th claim of from.
func (w *columns) add(from columns, i int) {
	w.jobs, w.chunks, w.claims = append(w.jobs, from.jobs[i]), append(w.chunks, from.chunks[i]), append(w.claims, from.claims[i])
}

func (w columns) set(i int, c *export.Claim) {
	w.jobs[i], w.chunks[i], w.claims[i] = c.JobID, c.ChunkKey(), c.ID
}

// marks reads the ordinals (from 1) of the requests that were met.
func marks(n int, rows pgx.Rows, err error) ([]bool, error) {
	if err != nil {
		return nil, err
	}
	met := make([]bool, n)
	var i int
	_, err = pgx.ForEachRow(rows, []any{&i}, func() error {
		met[i-1] = true
		return nil
	})
	return met, err
}
