package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-stomp/stomp/v3"
)

// goodbyeTimeout is less than go-stomp's own, so that nobody's receipt comes too late.
const goodbyeTimeout = 4 * time.Second

// RefusedError is the broker's own ERROR frame: it understood and said no. Everything else that goes wrong is a connection's failure.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return "the broker refused: " + e.Message }

// conn is one connection. It is destroyed at the first error or timeout, see doc.go.
type conn struct {
	*stomp.Conn
	wire  *wire
	addr  address
	index int // of addr in Config.URLs
	// go-stomp stops waiting for a transaction's receipt after the heart-beat less a tenth. We must be the first to give up: a receipt that comes
	// after go-stomp did blocks its loop for ever.
	patience time.Duration
	ended    <-chan struct{} // closed when the socket is, by go-stomp or by kill
}

// answerGrace is for an answer that came together with the end of the connection.
const answerGrace = 200 * time.Millisecond

// kill destroys the connection at once: go-stomp's loops see the closed socket and end everything that waits on it.
func (c *conn) kill() { c.wire.Close() }

func (c *conn) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// within runs f, which talks on c, and returns when f, c or ctx ends. Unless it returns nil, c is destroyed, and f may go on for a while, in vain.
func (c *conn) within(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return c.failed(err)
	case <-c.ended:
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("broker %s gave no answer: %w", c.addr, ctx.Err())
	}
	select {
	case err := <-done:
		return c.failed(err)
	case <-time.After(answerGrace): // f waits for an answer to a frame that was never written
		return c.failed(errEnded)
	}
}

var errEnded = errors.New("the connection ended")

// failed destroys c if err is one. An ERROR frame is known of even if go-stomp reports only the end that it caused.
func (c *conn) failed(err error) error {
	if err == nil {
		return nil
	}
	c.kill()
	err = translate(err)
	var refused *RefusedError
	if c.wire.refused.Load() && !errors.As(err, &refused) {
		return &RefusedError{Message: "its reason came too late to be read"}
	}
	return err
}

// goodbye disconnects as the protocol asks and returns when the connection has ended.
func (c *conn) goodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbyeTimeout)
	defer cancel()
	go c.Disconnect()
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.kill()
	}
}

// barrier returns nil when the broker has handled everything that was written before: an empty transaction costs half a millisecond.
func (c *conn) barrier(ctx context.Context) error {
	return c.within(ctx, func() error {
		tx, err := c.BeginWithError()
		if err != nil {
			return err
		}
		return tx.CommitWithReceipt()
	})
}

// translate turns go-stomp's errors into this package's. Only a frame that was read from the broker has a body, be it empty; the ERROR frames
// that go-stomp makes up when a connection ends have none.
func translate(err error) error {
	var v stomp.Error
	var p *stomp.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		v = *p
	case !errors.As(err, &v):
		return err
	}
	if v.Frame != nil && v.Frame.Body != nil {
		return &RefusedError{Message: v.Message}
	}
	return errors.New(v.Message)
}

// wire is the socket below go-stomp. It tells what go-stomp does not: that the connection ended, and that an ERROR frame was the reason.
type wire struct {
	net.Conn          // encrypted or not
	socket   net.Conn // the bare one: closing it never blocks
	armed    atomic.Bool
	refused  atomic.Bool
	once     sync.Once
	closed   chan struct{}
}

// Write has a deadline once the login is over. Without one a broker that stops reading would hold the connection for ever.
func (w *wire) Write(b []byte) (int, error) {
	if w.armed.Load() {
		w.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return w.Conn.Write(b)
}

func (w *wire) Close() (err error) {
	w.once.Do(func() {
		err = w.socket.Close()
		close(w.closed)
	})
	return err
}

// Error is go-stomp's log call for an ERROR frame, before it closes the connection. The rest of its log repeats what its errors say.
func (w *wire) Error(string)            { w.refused.Store(true) }
func (w *wire) Errorf(string, ...any)   {}
func (w *wire) Debugf(string, ...any)   {}
func (w *wire) Infof(string, ...any)    {}
func (w *wire) Warningf(string, ...any) {}
func (w *wire) Debug(string)            {}
func (w *wire) Info(string)             {}
func (w *wire) Warning(string)          {}
