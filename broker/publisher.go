package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-stomp/stomp/v3/frame"

	"exportd/export"
)

const (
	publishHeartBeat = 30 * time.Second
	publishTimeout   = 25 * time.Second // dialling, sending, and the receipt of the COMMIT, which conn.within limits once more
	// frames of a batch that fit into go-stomp's queue, so that sending never blocks inside it
	publishQueue = 1024
	// ActiveMQ's frame limit is 1 MiB, headers included; a larger frame costs the connection.
	maxBody = 1<<20 - 64<<10
)

// Publisher sends batches over one connection of its own, which it dials when needed. It is safe for concurrent use; batches go one after the other.
type Publisher struct {
	dialer *dialer
	turn   chan struct{} // holds a token while a batch is sent
	conn   *conn         // of whoever holds the turn
	closed bool          // likewise
	last   atomic.Pointer[conn]
}

// NewPublisher connects to nothing yet.
func NewPublisher(cfg Config) *Publisher {
	return &Publisher{
		dialer: &dialer{cfg: cfg, heartBeat: cmp.Or(cfg.HeartBeat, publishHeartBeat), queued: publishQueue},
		turn:   make(chan struct{}, 1),
	}
}

// Publish sends msgs to queue in one transaction and returns nil once the broker confirmed that all of them are stored. After an error none, or
// (when only the confirmation was lost) all of them are: send again. A RefusedError is the broker's answer to this batch.
// It returns soon when no broker answers, and never waits longer than ctx or 25 s.
func (p *Publisher) Publish(ctx context.Context, queue string, msgs []export.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	for _, m := range msgs {
		if len(m.Body) > maxBody {
			return &RefusedError{Message: fmt.Sprintf("a body of %d bytes is larger than the %d that fit into a frame", len(m.Body), maxBody)}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.closed {
		return errors.New("the publisher is closed")
	}
	if p.conn == nil || !p.conn.alive() {
		var err error
		if p.conn, err = p.dialer.dial(ctx); err != nil {
			return err
		}
	}
	c := p.conn
	p.last.Store(c)
	if err := c.within(ctx, func() error { return send(c, queue, msgs) }); err != nil { // which may still run: it must not touch p
		p.conn = nil
		p.dialer.disappointed(c)
		return fmt.Errorf("sending %d messages to %s: %w", len(msgs), queue, err)
	}
	return nil
}

func send(c *conn, queue string, msgs []export.Message) error {
	tx, err := c.BeginWithError()
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if err := tx.Send("/queue/"+queue, contentType(m.Body), m.Body, fill(m)); err != nil {
			return err
		}
	}
	return tx.CommitWithReceipt()
}

// fill makes the frame persistent (STOMP's default is not) and text, and adds the message's headers.
func fill(m export.Message) func(*frame.Frame) error {
	return func(f *frame.Frame) error {
		f.Header.Set("persistent", "true")
		if isText(m.Body) {
			// ActiveMQ takes a SEND with a length for bytes, which its console cannot show.
			f.Header.Del(frame.ContentLength)
		}
		for k, v := range m.Headers {
			if !ours[k] {
				f.Header.Set(k, export.ErrorText(v))
			}
		}
		return nil
	}
}

// ours are headers that steer the frame, or that the broker sets: a message that is passed on as it came must not bring its own.
var ours = map[string]bool{
	"": true, frame.Destination: true, frame.ContentLength: true, frame.ContentType: true, frame.Transaction: true, frame.Receipt: true, frame.ReceiptId: true,
	frame.Id: true, frame.Ack: true, frame.Subscription: true, frame.MessageId: true, "persistent": true, "redelivered": true, "timestamp": true,
	"expires": true, "original-destination": true, "reply-to": true,
}

// isText says whether a body survives as text: without a length a frame ends at the first NUL, and the broker decodes UTF-8.
func isText(body []byte) bool { return utf8.Valid(body) && bytes.IndexByte(body, 0) < 0 }

func contentType(body []byte) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case isText(body):
		return "text/plain"
	default:
		return "application/octet-stream"
	}
}

// Connected says whether there is a connection. It is made when there is something to send.
func (p *Publisher) Connected() bool {
	c := p.last.Load()
	return c != nil && c.alive()
}

// Close lets a batch that is being sent end, then closes the connection. Later calls of Publish fail.
func (p *Publisher) Close() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	p.closed = true
	if p.conn != nil {
		p.conn.goodbye(context.Background())
	}
}
