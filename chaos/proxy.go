package main

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between a client and a service and makes their connections misbehave.
type proxy struct {
	name     string
	listener net.Listener
	target   atomic.Pointer[string] // host:port, "" while there is none
	newTap   func(*proxy) tap
	dropped  func(answer string) // called for every answer that was dropped

	mu       sync.Mutex
	links    map[*link]bool
	fresh    map[int]ailment // of connections to come, by fault
	refusing int
	armed    map[string]int // answers to be dropped
	faults   int
}

// ailment is what a connection suffers from.
type ailment struct {
	stalled [2]bool // passes nothing on in this direction
	deaf    bool    // swallows all, in both directions, for good
	delay   time.Duration
}

const (
	up   = 0 // client to service
	down = 1
)

// tap watches the bytes of a connection, direction by direction, before they are passed on.
type tap interface {
	see(direction int, b []byte) verdict
}

type verdict int

const (
	pass verdict = iota
	swallow
	cutOff
)

func newProxy(name, target string, newTap func(*proxy) tap, dropped func(string)) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{name: name, listener: l, newTap: newTap, dropped: dropped, links: map[*link]bool{}, fresh: map[int]ailment{}, armed: map[string]int{}}
	p.retarget(target)
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) retarget(target string) { p.target.Store(&target) }

// close ends the proxy and its connections.
func (p *proxy) close() {
	p.listener.Close()
	p.cut(nil, all)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.connect(client)
	}
}

func (p *proxy) connect(client net.Conn) {
	p.mu.Lock()
	refusing := p.refusing > 0
	p.mu.Unlock()
	target := *p.target.Load()
	if refusing || target == "" {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, 3*time.Second)
	if err != nil {
		reset(client)
		return
	}
	l := &link{proxy: p, ends: [2]net.Conn{client, server}, over: make(chan struct{}), changed: make(chan struct{})}
	if p.newTap != nil {
		l.tap = p.newTap(p)
	}
	p.mu.Lock()
	p.links[l] = true
	for id, a := range p.fresh {
		l.ailments = append(l.ailments, suffering{id, a})
	}
	p.mu.Unlock()
	go l.pump(up)
	go l.pump(down)
}

// reset closes with RST, as a killed host's peer would see.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// pick is one of the open connections, drawn by r, or all of them. The caller holds the lock.
func (p *proxy) pick(r *rand.Rand, s share) (links []*link) {
	for l := range p.links {
		links = append(links, l)
	}
	if s == one && len(links) > 1 {
		return []*link{links[r.IntN(len(links))]}
	}
	return links
}

// cut resets connections and says how many.
func (p *proxy) cut(r *rand.Rand, s share) int {
	p.mu.Lock()
	links := p.pick(r, s)
	p.mu.Unlock()
	for _, l := range links {
		l.cut()
	}
	return len(links)
}

// ail makes connections suffer until the returned function is called. Those that went deaf are cut then: nobody else would end them.
func (p *proxy) ail(r *rand.Rand, s share, a ailment) (heal func()) {
	p.mu.Lock()
	p.faults++
	id := p.faults
	links := p.pick(r, s)
	if s == andNew {
		p.fresh[id] = a
	}
	p.mu.Unlock()
	for _, l := range links {
		l.suffer(id, a)
	}
	return func() {
		p.mu.Lock()
		delete(p.fresh, id)
		links := p.pick(nil, all)
		p.mu.Unlock()
		for _, l := range links {
			l.recover(id)
		}
	}
}

// refuse takes no new connection, and cuts the old ones, until the returned function is called.
func (p *proxy) refuse() (heal func()) {
	p.mu.Lock()
	p.refusing++
	p.mu.Unlock()
	p.cut(nil, all)
	return func() {
		p.mu.Lock()
		p.refusing--
		p.mu.Unlock()
	}
}

// arm has the next such answer dropped, unless ctx ends first.
func (p *proxy) arm(ctx context.Context, answer string) {
	p.mu.Lock()
	p.armed[answer]++
	p.mu.Unlock()
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.armed, answer)
	})
}

// take says whether this very answer is to be dropped.
func (p *proxy) take(answer string) bool {
	p.mu.Lock()
	hit := p.armed[answer] > 0
	if hit {
		p.armed[answer]--
	}
	p.mu.Unlock()
	if hit {
		p.dropped(answer)
	}
	return hit
}

type suffering struct {
	id int
	ailment
}

// link is one connection and its continuation to the service.
type link struct {
	proxy *proxy
	ends  [2]net.Conn // client, server
	tap   tap
	over  chan struct{} // closed with the ends
	once  sync.Once

	mu       sync.Mutex
	ailments []suffering
	changed  chan struct{} // closed and replaced when ailments change
}

func (l *link) suffer(id int, a ailment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ailments = append(l.ailments, suffering{id, a})
	l.change()
}

func (l *link) recover(id int) {
	l.mu.Lock()
	kept := l.ailments[:0]
	deaf := false
	for _, s := range l.ailments {
		if s.id != id {
			kept = append(kept, s)
		} else {
			deaf = deaf || s.deaf
		}
	}
	l.ailments = kept
	l.change()
	l.mu.Unlock()
	if deaf {
		l.cut()
	}
}

func (l *link) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// state sums up what the link suffers from.
func (l *link) state() (a ailment, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.ailments {
		a.stalled[up] = a.stalled[up] || s.stalled[up]
		a.stalled[down] = a.stalled[down] || s.stalled[down]
		a.deaf = a.deaf || s.deaf
		a.delay = max(a.delay, s.delay)
	}
	return a, l.changed
}

// cut resets both ends.
func (l *link) cut() { l.finish(reset) }

func (l *link) finish(closeEnd func(net.Conn)) {
	l.once.Do(func() {
		close(l.over)
		closeEnd(l.ends[0])
		closeEnd(l.ends[1])
		l.proxy.mu.Lock()
		defer l.proxy.mu.Unlock()
		delete(l.proxy.links, l)
	})
}

// pump passes one direction on until the link is over. An end that closes ends the link, unless it is deaf: then the other end hears nothing of it.
func (l *link) pump(direction int) {
	from, to := l.ends[direction], l.ends[1-direction]
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.pass(direction, to, buf[:n]) {
			l.cut()
			return
		}
		if err != nil {
			l.end()
			return
		}
	}
}

// end closes both ends in an orderly way, so that what was passed on arrives.
func (l *link) end() {
	for {
		a, changed := l.state()
		if !a.deaf {
			break
		}
		select {
		case <-changed:
		case <-l.over:
			return
		}
	}
	l.finish(func(c net.Conn) { c.Close() })
}

// pass passes bytes on as far as the link's state lets it; false ends the link.
func (l *link) pass(direction int, to net.Conn, b []byte) bool {
	for {
		a, changed := l.state()
		if a.deaf {
			return true
		}
		if a.stalled[direction] {
			select {
			case <-changed:
				continue
			case <-l.over:
				return false
			}
		}
		if a.delay > 0 {
			select {
			case <-time.After(a.delay):
			case <-l.over:
				return false
			}
		}
		break
	}
	if l.tap != nil {
		switch l.tap.see(direction, b) {
		case swallow:
			return true
		case cutOff:
			return false
		}
	}
	_, err := to.Write(b)
	return err == nil
}
