package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"exportd/export"
)

// chunk claims and runs the chunk that a hint names, and settles the claim. The hint is done with once the database knows how it ended; it is not if the process
// has to stop before the database heard of it. It is earlier where chunks take milliseconds, see pace: from the claim on, the lease sees to the chunk, not the hint.
func (c *Consumer) chunk(ctx, life context.Context, h hint) {
	id := uuid.NewString() // one for all tries: claiming again after a lost answer gives the same claim
	var claim *export.Claim
	var refusal export.Refusal
	log := c.Log.With("jobId", h.ref.JobID, "chunkKey", h.ref.ChunkKey(), "requestId", h.requestID)
	claiming, cancel := outlast(ctx, export.WithLog(life, log), claimGrace)
	defer cancel()
	asked := time.Now()
	err := c.persist(claiming, "claim a chunk", func(ctx context.Context) (err error) {
		claim, refusal, err = c.Store.Claim(ctx, h.ref, id)
		return err
	})
	if err != nil {
		return // stopped; if the claim was taken all the same, its lease runs out
	}
	if c.claims.Add(1)%int64(max(16, c.Concurrency/2)) == 0 {
		c.Wake() // there is room in the backlog, which is twice the fleet's concurrency and 64 at least: a quarter of it, if the others claim as fast
	}
	if claim == nil {
		c.Stats.Refused.Add(1)
		log.Debug("no claim", "reason", refusal)
		h.done()
		return
	}
	c.Stats.Claimed.Add(1)
	if c.pace.mayBeEarly() {
		h.done()
		h.done = c.pace.caughtUp
	}
	c.run(life, claim, asked, h)
}

// claimGrace is how long the answer to a claim is waited for after the order to stop: a claim that nobody heard of costs a lease and an attempt.
const claimGrace = 2 * time.Second

// result of an attempt.
type result struct {
	file   export.File
	reused bool
}

// Outcome says how a claim ended, as far as the one who held it knows.
type Outcome string

const (
	Generated    Outcome = "generated" // the chunk is done
	Reused       Outcome = "reused"    // the chunk is done, by a file that another made
	Retried      Outcome = "retry"
	GivenBack    Outcome = "given_back" // without an attempt spent
	DeadLettered Outcome = "dead_lettered"
	Cancelled    Outcome = "cancelled"
	Lost         Outcome = "lost"      // somebody else has the chunk
	unsettled    Outcome = "unsettled" // the process had to end first
)

// Outcomes are those that Ended is told of.
var Outcomes = []Outcome{Generated, Reused, Retried, GivenBack, DeadLettered, Cancelled, Lost}

// run makes the attempt that the claim, asked for at that time, is for. A claim whose file is there is settled beside the slot, which goes on to the next
// chunk: both wishes reach the database together.
func (c *Consumer) run(life context.Context, claim *export.Claim, asked time.Time, h hint) {
	life, log := c.withLog(life, claim)
	life, end := c.traceAttempt(life, claim, h.traceparent)
	ctx, stop := context.WithCancelCause(life)
	defer stop(nil)
	limited, cancel := context.WithTimeoutCause(ctx, c.ChunkTimeout, timedOut(c.ChunkTimeout))
	defer cancel()
	f := &flight{claim: claim, life: life, stop: stop}
	f.renewed(asked)
	c.flights.add(f)

	began := time.Now()
	res, err := c.attempt(limited, f)
	c.pace.ended()
	ended := func(outcome Outcome, err error) {
		took := time.Since(began)
		if n := c.Stats.Of(outcome); n != nil {
			n.Add(1)
			c.Ended(outcome, took)
		}
		switch outcome {
		case Generated, Reused:
			log.Info("chunk done", "rows", res.file.Rows, "bytes", res.file.Bytes, "reused", res.reused, "took", took.Round(time.Millisecond))
		case Lost:
			log.Warn("claim lost", "error", err)
		}
		if c.Trace != nil {
			end(err, slog.String("exportd.outcome", string(outcome)), slog.Int64("exportd.rows", res.file.Rows), slog.Int64("exportd.bytes", res.file.Bytes))
		}
		if last := c.flights.remove(f); last && c.Finisher != nil {
			c.Finisher.Check(claim.JobID)
		}
		h.done()
	}
	if err != nil {
		if limited.Err() != nil {
			err = fmt.Errorf("%w (while: %v)", context.Cause(limited), err)
		}
		ended(c.settleFailure(life, claim, err), err)
		return
	}
	c.settles <- struct{}{}
	c.workers.Go(func() {
		defer func() { <-c.settles }()
		ended(c.settleDone(life, claim, res))
	})
}

// Of counts the claims that ended so; nil for what is no outcome.
func (s *Stats) Of(o Outcome) *atomic.Int64 {
	return map[Outcome]*atomic.Int64{
		Generated: &s.Generated, Reused: &s.Reused, Retried: &s.Retried, GivenBack: &s.GivenBack, DeadLettered: &s.DeadLettered, Cancelled: &s.Cancelled, Lost: &s.LeasesLost,
	}[o]
}

func (c *Consumer) settleDone(ctx context.Context, claim *export.Claim, res result) (Outcome, error) {
	err := c.persist(ctx, "settle a chunk as done", func(ctx context.Context) error { return c.Store.Done(ctx, claim, res.file, res.reused) })
	switch {
	case err == nil && res.reused:
		return Reused, nil
	case err == nil:
		c.Stats.Rows.Add(res.file.Rows)
		c.Stats.Bytes.Add(res.file.Bytes)
		return Generated, nil
	case errors.Is(err, export.ErrStale):
		if !res.reused {
			c.removeOrphan(ctx, claim, res.file)
		}
		return Lost, err
	default:
		return unsettled, err // the drain time is over; whoever takes over finds the object
	}
}

// settleFailure ends the claim of an attempt that failed, or was stopped.
func (c *Consumer) settleFailure(ctx context.Context, claim *export.Claim, cause error) (outcome Outcome) {
	why, log := export.FailureOf(cause), c.log(ctx)
	var do func(context.Context) error
	switch {
	case errors.Is(cause, export.ErrStale):
		return Lost
	case errors.Is(cause, export.ErrEnding):
		log.Info("chunk stopped: its job is ending")
		outcome = Cancelled
		do = func(ctx context.Context) error { return c.Store.GiveBack(ctx, claim, endingFailure, 0) }
	case errors.Is(cause, errDraining), errors.Is(cause, context.Canceled):
		log.Info("chunk given back: the worker is shutting down")
		outcome = GivenBack
		do = func(ctx context.Context) error { return c.Store.GiveBack(ctx, claim, drainFailure, 0) }
	case why.Class == export.Outage && c.breaker.confirm(ctx, why.Dependency, c.hurry):
		delay := export.Backoff(1, outageDelay, outageDelay)
		log.Warn("chunk given back: a dependency is away", "dependency", why.Dependency, "error", cause, "delay", delay)
		outcome = GivenBack
		do = func(ctx context.Context) error { return c.Store.GiveBack(ctx, claim, why, delay) }
	case why.Class == export.Permanent || claim.Attempt >= c.MaxAttempts:
		log.Warn("chunk dead-lettered", "code", why.Code, "class", why.Class, "error", cause)
		outcome = DeadLettered
		do = func(ctx context.Context) error { return c.Store.DeadLetter(ctx, claim, why) }
	default:
		delay := export.Backoff(claim.Attempt, c.RetryBase, c.RetryMax)
		log.Warn("chunk failed, will be tried again", "code", why.Code, "error", cause, "delay", delay)
		outcome = Retried
		do = func(ctx context.Context) error { return c.Store.Retry(ctx, claim, why, delay) }
	}
	switch err := c.persist(ctx, "settle a chunk", do); {
	case err == nil:
		c.Wake()
		return outcome
	case errors.Is(err, export.ErrStale):
		return Lost
	default:
		return unsettled
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
