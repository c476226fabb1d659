package broker

import (
	"cmp"
	"context"
	"sync"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"

	"exportd/export"
)

// Delivery is a message in hand. Whoever took it from Subscriber.Deliveries owes it one Ack.
type Delivery struct {
	Body        []byte
	Headers     map[string]string
	Redelivered bool // somebody had it before, or at least the broker had begun to send it to somebody

	msg  *stomp.Message
	line *line
	once sync.Once
}

func newDelivery(l *line, m *stomp.Message) *Delivery {
	d := &Delivery{Body: m.Body, Headers: headersOf(m.Header), msg: m, line: l}
	d.Redelivered = d.Headers["redelivered"] == "true"
	return d
}

func headersOf(h *frame.Header) map[string]string {
	headers := make(map[string]string, h.Len())
	for i := range h.Len() {
		k, v := h.GetAt(i)
		if _, repeated := headers[k]; !repeated { // STOMP: the first one counts
			headers[k] = v
		}
	}
	return headers
}

// Message is what was sent, for passing it on.
func (d *Delivery) Message() export.Message { return export.Message{Body: d.Body, Headers: d.Headers} }

// Ack tells the broker that the message is done with. Call it after the database committed. Only the first call does anything. If the connection
// that delivered has ended, nothing is sent and the message comes back: to another connection its ack would be an error that costs everything
// that is in flight there. An error means that the connection just broke, with the same consequence.
func (d *Delivery) Ack() (err error) {
	d.once.Do(func() { err = d.line.ack(d.msg) })
	return err
}

// line is one connection with one subscription.
type line struct {
	conn *conn
	sub  *stomp.Subscription
	gone bool // guarded by Subscriber.mu: nothing that arrives is handed out

	mu      sync.Mutex
	held    []*stomp.Message // acks that wait for finish, because each would pull another message
	holding bool
	over    bool // acks are dropped
	handed  int  // deliveries given out
	acked   int
	settled chan struct{} // signalled when handed or acked change
	why     error         // the connection ended
}

func (l *line) setReason(err error) {
	l.mu.Lock()
	l.why = err
	l.mu.Unlock()
}

func (l *line) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.why, errEnded)
}

func (l *line) ack(m *stomp.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked++
	l.signal()
	switch {
	case l.over:
		return nil
	case l.holding:
		l.held = append(l.held, m)
		return nil
	}
	// Under the lock, so that no ack is queued behind the barrier of finish. It does not block: go-stomp's queue holds more than the window.
	err := l.conn.Ack(m)
	if err != nil {
		l.over = true
		l.conn.kill()
	}
	return translate(err)
}

func (l *line) handedOut(n int) {
	l.mu.Lock()
	l.handed += n
	l.signal()
	l.mu.Unlock()
}

func (l *line) signal() {
	select {
	case l.settled <- struct{}{}:
	default:
	}
}

func (l *line) hold() {
	l.mu.Lock()
	l.holding = true
	l.mu.Unlock()
}

// dropAcks is called when the connection has ended.
func (l *line) dropAcks() {
	l.mu.Lock()
	l.over, l.held = true, nil
	l.mu.Unlock()
}

// waitSettled returns when every delivery that was handed out is acked.
func (l *line) waitSettled(ctx context.Context) {
	for {
		l.mu.Lock()
		done := l.handed == l.acked
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-l.settled:
		case <-l.conn.ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// finish sends the acks that were held back, waits until the broker has applied them, and disconnects. Messages that are not acked by then go to
// other consumers. There is no UNSUBSCRIBE: go-stomp's can miss its receipt, and DISCONNECT ends the subscription as well.
func (l *line) finish(ctx context.Context) error {
	l.mu.Lock()
	held := l.held
	l.over, l.held = true, nil
	l.mu.Unlock()
	for _, m := range held {
		if err := l.conn.Ack(m); err != nil {
			return translate(err)
		}
	}
	if err := l.conn.barrier(ctx); err != nil {
		return err
	}
	l.conn.goodbye(ctx)
	return nil
}
