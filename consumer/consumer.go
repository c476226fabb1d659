package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exportd/export"
)

// Config of a Consumer.
type Config struct {
	Store   store
	Source  source
	Objects Objects
	// Intake is the work queue; nil dispatches from the database alone.
	Intake Intake
	// Owed delivers when there are new debts in the database; without it they are found at the next look. May be nil.
	Owed <-chan struct{}
	// Finisher ends jobs whose last chunk was settled here.
	Finisher *Finisher
	// Wake tells the relay of this process that debts were claimed or written. May be nil.
	Wake func()

	Host, Version string
	Concurrency   int // chunks at a time
	Lease         time.Duration
	MaxAttempts   int
	RetryBase     time.Duration
	RetryMax      time.Duration
	ChunkTimeout  time.Duration // one attempt's limit
	StallTimeout  time.Duration // most time without a row or a byte moved, from the first row on
	DrainTimeout  time.Duration // from the order to stop to the end of Run
	// Fallback is how long a debt must have been due, or published and unclaimed, before it is taken from the database although there is an Intake; 0 never.
	Fallback     time.Duration
	ReuseEnabled bool
	ReuseWindow  int // days
	// Ended is told of every claim that ended here, and how long it took. May be nil; must not block.
	Ended func(Outcome, time.Duration)
	Trace export.StartSpan
	Log   *slog.Logger
}

// Consumer works on chunks. Make one with New, run it once.
type Consumer struct {
	Config
	Stats   Stats
	flights flights
	breaker *breaker
	debts   chan export.Debt // taken from the database
	claims  atomic.Int64     // asked for
	pace    pace
	slots   chan struct{} // one token per chunk at work
	freed   chan struct{} // a slot became free
	settles chan struct{} // one token per chunk whose file is there and which is being settled while its slot has the next
	workers sync.WaitGroup
	hurry   chan struct{}  // closed late in the drain time: what hangs is not waited for
	aborts  sync.WaitGroup // of uploads

	unaborted uploads
}

// Stats counts what the consumer did since its start.
type Stats struct {
	Claimed, Generated, Reused, Retried, GivenBack, DeadLettered, Cancelled, LeasesLost atomic.Int64
	Unreadable, Refused                                                                 atomic.Int64
	Rows, Bytes                                                                         atomic.Int64
}

// errDraining is the cause with which chunks are stopped that did not end within the drain time.
var errDraining = errors.New("the worker is shutting down")

// New makes a Consumer.
func New(cfg Config) *Consumer {
	c := &Consumer{Config: cfg, debts: make(chan export.Debt, 2*cfg.Concurrency), slots: make(chan struct{}, cfg.Concurrency), settles: make(chan struct{}, cfg.Concurrency),
		freed: make(chan struct{}, 1), hurry: make(chan struct{})}
	c.pace.ends = make([]time.Time, cfg.Concurrency)
	c.flights.byClaim = map[string]*flight{}
	c.breaker = newBreaker(cfg.Log, map[string]func(context.Context) error{"source": cfg.Source.Probe, "s3": cfg.Objects.Probe})
	if cfg.Wake == nil {
		c.Wake = func() {}
	}
	if cfg.Ended == nil {
		c.Ended = func(Outcome, time.Duration) {}
	}
	return c
}

// InFlight is the number of chunks at work or being settled.
func (c *Consumer) InFlight() int { return len(c.slots) + len(c.settles) }

// Dependencies are those whose outage stops a consumer from taking chunks.
var Dependencies = []string{"database", "source", "s3"}

// IsAway says whether the dependency is.
func (c *Consumer) IsAway(dependency string) bool { return slices.Contains(c.Away(), dependency) }

// Away names the dependencies whose outage stops this consumer from taking chunks.
func (c *Consumer) Away() []string { return c.breaker.away() }

// Run works until ctx ends, then drains: chunks at work get DrainTimeout to end, the rest is given back.
func (c *Consumer) Run(ctx context.Context) error {
	// What keeps claims alive and settles them outlives the order to stop.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var keepers sync.WaitGroup
	defer keepers.Wait()
	defer end()
	keepers.Go(func() { c.renewLoop(life) })
	keepers.Go(func() { c.watchLoop(life) })
	keepers.Go(func() { c.breaker.run(life) })
	for range c.Concurrency {
		c.workers.Go(func() { c.workLoop(ctx, life) })
	}
	c.workers.Go(func() { c.databaseLoop(ctx) })
	c.workers.Go(func() { c.pauseLoop(ctx) })
	c.aborts.Go(func() { c.abortLoop(ctx) })

	<-ctx.Done()
	c.Log.Info("draining", "inFlight", c.InFlight(), "timeout", c.DrainTimeout)
	// The last part of the drain time is kept for giving back, for the acknowledgements, and for the rest of the process to end. Nothing that hangs, be it
	// a dependency or a chunk, may hold up the end: what is not given back by then is taken over when its lease is over.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout*19/20)
	defer cancel()
	for _, t := range []*time.Timer{
		time.AfterFunc(c.DrainTimeout*8/10, func() { c.flights.stopAll(errDraining) }),
		time.AfterFunc(c.DrainTimeout*17/20, func() { close(c.hurry) }),
		time.AfterFunc(c.DrainTimeout*9/10, end),
	} {
		defer t.Stop()
	}
	if c.Intake != nil {
		c.Intake.Drain()
	}
	idle := waitUntil(last, &c.workers)
	if !idle {
		c.Log.Warn("the drain time is over; what is at work is left to whoever takes it over", "inFlight", c.InFlight())
	}
	end()
	waitUntil(last, &keepers) // a heartbeat after the farewell would list us again
	var farewell sync.WaitGroup
	farewell.Go(func() {
		if err := c.Store.Goodbye(last); err != nil {
			c.Log.Warn("leave the fleet", "error", err)
		}
	})
	if c.Intake != nil {
		if err := c.Intake.Close(last); err != nil {
			c.Log.Warn("close the intake", "error", err) // the broker delivers again what it did not hear of
		}
	}
	farewell.Wait()
	if idle {
		waitUntil(last, &c.aborts)
	}
	return nil
}

// waitUntil waits for the group; false means that ctx ended first.
func waitUntil(ctx context.Context, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// workLoop is one worker: it works on one hint after the other until ctx ends.
func (c *Consumer) workLoop(ctx, life context.Context) {
	var deliveries <-chan Delivery
	if c.Intake != nil {
		deliveries = c.Intake.Deliveries()
	}
	for ctx.Err() == nil { // a select would begin one of the chunks at hand as often as not
		select {
		case <-ctx.Done():
			return
		case d, ok := <-deliveries:
			if !ok {
				deliveries = nil // the intake has ended before us; the database may still have work
				continue
			}
			c.busy(func() { c.deliver(ctx, life, d) })
		case d := <-c.debts:
			c.busy(func() { c.chunk(ctx, life, hint{d.Ref, d.RequestID, d.Traceparent, func() {}}) })
		}
	}
}

func (c *Consumer) busy(do func()) {
	c.slots <- struct{}{}
	defer func() {
		<-c.slots
		select {
		case c.freed <- struct{}{}:
		default:
		}
	}()
	do()
}

// deliver works on a message. It is acknowledged once the database knows how it ended, or, where chunks take milliseconds, that it is claimed: see pace.
func (c *Consumer) deliver(ctx, life context.Context, d Delivery) {
	m := d.Message()
	ref, err := export.ParseWorkMessage(m.Body)
	if err != nil {
		c.Stats.Unreadable.Add(1)
		c.Log.Warn("park a message that is no chunk of ours", "reason", err, "bytes", len(m.Body), "requestId", requestID(m))
		m.Headers = parkedHeaders(m.Headers, err.Error())
		if c.persist(life, "park the message", func(ctx context.Context) error { return c.Store.ParkAsItCame(ctx, m) }) != nil {
			return
		}
		c.Wake()
		c.ack(d)
		return
	}
	c.chunk(ctx, life, hint{ref, requestID(m), m.Headers[export.HeaderTraceparent], func() { c.ack(d) }})
}

func (c *Consumer) ack(d Delivery) {
	if err := d.Ack(); err != nil {
		c.Log.Debug("ack", "error", err) // it will be delivered again and refused
	}
}

// parkedHeaders are the headers that survive parking: those of the sender, without the broker's own, and the reason.
func parkedHeaders(h map[string]string, reason string) map[string]string {
	kept := map[string]string{export.HeaderReason: export.ErrorText(reason)}
	for _, name := range []string{export.HeaderJobID, export.HeaderChunkKey, export.HeaderAttempt, export.HeaderTraceparent, export.HeaderRequestID,
		export.HeaderCorrelation, export.HeaderPriority, "message-id", "content-type"} {
		if v, ok := h[name]; ok {
			if name == "message-id" {
				name = "original-message-id"
			}
			kept[name] = export.ErrorText(v) // fit for storage
		}
	}
	return kept
}

// pauseLoop keeps the intake closed while a dependency is away, so that messages go to consumers that can work on them.
func (c *Consumer) pauseLoop(ctx context.Context) {
	if c.Intake == nil {
		return
	}
	for {
		changed := c.breaker.changed()
		if len(c.breaker.away()) > 0 {
			c.Intake.Pause()
		} else {
			c.Intake.Resume()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// persist repeats do until the database answers, with backoff. It ends with nil, export.ErrStale, or the end of ctx.
func (c *Consumer) persist(ctx context.Context, what string, do func(context.Context) error) error {
	for n := 1; ; n++ {
		err := do(ctx)
		if err == nil || errors.Is(err, export.ErrStale) || errors.Is(err, export.ErrNotFound) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.log(ctx).Warn(what, "error", err, "try", n)
		wait := time.NewTimer(export.Backoff(n, 100*time.Millisecond, 5*time.Second))
		select {
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		case <-wait.C:
		}
	}
}
