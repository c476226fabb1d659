package broker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"exportd/export"
)

const (
	// A debt is leased for 15 s; what could not be sent early in that time is left to become due again, so that two relays do not send the same rows.
	leaseUse = 10 * time.Second
	// idleMost bounds the sleep between two looks at the database.
	idleMost = time.Second
	// gather is how long a relay that has moved all it could waits for more, unless it is woken: a broker takes a few batches more cheaply than many single messages.
	gather = 40 * time.Millisecond

	// confirmTimeout bounds the statement that records a send, which goes on when the process is told to stop.
	confirmTimeout = 5 * time.Second

	retryFirst = 500 * time.Millisecond
	retryMost  = 30 * time.Second

	defaultBatch = 500
	// doomed is how many rows in a row the broker must refuse alone, and none taken, before the refusals are held to be about all of them.
	doomed = 3
)

// store is the database's side: implemented by db.Store.
type store interface {
	// LeaseDebts takes up to limit due debts for 15 s, bounded by the backlog rule and interleaved over jobs. It has committed when it returns.
	LeaseDebts(ctx context.Context, limit int) ([]export.Debt, error)
	// ReturnDebts gives back what was leased and surely not sent.
	ReturnDebts(ctx context.Context, unsent []export.Debt) error
	// ConfirmSent records that the broker has them.
	ConfirmSent(ctx context.Context, sent []export.Debt) error
	// SetAsideDebt takes a debt that the broker refuses out of the way.
	SetAsideDebt(ctx context.Context, d export.Debt, reason string) error
	LeaseOutbox(ctx context.Context, destination string, limit int) ([]export.OutboxMessage, error)
	DeleteOutbox(ctx context.Context, ids []int64) error
	SetAsideOutbox(ctx context.Context, id int64, reason string) error
	// NextDue says how long it is until something is due.
	NextDue(ctx context.Context) (time.Duration, error)
}

// sender is a Publisher.
type sender interface {
	Publish(ctx context.Context, queue string, msgs []export.Message) error
}

// RelayConfig says what is relayed to where. Publisher must be the relay's own.
type RelayConfig struct {
	Store                   store
	Publisher               sender
	WorkQueue, ParkingQueue string
	Batch                   int // most messages in a transaction; 0: 500
	Trace                   export.StartSpan
	Log                     *slog.Logger
}

// Relay moves debts to the work queue and dead-letter notices to the parking queue: lease, send, confirm. No transaction spans the sending. A crash
// between send and confirm repeats messages; nothing loses them. The two flows fail and recover apart.
type Relay struct {
	cfg   RelayConfig
	flows []*flow
	stats relayCounters
}

// NewRelay makes a relay that Run starts.
func NewRelay(cfg RelayConfig) *Relay {
	cfg.Batch = cmp.Or(cfg.Batch, defaultBatch)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Relay{cfg: cfg}
	r.flows = []*flow{
		{name: "debts", queue: cfg.WorkQueue, lease: r.leaseDebts, nextDue: cfg.Store.NextDue},
		{name: "dead letters", queue: cfg.ParkingQueue, lease: r.leaseNotices},
	}
	for _, f := range r.flows {
		f.size, f.waker = cfg.Batch, make(chan struct{}, 1)
	}
	return r
}

// Wake says that something may have become due, or that the backlog shrank. It never blocks.
func (r *Relay) Wake() {
	for _, f := range r.flows {
		select {
		case f.waker <- struct{}{}:
		default:
		}
	}
}

// Run relays until ctx ends. A failure is logged and followed by a jittered backoff that Wake does not shorten: leased rows become due again by
// themselves, and a broker or database in trouble is not flooded.
func (r *Relay) Run(ctx context.Context) {
	var flows sync.WaitGroup
	for _, f := range r.flows {
		flows.Go(func() { r.run(ctx, f) })
	}
	flows.Wait()
}

func (r *Relay) run(ctx context.Context, f *flow) {
	failures, idle := 0, 0
	for ctx.Err() == nil {
		moved, all, err := r.round(ctx, f)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			r.stats.failures.Add(1)
			wait := export.Backoff(failures, retryFirst, retryMost)
			r.cfg.Log.Warn("relay: trying again", "flow", f.name, "error", err, "wait", wait, "batch", f.size)
			sleep(ctx, wait, nil)
		case moved:
			failures, idle = 0, 0
			if all {
				sleep(ctx, gather, f.waker)
			}
		default: // no reason to take the failure before for over: what it left is leased still
			idle++
			sleep(ctx, f.idle(ctx, idle), f.waker)
		}
	}
}

// round moves one batch, and says whether that was all there was, or all that there was room for.
func (r *Relay) round(ctx context.Context, f *flow) (moved, all bool, err error) {
	size := f.size
	rows, err := f.lease(ctx, size)
	if err != nil || len(rows.msgs) == 0 {
		return false, true, err
	}
	err = r.send(ctx, f, rows)
	for _, end := range rows.spans {
		end(err)
	}
	return true, len(rows.msgs) < size, err
}

// flow is one kind of row and where it goes.
type flow struct {
	name, queue string
	size        int // of the next batch: halved by a failed connection, doubled by a success
	waker       chan struct{}
	lease       func(ctx context.Context, limit int) (leased, error)
	nextDue     func(ctx context.Context) (time.Duration, error) // nil: look once a second
}

// leased are rows that are ours for a while, as messages, with what to do once their fate is known.
type leased struct {
	msgs    []export.Message
	taken   func(ctx context.Context, from, to int) error // the broker confirmed [from, to)
	refused func(ctx context.Context, i int, reason string) error
	unsent  func(ctx context.Context) error // no broker was reached; nil: their lease runs out
	spans   []export.EndSpan
}

// idle is how long to sleep after the given number of rounds that found nothing. Something can be due and yet not be had, because the backlog in the
// broker is full: then look again soon, but less and less often.
func (f *flow) idle(ctx context.Context, rounds int) time.Duration {
	if f.nextDue == nil {
		return idleMost
	}
	due, err := f.nextDue(ctx)
	if err != nil {
		return idleMost // the next round meets the same error and reports it
	}
	soon := min(5*time.Millisecond<<min(rounds, 6), idleMost)
	return min(max(due, soon), idleMost)
}

func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}

func (r *Relay) leaseDebts(ctx context.Context, limit int) (leased, error) {
	debts, err := r.cfg.Store.LeaseDebts(ctx, limit)
	if err != nil {
		return leased{}, err
	}
	spans := r.trace(ctx, debts)
	msgs := make([]export.Message, len(debts))
	for i, d := range debts {
		msgs[i] = export.WorkMessage(d)
	}
	return leased{msgs,
		func(ctx context.Context, from, to int) error {
			r.stats.published.Add(int64(to - from))
			return r.cfg.Store.ConfirmSent(ctx, debts[from:to])
		},
		func(ctx context.Context, i int, reason string) error {
			r.cfg.Log.Error("relay: the broker refuses a message, set aside", "reason", reason,
				"jobId", debts[i].JobID, "chunkKey", debts[i].ChunkKey(), "attempt", debts[i].Attempt, "requestId", debts[i].RequestID)
			return r.cfg.Store.SetAsideDebt(ctx, debts[i], reason)
		},
		func(ctx context.Context) error { return r.cfg.Store.ReturnDebts(ctx, debts) },
		spans,
	}, nil
}

// trace begins a span for each debt that belongs to a trace, and puts what its message leads to below that.
func (r *Relay) trace(ctx context.Context, debts []export.Debt) (spans []export.EndSpan) {
	if r.cfg.Trace == nil {
		return nil
	}
	for i := range debts {
		d := &debts[i]
		if d.Traceparent == "" {
			continue
		}
		_, traceparent, end := r.cfg.Trace(ctx, export.Span{Name: "publish", Kind: export.SpanProducer, Parent: d.Traceparent, Attrs: []slog.Attr{
			slog.String("messaging.system", "activemq"), slog.String("messaging.destination.name", r.cfg.WorkQueue),
			slog.String("exportd.job", d.JobID), slog.String("exportd.chunk", d.ChunkKey()), slog.Int("exportd.attempt", d.Attempt),
		}})
		d.Traceparent = traceparent
		spans = append(spans, end)
	}
	return spans
}

func (r *Relay) leaseNotices(ctx context.Context, limit int) (leased, error) {
	notices, err := r.cfg.Store.LeaseOutbox(ctx, export.OutboxParking, limit)
	if err != nil {
		return leased{}, err
	}
	msgs, ids := make([]export.Message, len(notices)), make([]int64, len(notices))
	for i, n := range notices {
		msgs[i], ids[i] = n.Message, n.ID
	}
	return leased{msgs,
		func(ctx context.Context, from, to int) error {
			r.stats.parked.Add(int64(to - from))
			return r.cfg.Store.DeleteOutbox(ctx, ids[from:to])
		},
		func(ctx context.Context, i int, reason string) error {
			h := msgs[i].Headers
			r.cfg.Log.Error("relay: the broker refuses a dead-letter notice, set aside", "id", ids[i], "reason", reason,
				"jobId", h[export.HeaderJobID], "chunkKey", h[export.HeaderChunkKey], "attempt", h[export.HeaderAttempt], "requestId", h[export.HeaderRequestID])
			return r.cfg.Store.SetAsideOutbox(ctx, ids[i], reason)
		},
		nil, nil,
	}, nil
}
