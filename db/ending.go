package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"exportd/export"
)

// Pin fixes the outcome of a job of which no chunk is open any more: the first of the three steps of its end. It answers nil when the job is not
// ready to end, has ended, or was pinned by somebody else, who then goes on.
func (s *Store) Pin(ctx context.Context, jobID string) (*export.Ending, error) {
	return s.pin(ctx, jobID, `outcome is null and not exists (
		select from job_chunk c where c.job_id = job.job_id and c.status in ('PENDING', 'RUNNING', 'RETRY_WAIT'))`)
}

// Repin answers for a job that was pinned at least age ago and has not ended: whoever pinned it has died or is stuck. nil as for Pin.
func (s *Store) Repin(ctx context.Context, jobID string, age time.Duration) (*export.Ending, error) {
	return s.pin(ctx, jobID, `outcome is not null and pinned_at < now() - $2::interval`, age)
}

// pin names the run that it saw: had it waited for the job's row while the job ended and was re-driven, its look at the chunks would be of the run before.
func (s *Store) pin(ctx context.Context, jobID, guard string, args ...any) (*export.Ending, error) {
	var e export.Ending
	err := again(ctx, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `
			with seen as materialized (select job_id, run from job where job_id = $1)
			update job set pinned_at = now(), updated_at = now(), outcome = coalesce(outcome, case
				when ending = 'CANCEL' then 'CANCELLED'
				when ending = 'FAIL' or exists (select from job_chunk c where c.job_id = job.job_id and c.status = 'DLQ') then 'FAILED'
				else 'COMPLETED' end)
			from seen where job.job_id = seen.job_id and job.run = seen.run and completed_at is null and `+guard+`
			returning job.job_id, job.run, outcome`, append([]any{jobID}, args...)...).Scan(&e.JobID, &e.Run, &e.Outcome)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pin the outcome of job %s: %w", jobID, err)
	}
	return &e, nil
}

// Manifest reads what the manifest of a pinned job says, chunk by chunk in order of chunk key.
func (s *Store) Manifest(ctx context.Context, jobID string, each func(export.ManifestChunk) error) error {
	rows, err := s.pool.Query(ctx, `
		select chunk_key, key, effective_date, status, coalesce(s3_object_key, ''), coalesce(row_count, 0), coalesce(byte_count, 0), coalesce(sha256, ''), reused,
		       coalesce(error_code, ''), coalesce(error_message, '')
		from job_chunk where job_id = $1 order by chunk_key`, jobID)
	if err != nil {
		return err
	}
	var c export.ManifestChunk
	var day time.Time
	_, err = pgx.ForEachRow(rows, []any{&c.ChunkKey, &c.Key, &day, &c.Status, &c.ObjectKey, &c.Rows, &c.Bytes, &c.SHA256, &c.Reused, &c.ErrorCode, &c.Error}, func() error {
		c.Date = export.DateOf(day)
		return each(c)
	})
	return err
}

// End makes the pinned outcome the job's status, stores its counts, and owes its callback URL the event: the last step. Whoever comes second changes nothing.
func (s *Store) End(ctx context.Context, e export.Ending) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `
			with ended as (
				update job j set status = j.outcome, completed_at = now(), updated_at = now(), started_at = coalesce(j.started_at, now()),
					done = c.done, failed = c.failed, cancelled = c.cancelled, files_reused = c.reused, row_count = c.row_count, byte_count = c.byte_count,
					error_message = case when j.outcome = 'FAILED' then coalesce(j.error_message, c.first_error) else j.error_message end
				from (select c.*, (
					select format('Chunk failed after %s attempt%s: key=%s date=%s: %s', attempts, case when attempts = 1 then '' else 's' end, key, to_char(effective_date, 'YYYY-MM-DD'), error_message)
					from job_chunk where job_id = $1 and status = 'DLQ' order by completed_at, chunk_key limit 1) as first_error
					from job j cross join lateral (`+countsSQL+`) c where j.job_id = $1) c
				where j.job_id = $1 and j.run = $2 and j.outcome = $3 and j.completed_at is null
				returning j.*
			)
			insert into outbox (destination, headers, body)
			select j.callback_url, jsonb_build_object('id', 'evt_' || gen_random_uuid(), 'requestId', j.request_id), convert_to(to_json(event)::text, 'UTF8')
			from ended j cross join lateral (select `+eventColumns+`) event where j.callback_url is not null`, e.JobID, e.Run, e.Outcome)
		if err != nil {
			return fmt.Errorf("end job %s: %w", e.JobID, err)
		}
		return nil
	})
}

// eventColumns are an ended job j under the names of export.Job.
const eventColumns = `j.job_id as id, j.tenant, j.status, j.run, j.total, j.done, j.failed, j.cancelled, j.done - j.files_reused as "filesGenerated",
	j.files_reused as "filesReused", j.row_count as "rowCount", j.byte_count as "byteCount", j.error_message as "errorMessage",
	j.created_at as "createdAt", j.updated_at as "updatedAt", j.started_at as "startedAt", j.completed_at as "completedAt"`

// Cancel orders the job to end: what has not started is cancelled here, what runs is stopped by its worker. Cancelling again is no error;
// export.ErrEnded when the job has ended otherwise or its outcome is fixed already.
func (s *Store) Cancel(ctx context.Context, tenant, jobID string) error {
	return s.ordered(ctx, func(tx pgx.Tx) (*export.AuditLine, error) {
		job, err := lockJob(ctx, tx, tenant, jobID)
		outcome := job.outcome
		switch {
		case err != nil:
			return nil, err
		case outcome == string(export.Cancelled):
			return nil, nil
		case outcome != "":
			return nil, fmt.Errorf("job %s is %s or just ending so, and cannot be cancelled any more: %w", jobID, outcome, export.ErrEnded)
		}
		if _, err := tx.Exec(ctx, `update job set ending = 'CANCEL', status = 'CANCELLING', updated_at = now() where job_id = $1`, jobID); err != nil {
			return nil, err
		}
		n, err := cancelWaiting(ctx, tx, jobID)
		if job.status == export.Cancelling { // the order was given before
			return nil, err
		}
		return deed(ctx, jobID, job.tenant, int(n)), err
	})
}

// ordered runs an order in one transaction with its audit line; without a line nothing was changed on anybody's order.
func (s *Store) ordered(ctx context.Context, do func(pgx.Tx) (*export.AuditLine, error)) error {
	var line *export.AuditLine
	err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
		if line, err = do(tx); err == nil && line != nil {
			err = writeLine(ctx, tx, *line)
		}
		return err
	})
	if err == nil && line != nil {
		s.tell(ctx, *line)
	}
	return err
}

// cancelWaiting cancels what has not started of an ending job, whose lock the caller holds.
func cancelWaiting(ctx context.Context, tx pgx.Tx, jobID string) (n int64, err error) {
	if err := lockChunks(ctx, tx, jobID, `'PENDING', 'RETRY_WAIT'`); err != nil {
		return 0, err
	}
	var b pgx.Batch
	b.Queue(cancelWaitingSQL, jobID).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	b.Queue(`delete from dispatch where job_id = $1`, jobID)
	err = tx.SendBatch(ctx, &b).Close()
	return n, err
}

// Redrive brings the dead-lettered and cancelled chunks of an ended FAILED or CANCELLED job back, with all their attempts, and answers how many.
// export.ErrEnded when the job is COMPLETED, or has not ended.
func (s *Store) Redrive(ctx context.Context, tenant, jobID string) (n int, err error) {
	err = s.ordered(ctx, func(tx pgx.Tx) (*export.AuditLine, error) {
		n = 0
		job, err := lockJob(ctx, tx, tenant, jobID)
		if err != nil {
			return nil, err
		}
		if job.status != export.Failed && job.status != export.Cancelled {
			return nil, fmt.Errorf("job %s is %s; only a FAILED or CANCELLED job can be re-driven: %w", jobID, job.status, export.ErrEnded)
		}
		if err := lockChunks(ctx, tx, jobID, `'DLQ', 'CANCELLED'`); err != nil {
			return nil, err
		}
		if err := tx.QueryRow(ctx, `select count(*) from job_chunk where job_id = $1 and status in ('DLQ', 'CANCELLED')`, jobID).Scan(&n); err != nil || n == 0 {
			return nil, err
		}
		var b pgx.Batch
		b.Queue(`update job set status = 'IN_PROGRESS', run = run + 1, ending = null, outcome = null, pinned_at = null, completed_at = null, done = null, failed = null,
			cancelled = null, files_reused = null, row_count = null, byte_count = null, error_message = null, updated_at = now() where job_id = $1`, jobID)
		b.Queue(`insert into dispatch (job_id, chunk_key, state, rank)
			select c.job_id, c.chunk_key, 'READY', v.now + row_number() over (order by c.chunk_key) * (2520 / (j.priority + 1))
			from job_chunk c join job j using (job_id) cross join (select `+virtualTime+` as now) v
			where c.job_id = $1 and c.status in ('DLQ', 'CANCELLED') order by c.chunk_key
			on conflict (job_id, chunk_key) do update set debt_id = default, state = 'READY', rank = excluded.rank, due_at = excluded.due_at, owed_at = excluded.owed_at, sent_at = null, sends = 0, error = null`, jobID)
		b.Queue(`update job_chunk set status = 'PENDING', attempts = 0, completed_at = null, error_code = null, error_message = null
			where job_id = $1 and status in ('DLQ', 'CANCELLED')`, jobID)
		return deed(ctx, jobID, job.tenant, n), tx.SendBatch(ctx, &b).Close()
	})
	return n, err
}

type lockedJob struct {
	tenant  string
	status  export.JobStatus
	outcome string // pinned, or empty
}

func lockJob(ctx context.Context, tx pgx.Tx, tenant, jobID string) (j lockedJob, err error) {
	err = tx.QueryRow(ctx, `select tenant, status, coalesce(outcome, '') from job where job_id = $1 and ($2 = '' or tenant = $2) for update`, jobID, tenant).
		Scan(&j.tenant, &j.status, &j.outcome)
	if errors.Is(err, pgx.ErrNoRows) {
		return j, export.ErrNotFound
	}
	return j, err
}

// lockChunks takes the chunks in the states in order, as everybody does who changes several.
func lockChunks(ctx context.Context, tx pgx.Tx, jobID, states string) error {
	_, err := tx.Exec(ctx, `select from job_chunk where job_id = $1 and status in (`+states+`) order by chunk_key for update`, jobID)
	return err
}
