package embedded

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// acceptPause keeps a lack of descriptors from becoming a busy loop.
	acceptPause = 50 * time.Millisecond
	lastResort  = "ActiveMQ.DLQ"
)

// Options of a broker; the zero value lets everybody in.
type Options struct {
	User, Password string
	TLS            *tls.Config
	Prefetch       int    // of subscriptions that do not say; 0: 10
	DeadLetter     string // the queue for refused (NACKed) messages; empty: ActiveMQ.DLQ
	MaxFrame       int    // bytes of a body; 0: 1 MiB
}

// Broker is a running broker.
type Broker struct {
	opts  Options
	addr  string
	conns sync.WaitGroup // the accept loop and all sessions

	mu       sync.Mutex // guards all below, and every queue, subscription and session
	listener net.Listener
	queues   map[string]*queue
	sessions map[*session]bool
	serial   uint64 // of sessions, subscriptions and messages: unique for the life of the broker
}

// Listen starts a broker on addr (host:port; port 0 takes a free one).
func Listen(addr string, opts Options) (*Broker, error) {
	if opts.Prefetch <= 0 {
		opts.Prefetch = 10
	}
	if opts.DeadLetter == "" {
		opts.DeadLetter = lastResort
	}
	if opts.MaxFrame <= 0 {
		opts.MaxFrame = 1 << 20
	}
	b := &Broker{opts: opts, addr: addr, queues: map[string]*queue{}, sessions: map[*session]bool{}}
	return b, b.Reopen()
}

// Reopen listens again, on the same address, after Close. The queues are as they were.
func (b *Broker) Reopen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listener != nil {
		return errors.New("the broker is open")
	}
	l, err := net.Listen("tcp", b.addr)
	if err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	b.addr = l.Addr().String()
	if b.opts.TLS != nil {
		l = tls.NewListener(l, b.opts.TLS)
	}
	b.listener = l
	b.conns.Go(func() { b.accept(l) })
	return nil
}

func (b *Broker) accept(l net.Listener) {
	for {
		socket, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // a connection that broke before it was taken, or no descriptor is free
			time.Sleep(acceptPause)
			continue
		}
		b.mu.Lock()
		if b.listener != l {
			b.mu.Unlock()
			socket.Close()
			return
		}
		s := newSession(b, socket)
		b.sessions[s] = true
		b.conns.Go(s.read)
		b.conns.Go(s.write)
		b.mu.Unlock()
	}
}

// Close drops all connections and returns when nothing of them runs any more. Messages that were in flight are back in their queues.
func (b *Broker) Close() error {
	b.mu.Lock()
	l := b.listener
	b.listener = nil
	for s := range b.sessions {
		s.end()
	}
	b.mu.Unlock()
	if l == nil {
		return nil
	}
	err := l.Close()
	b.conns.Wait()
	return err
}

// URL for clients.
func (b *Broker) URL() string {
	if b.opts.TLS != nil {
		return "stomp+ssl://" + b.addr
	}
	return "stomp://" + b.addr
}

// next is called with the lock.
func (b *Broker) next() uint64 {
	b.serial++
	return b.serial
}

// find returns the queue that a destination means for s, making it if need be. Temporary queues are the session's own and end with it.
func (b *Broker) find(s *session, destination string) (*queue, error) {
	if name, ok := strings.CutPrefix(destination, "/queue/"); ok && name != "" {
		return b.queue(name), nil
	}
	if name, ok := strings.CutPrefix(destination, "/temp-queue/"); ok && name != "" {
		if s.temporary[name] == nil {
			s.temporary[name] = &queue{name: name, display: destination}
		}
		return s.temporary[name], nil
	}
	return nil, fmt.Errorf("Illegal destination name: [%s] -- destinations must begin with one of: /queue/ /temp-queue/", destination)
}

func (b *Broker) queue(name string) *queue {
	if b.queues[name] == nil {
		b.queues[name] = &queue{name: name, display: "/queue/" + name}
	}
	return b.queues[name]
}
