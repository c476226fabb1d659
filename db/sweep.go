package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// sweepLock is the advisory lock of those sweeps that look at every open job, so that a fleet does them once.
const sweepLock = 0x65787073 // "exps"

var errWorkerLost = errors.New("the worker stopped renewing its lease")

// OweExpired owes a run to every chunk whose lease is over and that has attempts left. Call it only after a full lease of unbroken contact with the
// database: before, the owners may not have been able to renew either. A debt from an earlier lapse whose message was spent on the lease that followed
// becomes due again.
func (s *Store) OweExpired(ctx context.Context) (n int64, err error) {
	err = again(ctx, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `
			with expired as (
			    select c.job_id, c.chunk_key from job_chunk c join job j on j.job_id = c.job_id
			    where c.status = 'RUNNING' and coalesce(c.lease_until, '-infinity') < now() and c.attempts < $1 and j.ending is null
			      and not exists (select from dispatch d where d.job_id = c.job_id and d.chunk_key = c.chunk_key and (d.state <> 'SENT' or d.sent_at >= c.lease_until))
			    order by c.job_id, c.chunk_key limit 1000
			    for update of c skip locked
			)
			insert into dispatch (job_id, chunk_key, state, rank) select job_id, chunk_key, 'WAIT', 0 from expired order by job_id, chunk_key
			on conflict (job_id, chunk_key) do update set state = 'WAIT', due_at = excluded.due_at`, s.MaxAttempts)
		n = tag.RowsAffected()
		return err
	})
	return n, err
}

// Expired lists claims whose lease is over and whose chunk will not be tried again, the oldest first.
func (s *Store) Expired(ctx context.Context) ([]export.ExpiredClaim, error) {
	rows, err := s.pool.Query(ctx, `
		select c.job_id, c.key, c.effective_date, c.claim_id::text, (1000000 * extract(epoch from now() - greatest(c.lease_until, now() - interval '1 hour')))::bigint, c.attempts, coalesce(c.started_at, now()), coalesce(c.upload_id, ''), coalesce(c.s3_object_key, ''),
		       c.row_count, c.byte_count, c.sha256, j.request_id, j.compression
		from job_chunk c join job j on j.job_id = c.job_id
		where c.status = 'RUNNING' and coalesce(c.lease_until, '-infinity') < now() and (c.attempts >= $1 or j.ending is not null)
		order by c.lease_until nulls first limit 100`, s.MaxAttempts)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (e export.ExpiredClaim, err error) {
		var day time.Time
		o := &e.Overtaken
		var compression export.Compression
		var overdue int64 // microseconds: pgx reads no intervals as text, which they are behind a pooler
		var nrows, nbytes *int64
		var sum *string
		if err := row.Scan(&e.JobID, &e.Key, &day, &o.ClaimID, &overdue, &e.Attempts, &o.StartedAt, &o.UploadID, &o.ObjectKey, &nrows, &nbytes, &sum, &e.RequestID, &compression); err != nil {
			return e, err
		}
		e.Date, e.Overdue = export.DateOf(day), time.Duration(overdue)*time.Microsecond
		o.ObjectKey = cmp.Or(o.ObjectKey, s.objectKey(e.Ref, compression))
		if sum != nil {
			o.Facts = &export.Facts{Rows: *nrows, Bytes: *nbytes, SHA256: *sum}
		}
		return e, nil
	})
}

// EndExpired ends such a claim: DLQ, or CANCELLED in an ending job. export.ErrStale when it was renewed or settled meanwhile.
func (s *Store) EndExpired(ctx context.Context, e export.ExpiredClaim) error {
	why := &export.Failure{Class: export.Transient, Code: export.CodeWorkerLost, Err: errWorkerLost}
	return s.deadLetter(ctx, e.Ref, e.ClaimID, why, `and (status <> 'RUNNING' or coalesce(lease_until, '-infinity') < now())`)
}

// CancelLeftovers cancels the waiting chunks of ending jobs: those that were settled to wait while the order to end was on its way.
func (s *Store) CancelLeftovers(ctx context.Context) (n int64, err error) {
	rows, err := s.pool.Query(ctx, `
		select job_id from job j where completed_at is null and ending is not null
		and exists (select from job_chunk c where c.job_id = j.job_id and c.status in ('PENDING', 'RETRY_WAIT')) limit 100`)
	if err != nil {
		return 0, err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, err
	}
	for _, id := range jobs {
		var cancelled int64
		err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
			// Under the job's lock, or a re-drive that comes between the look and the deed would be undone.
			tag, err := tx.Exec(ctx, `select from job where job_id = $1 and completed_at is null and ending is not null for update skip locked`, id)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			cancelled, err = cancelWaiting(ctx, tx, id)
			return err
		})
		if err != nil {
			return n, fmt.Errorf("cancel what is left of job %s: %w", id, err)
		}
		n += cancelled
	}
	return n, nil
}

// Unfinished lists jobs that are ready to end, or were pinned longer than age ago and have not ended. Empty while another process looks.
func (s *Store) Unfinished(ctx context.Context, age time.Duration) (jobs []string, err error) {
	err = again(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `
			select job_id from job j
			where completed_at is null and (select pg_try_advisory_xact_lock($1)) and (
			    outcome is not null and pinned_at < now() - $2::interval
			    or outcome is null and not exists (select from job_chunk c where c.job_id = j.job_id and c.status in ('PENDING', 'RUNNING', 'RETRY_WAIT')))
			limit 100`, sweepLock, age)
		if err != nil {
			return err
		}
		jobs, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return jobs, err
}

// UploadsInUse says which of the multipart uploads belong to claims that have not ended.
func (s *Store) UploadsInUse(ctx context.Context, ids []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, `select upload_id from job_chunk where status = 'RUNNING' and upload_id = any($1)`, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// keyLife is how long an idempotency key is kept.
const keyLife = 7 * 24 * time.Hour

// Expire forgets old idempotency keys, dead workers and, when retention is not 0, jobs that ended longer ago and whose key is forgotten: a small batch
// of each. more says that there may be more.
func (s *Store) Expire(ctx context.Context, retention time.Duration) (more bool, err error) {
	const mostJobs, mostChunks = 200, 20_000
	err = s.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from worker where heartbeat_at < now() - $1::interval`, 20*heartbeatFresh); err != nil {
			return err
		}
		keys, err := tx.Exec(ctx, `update job set idempotency_key = null where job_id in (
			select job_id from job where idempotency_key is not null and created_at < now() - $1::interval order by job_id limit 1000 for update skip locked)`, keyLife)
		if err != nil || retention <= 0 {
			more = keys.RowsAffected() == 1000
			return err
		}
		rows, err := tx.Query(ctx, `select job_id, total from job where completed_at < now() - $1::interval and idempotency_key is null
			order by completed_at limit $2 for update skip locked`, retention, mostJobs)
		if err != nil {
			return err
		}
		var jobs []string
		var id string
		var total, found, chunks int
		if _, err := pgx.ForEachRow(rows, []any{&id, &total}, func() error {
			if found++; found == 1 || chunks+total <= mostChunks {
				jobs, chunks = append(jobs, id), chunks+total
			}
			return nil
		}); err != nil {
			return err
		}
		more = keys.RowsAffected() == 1000 || found == mostJobs || len(jobs) < found
		var b pgx.Batch
		for _, table := range []string{"job_chunk", "dispatch", "chunk_attempt", "job"} {
			b.Queue(`delete from `+table+` where job_id = any($1)`, jobs)
		}
		return tx.SendBatch(ctx, &b).Close()
	})
	return more, err
}

// DoneExpired ends such a claim with its object, which is there. export.ErrStale when it was settled otherwise meanwhile.
func (s *Store) DoneExpired(ctx context.Context, e export.ExpiredClaim, f export.File) error {
	return s.Done(ctx, &export.Claim{ID: e.ClaimID, Ref: e.Ref}, f, false)
}
