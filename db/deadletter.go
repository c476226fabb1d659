package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// DeadLetter ends the claim for good: permanent failure, or the last attempt. The chunk is DLQ, its notice is in the outbox; under FAIL_FAST
// the job is ending and what has not started is cancelled, in the same transaction. In an ending job the chunk is CANCELLED instead.
func (s *Store) DeadLetter(ctx context.Context, c *export.Claim, why *export.Failure) error {
	return s.deadLetter(ctx, c.Ref, c.ID, why, "")
}

// deadLetter does it for an owner, or for the sweeper, who adds a guard. The job is locked first: everybody who takes several locks does.
func (s *Store) deadLetter(ctx context.Context, ref export.Ref, claimID string, why *export.Failure, guard string) error {
	text := export.ErrorText(why.Error())
	return s.inTx(ctx, func(tx pgx.Tx) error {
		var j struct {
			ending, onFailure, requestID, traceparent string
			run, priority                             int
			now                                       time.Time
		}
		err := tx.QueryRow(ctx, `select coalesce(ending, ''), on_failure, run, priority, request_id, traceparent, now() from job where job_id = $1 for update`, ref.JobID).
			Scan(&j.ending, &j.onFailure, &j.run, &j.priority, &j.requestID, &j.traceparent, &j.now)
		if errors.Is(err, pgx.ErrNoRows) {
			return export.ErrStale // removed: it ended long ago
		}
		if err != nil {
			return fmt.Errorf("lock the job: %w", err)
		}
		failFast := j.onFailure == string(export.FailFast) && j.ending == ""
		// All rows that change below, in order; the first row tells of the claim.
		var status export.ChunkStatus
		var attempts int
		var owner *string
		var started *time.Time
		err = tx.QueryRow(ctx, `
			with held as (
				select chunk_key, claim_id, status, attempts, lock_owner, started_at, lease_until from job_chunk
				where job_id = $1 and (chunk_key = $2 or $4 and status in ('PENDING', 'RETRY_WAIT')) order by chunk_key for update)
			select status, attempts, lock_owner, started_at from held where chunk_key = $2 and claim_id = $3::uuid `+guard,
			ref.JobID, ref.ChunkKey(), claimID, failFast).Scan(&status, &attempts, &owner, &started)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return export.ErrStale
		case err != nil:
			return fmt.Errorf("lock the chunks: %w", err)
		case status == export.Done || status == export.Pending:
			return export.ErrStale
		case status != export.Running: // settled by this claim before; the answer was lost
			return nil
		}

		outcome := export.DeadLetter
		if j.ending != "" {
			outcome = export.ChunkCancelled
		}
		var b pgx.Batch
		b.Queue(`update job_chunk set status = $3, completed_at = now(), lease_until = null, upload_id = null, s3_object_key = null, row_count = null,
			byte_count = null, sha256 = null, error_code = $4, error_message = $5 where job_id = $1 and chunk_key = $2`,
			ref.JobID, ref.ChunkKey(), outcome, why.Code, text)
		b.Queue(`insert into chunk_attempt (claim_id, job_id, chunk_key, run, attempt, worker, started_at, outcome, error_code, error_message)
			values ($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict do nothing`,
			claimID, ref.JobID, ref.ChunkKey(), j.run, attempts, owner, started, outcome, why.Code, text)
		if outcome == export.DeadLetter && failFast {
			b.Queue(cancelWaitingSQL, ref.JobID)
			b.Queue(`update job set ending = 'FAIL', error_message = $2, updated_at = now() where job_id = $1`, ref.JobID, failedMessage(ref, attempts, text))
		}
		b.Queue(`delete from dispatch where job_id = $1 and (chunk_key = $2 or $3)`, ref.JobID, ref.ChunkKey(), outcome == export.DeadLetter && failFast)
		if outcome == export.DeadLetter && s.Parking {
			notice := export.DeadLetterNotice{
				Ref: ref, ParkingID: uuid.NewString(), Attempts: attempts, ErrorCode: why.Code, Error: text, FailedAt: j.now,
				Priority: j.priority, RequestID: j.requestID, Traceparent: j.traceparent,
			}
			queueOutbox(&b, export.OutboxParking, notice.Message())
		}
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("dead-letter the chunk: %w", err)
		}
		return nil
	})
}

// cancelWaitingSQL cancels the chunks of a job that have not started. The caller holds their locks.
const cancelWaitingSQL = `update job_chunk set status = 'CANCELLED', completed_at = now(), next_retry_at = null where job_id = $1 and status in ('PENDING', 'RETRY_WAIT')`

// failedMessage is what a failed job says of the chunk that failed it.
func failedMessage(ref export.Ref, attempts int, cause string) string {
	noun := "attempts"
	if attempts == 1 {
		noun = "attempt"
	}
	return export.ErrorText(fmt.Sprintf("Chunk failed after %d %s: key=%s date=%s: %s", attempts, noun, ref.Key, ref.Date.ISO(), cause))
}

func queueOutbox(b *pgx.Batch, destination string, m export.Message) {
	headers, _ := json.Marshal(m.Headers)
	b.Queue(`insert into outbox (destination, headers, body) values ($1, $2, $3)`, destination, string(headers), m.Body)
}
