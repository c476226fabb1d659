package consumer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"exportd/export"
)

// breaker knows which shared dependencies are away. One is away when a probe, which has nothing to do with any chunk, fails; it is back when a probe
// succeeds. So no single bad chunk can open the breaker, and no outage can spend the attempts of many.
type breaker struct {
	log    *slog.Logger
	probes map[string]func(context.Context) error

	mu      sync.Mutex
	errs    map[string]error
	changes chan struct{} // closed and replaced at every change
	probing map[string]*probe
}

type probe struct {
	done chan struct{}
	err  error
}

const probeTimeout = 5 * time.Second

func newBreaker(log *slog.Logger, probes map[string]func(context.Context) error) *breaker {
	return &breaker{log: log, probes: probes, errs: map[string]error{}, changes: make(chan struct{}), probing: map[string]*probe{}}
}

// away names the dependencies that are away.
func (b *breaker) away() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.errs))
}

// changed is closed at the next change.
func (b *breaker) changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes
}

// set records whether the dependency answers.
func (b *breaker) set(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.errs[name]; (was != nil) == (err != nil) {
		return
	}
	if err != nil {
		b.log.Warn("a dependency is away: taking no chunks", "dependency", name, "error", err)
		b.errs[name] = err
	} else {
		b.log.Info("a dependency is back", "dependency", name)
		delete(b.errs, name)
	}
	close(b.changes)
	b.changes = make(chan struct{})
}

// confirm says whether the dependency is away: known already, or by a probe that callers share. The dependency is given the blame if the probe has no
// answer when hurry is closed.
func (b *breaker) confirm(ctx context.Context, name string, hurry <-chan struct{}) bool {
	check := b.probes[name]
	if check == nil {
		return false
	}
	b.mu.Lock()
	if b.errs[name] != nil {
		b.mu.Unlock()
		return true
	}
	p := b.probing[name]
	if p == nil {
		p = &probe{done: make(chan struct{})}
		b.probing[name] = p
		go func() {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
			defer cancel()
			p.err = check(bounded)
			b.set(name, p.err)
			b.mu.Lock()
			delete(b.probing, name)
			b.mu.Unlock()
			close(p.done)
		}()
	}
	b.mu.Unlock()
	select {
	case <-p.done: // bounded by the probe's own time
		return p.err != nil
	case <-hurry:
		return true
	}
}

// run probes what is away until it is back, with backoff and jitter, so that a fleet does not come back in one instant.
func (b *breaker) run(ctx context.Context) {
	for {
		changed := b.changed()
		for n := 1; ; n++ {
			var names []string
			for _, name := range b.away() {
				if b.probes[name] != nil {
					names = append(names, name)
				}
			}
			if len(names) == 0 {
				break
			}
			if !sleep(ctx, export.Backoff(n, time.Second, 15*time.Second)) {
				return
			}
			for _, name := range names {
				bounded, cancel := context.WithTimeout(ctx, probeTimeout)
				err := b.probes[name](bounded)
				cancel()
				if ctx.Err() != nil {
					return
				}
				b.set(name, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
