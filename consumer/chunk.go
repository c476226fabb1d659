package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"exportd/export"
)

// chunk claims and runs the chunk that a hint names, and settles the claim. False means that the database never heard of the hint.
func (c *Consumer) chunk(ctx, life context.Context, ref export.Ref) bool {
	id := uuid.NewString() // one for all tries: claiming again after a lost answer gives the same claim
	var claim *export.Claim
	var refusal export.Refusal
	err := c.persist(ctx, "claim a chunk", func(ctx context.Context) (err error) {
		claim, refusal, err = c.Store.Claim(ctx, ref, id)
		return err
	})
	if err != nil {
		return false // stopped; if the claim was taken all the same, its lease runs out
	}
	c.Wake() // room in the backlog
	if claim == nil {
		c.Stats.Refused.Add(1)
		c.Log.Debug("no claim", "jobId", ref.JobID, "chunkKey", ref.ChunkKey(), "reason", refusal)
		return true
	}
	c.run(life, claim)
	return true
}

// result of an attempt.
type result struct {
	file   export.File
	reused bool
}

func (c *Consumer) run(life context.Context, claim *export.Claim) {
	ctx, stop := context.WithCancelCause(life)
	defer stop(nil)
	limited, cancel := context.WithTimeoutCause(ctx, c.ChunkTimeout, timedOut(c.ChunkTimeout))
	defer cancel()
	f := &flight{claim: claim, life: life, stop: stop}
	c.flights.add(f)

	log := c.Log.With("jobId", claim.JobID, "chunkKey", claim.ChunkKey(), "attempt", claim.Attempt, "requestId", claim.Job.RequestID)
	began := time.Now()
	res, err := c.attempt(limited, f)
	if err != nil && limited.Err() != nil {
		err = fmt.Errorf("%w (while: %v)", context.Cause(limited), err)
	}
	if err == nil {
		c.settleDone(life, claim, res)
		log.Info("chunk done", "rows", res.file.Rows, "bytes", res.file.Bytes, "reused", res.reused, "took", time.Since(began).Round(time.Millisecond))
	} else {
		c.settleFailure(life, claim, err, log)
	}
	if last := c.flights.remove(f); last && c.Finisher != nil {
		c.Finisher.Check(claim.JobID)
	}
}

func (c *Consumer) settleDone(ctx context.Context, claim *export.Claim, res result) {
	err := c.persist(ctx, "settle a chunk as done", func(ctx context.Context) error { return c.Store.Done(ctx, claim, res.file, res.reused) })
	switch {
	case err == nil && res.reused:
		c.Stats.Reused.Add(1)
	case err == nil:
		c.Stats.Rows.Add(res.file.Rows)
		c.Stats.Bytes.Add(res.file.Bytes)
	case errors.Is(err, export.ErrStale):
		c.Stats.LeasesLost.Add(1)
		if !res.reused {
			c.removeOrphan(ctx, claim, res.file)
		}
		return
	default:
		return // the drain time is over; whoever takes over finds the announced object
	}
	c.Stats.Done.Add(1)
}

// settleFailure ends the claim of an attempt that failed, or was stopped.
func (c *Consumer) settleFailure(ctx context.Context, claim *export.Claim, cause error, log interface {
	Info(string, ...any)
	Warn(string, ...any)
}) {
	why := export.FailureOf(cause)
	var do func(context.Context) error
	var count interface{ Add(int64) int64 }
	switch {
	case errors.Is(cause, export.ErrStale):
		c.Stats.LeasesLost.Add(1)
		log.Warn("claim lost", "error", cause)
		return
	case errors.Is(cause, export.ErrEnding):
		log.Info("chunk stopped: its job is ending")
		count = &c.Stats.Cancelled
		do = func(ctx context.Context) error { return c.Store.GiveBack(ctx, claim, endingFailure, 0) }
	case errors.Is(cause, errDraining), errors.Is(cause, context.Canceled):
		log.Info("chunk given back: the worker is shutting down")
		count = &c.Stats.GivenBack
		do = func(ctx context.Context) error { return c.Store.GiveBack(ctx, claim, drainFailure, 0) }
	case why.Class == export.Outage && c.breaker.confirm(ctx, why.Dependency):
		delay := export.Backoff(1, outageDelay, outageDelay)
		log.Warn("chunk given back: a dependency is away", "dependency", why.Dependency, "error", cause, "delay", delay)
		count = &c.Stats.GivenBack
		do = func(ctx context.Context) error { return c.Store.GiveBack(ctx, claim, why, delay) }
	case why.Class == export.Permanent || claim.Attempt >= c.MaxAttempts:
		log.Warn("chunk dead-lettered", "code", why.Code, "class", why.Class, "error", cause)
		count = &c.Stats.DeadLettered
		do = func(ctx context.Context) error { return c.Store.DeadLetter(ctx, claim, why) }
	default:
		delay := export.Backoff(claim.Attempt, c.RetryBase, c.RetryMax)
		log.Warn("chunk failed, will be tried again", "code", why.Code, "error", cause, "delay", delay)
		count = &c.Stats.Retried
		do = func(ctx context.Context) error { return c.Store.Retry(ctx, claim, why, delay) }
	}
	if err := c.persist(ctx, "settle a chunk", do); err == nil {
		count.Add(1)
		c.Wake()
	}
}

// outageDelay is the middle of the time after which a chunk is tried again that was given back because a dependency is away.
const outageDelay = 10 * time.Second

var (
	endingFailure = &export.Failure{Class: export.Transient, Code: "JOB_ENDED", Err: errors.New("stopped because its job was cancelled or failed")}
	drainFailure  = &export.Failure{Class: export.Transient, Code: "WORKER_SHUTDOWN", Err: errDraining}
)

func timedOut(d time.Duration) error {
	return &export.Failure{Class: export.Transient, Code: export.CodeTimeout, Err: fmt.Errorf("the attempt took longer than %s (EXPORTD_CHUNK_TIMEOUT)", d)}
}

func stalled(d time.Duration) error {
	return &export.Failure{Class: export.Transient, Code: export.CodeStalled, Err: fmt.Errorf("no row and no byte moved for %s (EXPORTD_STALL_TIMEOUT)", d)}
}
