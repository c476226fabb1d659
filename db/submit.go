package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// newJobID takes the next number.
const newJobID = `(select 'J' || to_char(now() at time zone 'UTC', 'YYYYMMDD') || '_' || lpad(n::text, greatest(6, length(n::text)), '0') from nextval('job_number') n)`

// submitJobSQL stores the job alone. A tenant's second use of an idempotency key stores nothing and answers no row.
func submitJobSQL(jobID string) string {
	return `
    insert into job (job_id, tenant, request_hash, idempotency_key, request_id, traceparent, priority, on_failure, reuse, compression, callback_url, total)
    values (` + jobID + `, $1, $2, nullif($3, ''), $4, $5, $6, $7, $8, $9, nullif($10, ''), $11)
    on conflict (tenant, idempotency_key) where idempotency_key is not null do nothing
    returning job_id, created_at`
}

// Job, chunks and debts in one statement, which is one transaction.
var submitSQL = `
with j as (` + submitJobSQL(newJobID) + `
), item as materialized (
    select * from unnest($13::text[], $14::text[], $15::date[]) with ordinality as w(chunk_key, key, effective_date, n)
), chunks as (
    insert into job_chunk (job_id, chunk_key, key, effective_date) select j.job_id, i.chunk_key, i.key, i.effective_date from j cross join item i
), debts as (
    insert into dispatch (job_id, chunk_key, state, rank)
    select j.job_id, i.chunk_key, 'READY', v.now + i.n * $16::bigint from j cross join item i cross join (select ` + virtualTimeFrom("$12") + ` as now) v
)
select job_id, created_at from j`

// beginLargeSQL begins a large job, if its idempotency key is free. A backend that waits for rows to copy waits for ever: no time limit of the server holds there, but TCP's own for a
// client that has vanished without a word.
var beginLargeSQL = `
select ` + newJobID + `, ` + virtualTimeFrom("$3") + `, set_config('tcp_keepalives_idle', '20', true), set_config('tcp_keepalives_interval', '5', true), set_config('tcp_keepalives_count', '4', true)
where not exists (select from job where tenant = $1 and idempotency_key = nullif($2, ''))`

// copiedFrom is the number of chunks from which the round trips of COPY cost less than rows one by one. At 10 000 it saves a quarter.
const copiedFrom = 1000

// Submit stores the job with its chunks and their debts, or nothing. With an idempotency key that its tenant used before, replayed is true and the job is the first one,
// if the request is the same after normalisation; else the error is export.ErrIdempotencyMismatch.
func (s *Store) Submit(ctx context.Context, req export.SubmitRequest) (job export.Job, replayed bool, err error) {
	refs := req.Refs("")
	hash := req.Hash()
	job = export.Job{Tenant: req.Tenant, Status: export.Submitted, Run: 1, Total: len(refs), Pending: len(refs)}
	stride := int64(rankStride / (req.Priority + 1))
	front, _ := s.front.bounds()
	args := []any{req.Tenant, hash[:], req.IdempotencyKey, req.RequestID, req.Traceparent, req.Priority, req.OnFailure, req.Reuse, req.Compression, req.CallbackURL, len(refs), front}
	store := s.submitLarge
	if len(refs) < copiedFrom {
		store = s.submitSmall
	}
	for {
		err = store(ctx, &job, args, refs, stride)
		if err == nil {
			job.UpdatedAt = job.CreatedAt
			return job, false, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return export.Job{}, false, away(fmt.Errorf("store the job: %w", err))
		}
		// A statement of its own: the one above cannot see the row that it ran into.
		var id string
		var same bool
		err = s.pool.QueryRow(ctx, `select job_id, request_hash = $3 from job where tenant = $1 and idempotency_key = $2`,
			req.Tenant, req.IdempotencyKey, hash[:]).Scan(&id, &same)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // its key expired this moment
		case err != nil:
			return export.Job{}, false, away(fmt.Errorf("find the job of the idempotency key: %w", err))
		case !same:
			return export.Job{}, false, export.ErrIdempotencyMismatch
		default:
			job, err = s.Job(ctx, req.Tenant, id)
			return job, true, err
		}
	}
}

func (s *Store) submitSmall(ctx context.Context, job *export.Job, args []any, refs []export.Ref, stride int64) error {
	chunkKeys, keys, dates := make([]string, len(refs)), make([]string, len(refs)), make([]time.Time, len(refs))
	for i, r := range refs {
		chunkKeys[i], keys[i], dates[i] = r.ChunkKey(), r.Key, r.Date.Time()
	}
	args = append(args, chunkKeys, keys, dates, stride)
	return again(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, submitSQL, args...).Scan(&job.ID, &job.CreatedAt)
	})
}

// submitLarge stores the job after its chunks and debts: whoever freezes between their rows keeps nobody else from the idempotency key.
func (s *Store) submitLarge(ctx context.Context, job *export.Job, args []any, refs []export.Ref, stride int64) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var id string
		var now int64
		if err := tx.QueryRow(ctx, beginLargeSQL, job.Tenant, args[2], args[11]).Scan(&id, &now, nil, nil, nil); err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"job_chunk"}, []string{"job_id", "chunk_key", "key", "effective_date"}, pgx.CopyFromSlice(len(refs), func(i int) ([]any, error) {
			r := refs[i]
			return []any{id, r.ChunkKey(), r.Key, r.Date.Time()}, nil
		})); err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"dispatch"}, []string{"job_id", "chunk_key", "state", "rank"}, pgx.CopyFromSlice(len(refs), func(i int) ([]any, error) {
			return []any{id, refs[i].ChunkKey(), "READY", now + int64(i+1)*stride}, nil
		})); err != nil {
			return err
		}
		return tx.QueryRow(ctx, submitJobSQL("$12"), append(args[:11:11], id)...).Scan(&job.ID, &job.CreatedAt)
	})
}

// Job is the job as its owner sees it; an empty tenant sees every job. Open jobs are counted from their chunks, ended ones have their counts stored.
func (s *Store) Job(ctx context.Context, tenant, jobID string) (job export.Job, err error) {
	rows, err := s.pool.Query(ctx, `select `+jobColumns+` from job j cross join lateral (`+countsSQL+`) c
		where j.job_id = $1 and ($2 = '' or j.tenant = $2)`, jobID, tenant)
	if err == nil {
		job, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (export.Job, error) { return scanJob(row) })
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return export.Job{}, export.ErrNotFound
	}
	if err != nil {
		return export.Job{}, away(fmt.Errorf("read the job: %w", err))
	}
	return job, nil
}

// countsSQL counts the chunks of job j, if it has not ended: then its counts are stored.
const countsSQL = `
	select count(*) filter (where status = 'PENDING') as pending, count(*) filter (where status = 'RUNNING') as running,
	       count(*) filter (where status = 'RETRY_WAIT') as retrying, count(*) filter (where status = 'DONE') as done,
	       count(*) filter (where status = 'DLQ') as failed, count(*) filter (where status = 'CANCELLED') as cancelled,
	       count(*) filter (where status = 'DONE' and reused) as reused,
	       coalesce(sum(row_count) filter (where status = 'DONE'), 0)::bigint as row_count,
	       coalesce(sum(byte_count) filter (where status = 'DONE'), 0)::bigint as byte_count
	from job_chunk where job_id = j.job_id and j.completed_at is null`
