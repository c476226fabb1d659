package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"exportd/export"
)

// sweeps is what the sweeper asks of the truth database.
type sweeps interface {
	OweExpired(ctx context.Context) (int64, error)
	Expired(ctx context.Context) ([]export.ExpiredClaim, error)
	EndExpired(ctx context.Context, e export.ExpiredClaim) error
	DoneExpired(ctx context.Context, e export.ExpiredClaim, f export.File) error
	CancelLeftovers(ctx context.Context) (int64, error)
	Unfinished(ctx context.Context, age time.Duration) ([]string, error)
	Expire(ctx context.Context, retention time.Duration) (more bool, err error)
}

// Sweeper repairs what died: claims whose lease is over, jobs that nobody ended, what is past its time. Every api and consumer process runs one; there is
// no leader, and every step may be taken by several at once.
type Sweeper struct {
	Store     sweeps
	Objects   Objects
	Finisher  *Finisher
	Lease     time.Duration
	Wake      func() // tells the relay of this process that debts were written; may be nil
	Interval  time.Duration
	Retention time.Duration // of ended jobs; 0 keeps them
	Log       *slog.Logger

	// Expired counts leases that ran out, after which a run was owed again; Ended those whose chunk was ended instead.
	Expired, Ended atomic.Int64

	contact contact
}

// Run sweeps every Interval, jittered, until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	s.contact.lease = s.Lease
	tick := min(s.Interval, s.Lease/3)
	last, lastExpire := time.Now(), time.Time{}
	for sleep(ctx, tick-rand.N(tick/4+1)) {
		err := s.heartbeat(ctx)
		if err != nil || time.Since(last) < s.Interval*3/4 {
			continue
		}
		last = time.Now()
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("sweep", "error", err)
		}
		if time.Since(lastExpire) > time.Minute {
			lastExpire = time.Now()
			s.expire(ctx)
		}
	}
}

// heartbeat keeps the contact's record between sweeps.
func (s *Sweeper) heartbeat(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.Store.CancelLeftovers(bounded)
	if ctx.Err() == nil {
		s.contact.note(err == nil)
	}
	return err
}

// Sweep does one round.
func (s *Sweeper) Sweep(ctx context.Context) error {
	var errs []error
	if s.contact.unbroken() {
		n, err := s.Store.OweExpired(ctx)
		errs = append(errs, err)
		if n > 0 {
			s.Expired.Add(n)
			s.Log.Warn("leases ran out; their chunks are owed a run again", "chunks", n)
			if s.Wake != nil {
				s.Wake()
			}
		}
		errs = append(errs, s.endExpired(ctx))
	}
	jobs, err := s.Store.Unfinished(ctx, pinStuck)
	errs = append(errs, err)
	for _, id := range jobs {
		errs = append(errs, s.Finisher.Finish(ctx, id))
	}
	return errors.Join(errs...)
}

// waitForStore is how long the end of a chunk waits for a store that does not say whether the chunk's object is there. Then a job's end is worth more than an
// object that no chunk names.
const waitForStore = 10 * time.Minute

// endExpired ends the chunks of claims that will not be tried again, the oldest first. Their objects may be there all the same; looking for them takes no more than a
// part of a lease, or this process would be out of contact meanwhile.
func (s *Sweeper) endExpired(ctx context.Context) error {
	expired, err := s.Store.Expired(ctx)
	if err != nil {
		return err
	}
	looking, cancel := context.WithTimeout(ctx, s.Lease/3)
	defer cancel()
	var errs []error
	var away error // what is away for the first is away for all
	for i, e := range expired {
		var file *export.File
		if away == nil {
			file, err = objectOf(looking, s.Objects, &e.Overtaken)
			if err != nil && export.FailureOf(err).Class != export.Permanent { // a store that refuses for good must not keep a job from its end either
				if i > 0 { // it answered before: the time is up, or the next round finds it away
					return errors.Join(append(errs, err)...)
				}
				away = err
			}
		}
		switch {
		case file != nil:
			err = s.Store.DoneExpired(ctx, e, *file)
		case away != nil && e.Overdue < waitForStore:
			return errors.Join(append(errs, away)...)
		default:
			err = s.Store.EndExpired(ctx, e)
		}
		errs = append(errs, s.ended(e, err))
	}
	return errors.Join(errs...)
}

func (s *Sweeper) ended(e export.ExpiredClaim, err error) error {
	if errors.Is(err, export.ErrStale) {
		return nil // its owner came back
	}
	if err == nil {
		s.Ended.Add(1)
		s.Log.Warn("a chunk ended because its worker was lost", "jobId", e.JobID, "chunkKey", e.ChunkKey(), "attempt", e.Attempts, "requestId", e.RequestID)
		s.Finisher.Check(e.JobID)
	}
	return err
}

func (s *Sweeper) expire(ctx context.Context) {
	for range 50 {
		more, err := s.Store.Expire(ctx, s.Retention)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("remove what is past its time", "error", err)
		}
		if err != nil || !more {
			return
		}
	}
}

// contact knows since when the database has answered without a break. Only after a full lease of that may claims be taken over: before, their
// owners may have been as cut off as this process was.
type contact struct {
	lease time.Duration

	mu          sync.Mutex
	since, last time.Time
}

// note records an answer, or its absence. A process that noted nothing for most of a lease was out of contact too.
func (c *contact) note(answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !answered {
		c.since = time.Time{}
	} else if c.since.IsZero() || now.Sub(c.last) > c.lease*2/3 {
		c.since = now
	}
	c.last = now
}

// unbroken says whether the database has answered for a full lease without a break.
func (c *contact) unbroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return !c.since.IsZero() && now.Sub(c.since) >= c.lease && now.Sub(c.last) <= c.lease*2/3
}
