package brokertest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a client and a broker and makes their connections fail.
type Proxy struct {
	listener net.Listener
	target   string
	conns    sync.WaitGroup

	mu      sync.Mutex
	open    map[net.Conn]bool
	total   int
	stalled chan struct{} // closed while bytes flow
}

// NewProxy forwards to target (host:port) until the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: target, open: map[net.Conn]bool{}, stalled: make(chan struct{})}
	close(p.stalled)
	p.conns.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Resume()
		p.Cut()
		p.conns.Wait()
	})
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = true, true
		p.total++
		p.mu.Unlock()
		p.conns.Go(func() { p.copy(client, server) })
		p.conns.Go(func() { p.copy(server, client) })
	}
}

func (p *Proxy) copy(to, from net.Conn) {
	io.Copy(writerFunc(func(b []byte) (int, error) {
		p.mu.Lock()
		flowing := p.stalled
		p.mu.Unlock()
		<-flowing
		return to.Write(b)
	}), from)
	to.Close()
	from.Close()
	p.mu.Lock()
	delete(p.open, from)
	p.mu.Unlock()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Cut breaks every open connection. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetLinger(0) // a reset, not an orderly end
		}
		c.Close()
	}
}

// Stall keeps connections open but passes nothing on, until Resume.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

// Resume passes on what was held up.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stalled:
	default:
		close(p.stalled)
	}
}

// Connections is how many were made so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
