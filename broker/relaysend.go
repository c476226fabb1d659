package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// send publishes rows as one batch; if the broker refuses that twice, one by one.
func (r *Relay) send(ctx context.Context, f *flow, rows leased) error {
	began := time.Now()
	var refused *RefusedError
	var unsent interface{ Unsent() bool }
	err := r.cfg.Publisher.Publish(ctx, f.queue, rows.msgs)
	if errors.As(err, &refused) {
		err = r.cfg.Publisher.Publish(ctx, f.queue, rows.msgs)
	}
	switch {
	case err == nil:
		f.size = min(f.size*2, r.cfg.Batch)
		r.stats.batches.Add(1)
		r.stats.lastSuccess.Store(time.Now().UnixMilli())
		return r.confirm(ctx, rows, 0, len(rows.msgs))
	case errors.As(err, &refused):
		return r.sendSingly(ctx, f, rows, began, err)
	case errors.As(err, &unsent) && unsent.Unsent() && rows.unsent != nil:
		return errors.Join(err, r.giveBack(ctx, rows))
	default:
		f.size = max(f.size/2, 1)
		return err
	}
}

// giveBack makes rows that no broker was reached for available at once: to this relay's next try, and to consumers who take debts from the database.
func (r *Relay) giveBack(ctx context.Context, rows leased) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	return rows.unsent(ctx)
}

// confirm is not cut short by the end of the process: what the broker has and the database does not know of is sent again.
func (r *Relay) confirm(ctx context.Context, rows leased, from, to int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmTimeout)
	defer cancel()
	return rows.taken(ctx, from, to)
}

// sendSingly finds the rows that spoil a batch. A row is set aside only when a neighbour was taken: rights that are missing or a store that is
// full refuse every row, and are not the rows' fault. The order is drawn anew each time, so that bad rows in front do not hide good ones for ever.
func (r *Relay) sendSingly(ctx context.Context, f *flow, rows leased, began time.Time, batchErr error) error {
	taken := 0
	reasons := map[int]string{}
	for _, i := range rand.Perm(len(rows.msgs)) {
		if time.Since(began) > leaseUse || taken == 0 && len(reasons) >= doomed {
			break
		}
		var refused *RefusedError
		switch err := r.cfg.Publisher.Publish(ctx, f.queue, rows.msgs[i:i+1]); {
		case err == nil:
			taken++
			r.stats.lastSuccess.Store(time.Now().UnixMilli())
			if err := r.confirm(ctx, rows, i, i+1); err != nil {
				return err
			}
		case errors.As(err, &refused):
			reasons[i] = refused.Message
		default:
			return err
		}
	}
	if taken == 0 {
		return batchErr
	}
	for i, reason := range reasons {
		r.stats.setAside.Add(1)
		if err := rows.refused(ctx, i, reason); err != nil {
			return err
		}
	}
	return nil
}

type relayCounters struct {
	published, parked, batches, setAside, failures, lastSuccess atomic.Int64
}

// RelayStats are totals since the start.
type RelayStats struct {
	Published   int64     // debts that the broker confirmed
	Parked      int64     // dead-letter notices that the broker confirmed
	Batches     int64     // confirmed whole
	SetAside    int64     // rows that the broker refused alone
	Failures    int64     // rounds that ended in an error
	LastSuccess time.Time // of a send; zero before the first
}

// Stats may be called at any time.
func (r *Relay) Stats() RelayStats {
	s := RelayStats{
		Published: r.stats.published.Load(), Parked: r.stats.parked.Load(), Batches: r.stats.batches.Load(),
		SetAside: r.stats.setAside.Load(), Failures: r.stats.failures.Load(),
	}
	if ms := r.stats.lastSuccess.Load(); ms > 0 {
		s.LastSuccess = time.UnixMilli(ms)
	}
	return s
}
