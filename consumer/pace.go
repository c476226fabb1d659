package consumer

import (
	"sync"
	"time"
)

// lookAhead is how much of a slot's work may be at hand beyond what it works on. Where chunks take milliseconds, a slot would else wait for its next for as long as it
// works. Where they take long nothing is at hand: others are to get what waits.
const lookAhead = 250 * time.Millisecond

// pace is how fast attempts end: what ended within the last lookAhead is what will end within the next.
type pace struct {
	mu    sync.Mutex
	ends  []time.Time // of the last attempts, as many as there are slots; a ring
	next  int
	early int // hints done with whose chunks are at work
}

// ended notes the end of an attempt.
func (p *pace) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[p.next] = time.Now()
	p.next = (p.next + 1) % len(p.ends)
}

// ahead is the number of chunks that may be at hand for the slots that are busy, at most one for each.
func (p *pace) ahead() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aheadLocked()
}

func (p *pace) aheadLocked() int {
	since := time.Now().Add(-lookAhead)
	for n := range p.ends {
		if p.ends[(p.next+len(p.ends)-1-n)%len(p.ends)].Before(since) {
			return n
		}
	}
	return len(p.ends)
}

// mayBeEarly asks whether to be done with a hint while its chunk is at work, since a broker sends the next message only then. Who gets leave says caughtUp at the end.
func (p *pace) mayBeEarly() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early >= p.aheadLocked() {
		return false
	}
	p.early++
	return true
}

func (p *pace) caughtUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early--
}
