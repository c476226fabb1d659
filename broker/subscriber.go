package broker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	consumeHeartBeat = 10 * time.Second
	// window is the most messages in flight on one connection. ActiveMQ deadlocks against go-stomp when more bytes than the sockets hold are under way
	// to us while we write an ACK, so window × size of a message must stay below 64 kB.
	window = 32
	// pauseGrace is how long a pausing subscriber keeps its connection for the acks of what is in hand.
	pauseGrace = 2 * time.Second
	// A connection that lived so long starts the backoff anew.
	steady = time.Second

	reconnectFirst = 200 * time.Millisecond
	reconnectMost  = 30 * time.Second
)

// Subscriber is one of many competing consumers of a queue.
type Subscriber struct {
	dialer *dialer
	queue  string
	shares []int // the window of each connection
	log    *slog.Logger
	out    chan *Delivery
	live   atomic.Int32

	quiet   chan struct{} // closed when nothing is handed out any more
	done    chan struct{} // closed when Run returns
	arrived chan struct{} // signalled when waiting changed

	mu      sync.Mutex
	started bool
	waiting []*Delivery     // received, not handed out
	lines   []*line         // connected
	paused  bool            // no connection is wanted for now
	drained bool            // nothing is handed out, acks are held back, lost connections are not replaced
	closing context.Context // set by Close: finish within it
	errs    []error         // of finishing
	changed chan struct{}   // closed and replaced when paused, drained or closing change
}

// NewSubscriber connects to nothing yet. prefetch is the number of messages in flight, usually the number of workers; above 32 they are
// spread over several connections.
func NewSubscriber(cfg Config, queue string, prefetch int) *Subscriber {
	prefetch = max(prefetch, 1)
	return &Subscriber{
		dialer: &dialer{cfg: cfg, heartBeat: cmp.Or(cfg.HeartBeat, consumeHeartBeat), queued: 2*window + 32},
		queue:  queue, shares: split(prefetch, window), log: cfg.log().With("queue", queue),
		out: make(chan *Delivery), quiet: make(chan struct{}), done: make(chan struct{}),
		arrived: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// split divides n into as few parts of at most most as possible, as equal as possible.
func split(n, most int) []int {
	parts := make([]int, (n+most-1)/most)
	for i := range parts {
		parts[i] = n / len(parts)
		if i < n%len(parts) {
			parts[i]++
		}
	}
	return parts
}

// Deliveries yields messages while Run runs, and is closed when it returns.
func (s *Subscriber) Deliveries() <-chan *Delivery { return s.out }

// Connected says whether a subscription is live. An idle queue is no reason for false.
func (s *Subscriber) Connected() bool { return s.live.Load() > 0 }

// Run keeps the subscription alive until Close has finished (it then returns nil) or ctx ends, which drops everything at once. So ctx should
// outlive the wish to stop: Drain, let the work end, Close. It reconnects for ever, unless draining.
func (s *Subscriber) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.started
	s.started = true
	s.mu.Unlock()
	if again {
		return errors.New("a subscriber runs only once")
	}
	inner, cancel := context.WithCancel(ctx)
	var feeder, lines sync.WaitGroup
	feeder.Go(func() { s.feed(inner) })
	for _, share := range s.shares {
		lines.Go(func() { s.keep(inner, share) })
	}
	lines.Wait()
	cancel()
	feeder.Wait()
	close(s.out)
	close(s.done)
	return ctx.Err()
}

// Pause gives the messages back that were received and not handed out, and drops the subscription, so that other consumers get them. The acks of
// what is in hand are still sent if they come within two seconds; later ones are dropped and their messages delivered again, to anybody.
func (s *Subscriber) Pause() { s.change(func() { s.paused = true }) }

// Resume subscribes again.
func (s *Subscriber) Resume() { s.change(func() { s.paused = false }) }

// Drain hands out nothing more once it has returned, and holds the acks back that come from now on, because each would pull another message.
// Lost connections are not replaced. It cannot be undone; Close follows.
func (s *Subscriber) Drain() {
	var started bool
	s.change(func() {
		s.drained, started = true, s.started
		for _, l := range s.lines {
			l.hold()
		}
	})
	if started {
		<-s.quiet
	}
}

// Close drains, sends the acks that were held back, waits until the broker has applied them, and disconnects. Call it when everything in hand is
// acked; later acks are dropped and their messages delivered again, as are those of a connection that does not answer before ctx ends.
func (s *Subscriber) Close(ctx context.Context) error {
	s.Drain()
	var started bool
	s.change(func() {
		s.closing, started = ctx, s.started
		s.started = true // a Run that comes later must not begin
	})
	if !started {
		return nil
	}
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, l := range s.lines {
			l.conn.kill()
		}
	})()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

func (s *Subscriber) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// feed hands out what waits, until the subscriber drains or ctx ends.
func (s *Subscriber) feed(ctx context.Context) {
	defer close(s.quiet)
	for {
		s.mu.Lock()
		drained, changed := s.drained, s.changed
		var next *Delivery
		var out chan *Delivery
		if len(s.waiting) > 0 {
			next, out = s.waiting[0], s.out
		}
		s.mu.Unlock()
		if drained {
			return
		}
		if next != nil {
			next.line.handedOut(1) // before it is: its ack may come at once
		}
		select {
		case out <- next:
			s.unqueue(func(d *Delivery) bool { return d == next })
			continue
		case <-s.arrived:
		case <-changed:
		case <-ctx.Done():
		}
		if next != nil {
			next.line.handedOut(-1)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *Subscriber) enqueue(d *Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.line.gone {
		return
	}
	s.waiting = append(s.waiting, d)
	s.wakeFeeder()
}

func (s *Subscriber) unqueue(which func(*Delivery) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, which)
	s.wakeFeeder()
}

func (s *Subscriber) wakeFeeder() {
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// release gives up the messages of a line that were not handed out, and those that may still arrive on it.
func (s *Subscriber) release(l *line) {
	s.mu.Lock()
	l.gone = true
	s.mu.Unlock()
	s.unqueue(func(d *Delivery) bool { return d.line == l })
}
