package broker

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/sethvargo/go-retry"
)

// keep keeps one connection with the given window for as long as one is wanted.
func (s *Subscriber) keep(ctx context.Context, share int) {
	backoff := newBackoff()
	for s.waitWanted(ctx) {
		l, err := s.open(ctx, share)
		if err == nil {
			began := time.Now()
			if err = s.serve(ctx, l); err == nil {
				continue // paused or closing
			}
			if time.Since(began) > steady {
				backoff = newBackoff()
			}
		}
		wait, _ := backoff.Next()
		if ctx.Err() != nil || s.wish().drained {
			return
		}
		s.log.Warn("no subscription, trying again", "error", err, "wait", wait)
		s.sleep(ctx, wait)
	}
}

func newBackoff() retry.Backoff {
	return retry.WithCappedDuration(reconnectMost, retry.WithJitterPercent(50, retry.NewExponential(reconnectFirst)))
}

// wish is what the outside wants of the subscriber, with the channel that is closed when it changes its mind.
type wish struct {
	paused, drained bool
	closing         context.Context
	changed         <-chan struct{}
}

func (s *Subscriber) wish() wish {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wish{s.paused, s.drained, s.closing, s.changed}
}

// waitWanted waits while the subscriber is paused. It returns false when no connection will be wanted any more.
func (s *Subscriber) waitWanted(ctx context.Context) bool {
	for ctx.Err() == nil {
		w := s.wish()
		if w.drained || !w.paused {
			return !w.drained
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
		}
	}
	return false
}

// sleep ends early when no connection will be wanted any more.
func (s *Subscriber) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w := s.wish()
		if w.drained {
			return
		}
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-w.changed:
		}
	}
}

// open connects and subscribes. The barrier proves that the broker accepted the subscription. Messages may be handed out and acked before it: from the
// subscription on, the line is one that Close must finish well.
func (s *Subscriber) open(ctx context.Context, share int) (*line, error) {
	c, err := s.dialUnlessDrained(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := c.Subscribe("/queue/"+s.queue, stomp.AckClientIndividual, stomp.SubscribeOpt.Header("activemq.prefetchSize", strconv.Itoa(share)))
	if err != nil {
		c.kill()
		return nil, translate(err)
	}
	l := &line{conn: c, sub: sub, settled: make(chan struct{}, 1)}
	s.mu.Lock()
	s.lines = append(s.lines, l)
	l.holding = s.drained
	s.mu.Unlock()
	go s.pump(l)
	if err := c.barrier(ctx); err != nil {
		s.dialer.disappointed(c)
		s.forget(l)
		return nil, err
	}
	return l, nil
}

func (s *Subscriber) dialUnlessDrained(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.cancelWhenDrained(ctx, cancel)
	return s.dialer.dial(ctx)
}

func (s *Subscriber) cancelWhenDrained(ctx context.Context, cancel context.CancelFunc) {
	for w := s.wish(); ctx.Err() == nil && !w.drained; w = s.wish() {
		select {
		case <-w.changed:
		case <-ctx.Done():
		}
	}
	cancel()
}

// serve returns nil when the line was finished on purpose, otherwise why it was lost.
func (s *Subscriber) serve(ctx context.Context, l *line) error {
	s.log.Info("subscribed", "broker", l.conn.addr.String())
	defer s.forget(l)
	s.live.Add(1)
	lost := s.watch(ctx, l)
	s.live.Add(-1)
	switch {
	case !lost:
		s.finish(ctx, l)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		s.dialer.disappointed(l.conn)
		return l.conn.failed(l.reason())
	}
}

// watch returns true when the connection is lost, false when it is not wanted any more.
func (s *Subscriber) watch(ctx context.Context, l *line) (lost bool) {
	for {
		w := s.wish()
		if w.closing != nil || w.paused && !w.drained {
			return false
		}
		select {
		case <-w.changed:
		case <-l.conn.ended:
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// finish ends a line for Pause or Close. A pausing line waits a little for the acks of what is in hand.
func (s *Subscriber) finish(ctx context.Context, l *line) {
	l.hold()
	within := s.wish().closing
	if within == nil {
		s.release(l)
		grace, cancel := context.WithTimeout(ctx, pauseGrace)
		l.waitSettled(grace)
		cancel()
		within = ctx
	}
	bounded, cancel := context.WithCancel(within)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if err := l.finish(bounded); err != nil {
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
	}
}

// pump empties the subscription's channel always: when it fills up (16 messages), go-stomp neither writes acks nor heart-beats. It is closed some
// time after the connection ended; never, if the connection ended before the SUBSCRIBE was written.
func (s *Subscriber) pump(l *line) {
	ended := l.conn.ended
	var giveUp <-chan time.Time
	for {
		select {
		case m, ok := <-l.sub.C:
			switch {
			case !ok:
				return
			case m.Err != nil:
				l.setReason(translate(m.Err))
			default:
				s.enqueue(newDelivery(l, m))
			}
		case <-ended:
			ended, giveUp = nil, time.After(goodbyeTimeout)
		case <-giveUp:
			return
		}
	}
}

// forget drops what belongs to a line that has ended: its messages are delivered again, and acks for them would be errors.
func (s *Subscriber) forget(l *line) {
	l.conn.kill()
	l.dropAcks()
	s.release(l)
	s.mu.Lock()
	s.lines = slices.DeleteFunc(s.lines, func(o *line) bool { return o == l })
	s.mu.Unlock()
}
