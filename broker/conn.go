package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	addr   address
	socket net.Conn
	ended  chan struct{} // closed when go-stomp gave the connection up
	cause  error         // why; read after ended
}

// newConn adds to a connection what go-stomp lacks: a way to see that it ended. A subscription with a reply-to header is never sent to the broker
// (go-stomp keeps it for answers), but it is told of every ERROR frame and of the end of the connection.
func newConn(sc *stomp.Conn, addr address, socket net.Conn) (*conn, error) {
	c := &conn{Conn: sc, addr: addr, socket: socket, ended: make(chan struct{})}
	watch, err := sc.Subscribe("/temp-queue/exportd.watch", stomp.AckAuto, stomp.SubscribeOpt.Header(stomp.ReplyToHeader, "/temp-queue/exportd.watch"))
	if err != nil {
		return nil, translate(err)
	}
	go func() {
		for m := range watch.C {
			if m.Err != nil {
				c.cause = translate(m.Err)
			}
		}
		close(c.ended)
	}()
	return c, nil
}

// kill destroys the connection at once: go-stomp's loops see the closed socket and end everything that waits on it. Closing the bare socket and not
// the TLS connection never blocks.
func (c *conn) kill() { c.socket.Close() }

func (c *conn) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// within runs f, which talks on c, and returns when f, c or ctx ends. Unless it returns nil, c is destroyed.
func (c *conn) within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			c.kill()
		}
		return translate(err)
	case <-c.ended:
		select {
		case err := <-done:
			return translate(err) // the answer had come before the end
		default:
			return c.cause
		}
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("broker %s gave no answer: %w", c.addr, ctx.Err())
	}
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

// deadlineConn gives every write a deadline once the login is over.
type deadlineConn struct {
	net.Conn
	armed atomic.Bool
}

func (c *deadlineConn) Write(b []byte) (int, error) {
	if c.armed.Load() {
		c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	return c.Conn.Write(b)
}

// quiet drops go-stomp's log: it repeats what the errors say.
type quiet struct{}

func (quiet) Debugf(string, ...any)   {}
func (quiet) Infof(string, ...any)    {}
func (quiet) Warningf(string, ...any) {}
func (quiet) Errorf(string, ...any)   {}
func (quiet) Debug(string)            {}
func (quiet) Info(string)             {}
func (quiet) Warning(string)          {}
func (quiet) Error(string)            {}
