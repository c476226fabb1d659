package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3"
)

const (
	dialTimeout  = 5 * time.Second  // name, TCP and TLS of one address
	loginTimeout = 10 * time.Second // CONNECT to CONNECTED: ActiveMQ may start slowly behind an open port
	writeTimeout = 15 * time.Second // one write to the socket

	// ActiveMQ may be silent for twice the agreed heart-beat; go-stomp gives up after (heart-beat + error) × multiplier.
	silenceFactor = 2.5
)

// dialer tries the addresses in turn, beginning with the one that last proved good.
type dialer struct {
	cfg       Config
	heartBeat time.Duration
	queued    int // frames that the connection must be able to queue in each direction without blocking

	mu    sync.Mutex
	first int // index of the address to begin with
}

// unreachable is the error of a dial that reached no broker: nothing was sent.
type unreachable struct{ error }

func (e unreachable) Unwrap() error { return e.error }

// Unsent says that nothing was sent.
func (unreachable) Unsent() bool { return true }

// dial asks every address once. None may use up the time of those after it: a broker that accepts and says nothing is as good as dead.
func (d *dialer) dial(ctx context.Context) (*conn, error) {
	d.mu.Lock()
	first := d.first
	d.mu.Unlock()
	var errs []error
	for i := range d.cfg.URLs {
		index := (first + i) % len(d.cfg.URLs)
		c, err := d.dialShare(ctx, d.cfg.URLs[index], len(d.cfg.URLs)-i)
		if err == nil {
			c.index = index
			d.mu.Lock()
			d.first = index
			d.mu.Unlock()
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 0 {
		return nil, errors.New("no broker URL is configured")
	}
	return nil, unreachable{errors.Join(errs...)}
}

// dialShare dials one address within its part of the time that is left for several.
func (d *dialer) dialShare(ctx context.Context, raw string, left int) (*conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return d.dialOne(ctx, raw)
}

// disappointed makes the next dial begin with another address than that of c, which took the login and then failed.
func (d *dialer) disappointed(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == c.index { // several connections may report the same address
		d.first = (c.index + 1) % len(d.cfg.URLs)
	}
}

func (d *dialer) dialOne(ctx context.Context, raw string) (*conn, error) {
	addr, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	socket, err := (&net.Dialer{}).DialContext(dialCtx, "tcp", addr.hostPort())
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	secured, err := d.secure(dialCtx, addr, socket)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	c, err := d.login(ctx, addr, socket, secured)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("broker %s: %w", addr, err)
	}
	return c, nil
}

func (d *dialer) secure(ctx context.Context, addr address, socket net.Conn) (net.Conn, error) {
	if !addr.secure {
		return socket, nil
	}
	cfg, err := d.cfg.tls(addr.host)
	if err != nil {
		return nil, err
	}
	t := tls.Client(socket, cfg)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return t, nil
}

// login does not close the socket when it fails, nor does go-stomp: the caller must.
func (d *dialer) login(ctx context.Context, addr address, socket, secured net.Conn) (*conn, error) {
	secured.SetDeadline(time.Now().Add(loginTimeout))
	stop := context.AfterFunc(ctx, func() { secured.SetDeadline(time.Unix(1, 0)) })
	w := &wire{Conn: secured, socket: socket, closed: make(chan struct{})}
	sc, err := stomp.Connect(w,
		stomp.ConnOpt.AcceptVersion(stomp.V12),
		stomp.ConnOpt.Host(addr.host),
		stomp.ConnOpt.Login(d.cfg.User, d.cfg.Password),
		stomp.ConnOpt.HeartBeat(d.heartBeat, d.heartBeat),
		stomp.ConnOpt.HeartBeatError(d.heartBeat/10),
		stomp.ConnOpt.HeartBeatGracePeriodMultiplier(silenceFactor),
		stomp.ConnOpt.ReadChannelCapacity(d.queued),
		stomp.ConnOpt.WriteChannelCapacity(d.queued),
		stomp.ConnOpt.DisconnectReceiptTimeout(5*time.Second),
		stomp.ConnOpt.Logger(w),
	)
	if !stop() {
		return nil, ctx.Err()
	}
	if err != nil {
		var refused *RefusedError
		if err = translate(err); errors.As(err, &refused) {
			return nil, fmt.Errorf("the login of user %q was refused: %w", d.cfg.User, err)
		}
		return nil, fmt.Errorf("no STOMP answer: %w", err)
	}
	secured.SetDeadline(time.Time{})
	w.armed.Store(true)
	if v := sc.Version(); v != stomp.V12 {
		return nil, fmt.Errorf("speaks STOMP %s, exportd needs 1.2", v)
	}
	return &conn{Conn: sc, wire: w, addr: addr, patience: d.heartBeat * 8 / 10, ended: w.closed}, nil
}
