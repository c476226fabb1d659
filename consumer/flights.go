package consumer

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exportd/export"
)

// flight is a claim that this process holds, from the claim to the settlement.
type flight struct {
	claim *export.Claim
	life  context.Context // of the consumer: outlives the order to stop
	stop  context.CancelCauseFunc
	bytes atomic.Int64 // written by the source so far
	beats atomic.Int64 // other signs of life
	up    atomic.Pointer[Upload]
	asked atomic.Pointer[time.Time] // for the lease that it has
}

// renewed notes when the lease was asked for that was given: it began later, whatever the clock of the database says.
func (f *flight) renewed(asked time.Time) { f.asked.Store(&asked) }

// unrenewed is at least how long the lease has been running.
func (f *flight) unrenewed() time.Duration { return time.Since(*f.asked.Load()) }

// countBytes passes writes on and counts them.
type countBytes struct {
	w io.Writer
	n *atomic.Int64
}

func (c countBytes) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// moved is a number that changes as long as the attempt moves.
func (f *flight) moved() int64 {
	n := f.bytes.Load() + f.beats.Load()
	if up := f.up.Load(); up != nil {
		n += (*up).Moved()
	}
	return n
}

type flights struct {
	mu      sync.Mutex
	byClaim map[string]*flight
}

func (fs *flights) add(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.byClaim[f.claim.ID] = f
}

// remove takes f out once its claim has ended. last says that no other claim of its job is left here: of all processes, the one that settles the last chunk
// of a job sees this after it, so that the job's end needs no look at the database after every chunk.
func (fs *flights) remove(f *flight) (last bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.byClaim, f.claim.ID)
	for _, other := range fs.byClaim {
		if other.claim.JobID == f.claim.JobID {
			return false
		}
	}
	return true
}

func (fs *flights) all() []*flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Collect(maps.Values(fs.byClaim))
}

func (fs *flights) stopAll(cause error) {
	for _, f := range fs.all() {
		f.stop(cause)
	}
}

// renewLoop prolongs all claims in flight every third of a lease, in one statement. Only the answer "lost" stops a chunk: while the database does not
// answer, its owner holds on, and the guard before the last step decides.
func (c *Consumer) renewLoop(ctx context.Context) {
	for {
		third := c.Lease / 3
		if !sleep(ctx, third-rand.N(third/5+1)) {
			return
		}
		all := c.flights.all()
		if len(all) == 0 {
			continue
		}
		claims := make([]*export.Claim, len(all))
		for i, f := range all {
			claims[i] = f.claim
		}
		bounded, cancel := context.WithTimeout(ctx, third)
		asked := time.Now()
		answers, err := c.Store.Renew(bounded, claims)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				c.Log.Warn("renew leases", "claims", len(all), "error", err)
			}
			continue
		}
		for _, f := range all {
			switch answers[f.claim.ID] {
			case export.Renewed:
				f.renewed(asked)
			case export.RenewalLost:
				f.stop(export.ErrStale) // no effect on a flight that has just settled
			}
		}
	}
}

// watchLoop looks once a second: at the jobs of the chunks in flight (those of ending jobs are stopped), at the truth database (heartbeat), and at
// attempts that do not move any more.
func (c *Consumer) watchLoop(ctx context.Context) {
	type sign struct {
		moved int64
		since time.Time
	}
	signs := map[*flight]sign{}
	beat := time.Time{}
	for sleep(ctx, 900*time.Millisecond+rand.N(200*time.Millisecond)) {
		all := c.flights.all()
		seen := make(map[*flight]sign, len(all))
		jobs := map[string]bool{}
		for _, f := range all {
			jobs[f.claim.JobID] = true
			s, ok := signs[f]
			if n := f.moved(); !ok || n != s.moved || f.bytes.Load() == 0 {
				s = sign{n, time.Now()}
			}
			seen[f] = s
			if time.Since(s.since) >= c.StallTimeout {
				f.stop(stalled(c.StallTimeout))
			}
		}
		signs = seen

		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		ending, err := c.Store.EndingJobs(bounded, slices.Collect(maps.Keys(jobs)))
		cancel()
		if err == nil && time.Since(beat) > 5*time.Second {
			// Not cut short by the end: the server might execute what nobody waits for any more, after the farewell.
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			if err = c.Store.Heartbeat(bounded, c.Host, c.Version, c.Concurrency, len(all)); err == nil {
				beat = time.Now()
			}
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
		c.breaker.set("database", err)
		for _, f := range all {
			if slices.Contains(ending, f.claim.JobID) {
				f.stop(export.ErrEnding)
			}
		}
	}
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
