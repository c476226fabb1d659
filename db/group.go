package db

import (
	"context"
	"runtime"
	"sync"
)

// group runs the requests of many callers in shared statements: a group is whatever waits when the previous statement returns, never a
// timer, so a lone request runs at once.
//
// run must answer one result per request, in order. When it fails for a reason that is not the connection's, its requests are run again one
// by one, so that one bad request does not fail its neighbours. A caller that gives up leaves its request running: requests must be
// repeatable.
type group[T, R any] struct {
	run func(context.Context, []T) ([]R, error)

	mu      sync.Mutex
	waiting []*groupCall[T, R]
	flying  bool
}

// groupMost bounds the rows of one statement.
const groupMost = 256

type groupCall[T, R any] struct {
	ask  T
	done chan struct{}
	res  R
	err  error
}

func (g *group[T, R]) do(ctx context.Context, ask T) (R, error) {
	c := &groupCall[T, R]{ask: ask, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	if !g.flying {
		g.flying = true
		go g.fly(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.res, c.err
	case <-ctx.Done():
		var none R
		return none, context.Cause(ctx)
	}
}

func (g *group[T, R]) fly(ctx context.Context) {
	runtime.Gosched() // what is about to ask comes along: a worker settles its last chunk and claims the next at the same moment
	for {
		g.mu.Lock()
		calls := g.waiting[:min(len(g.waiting), groupMost)]
		g.waiting = g.waiting[len(calls):]
		if len(calls) == 0 {
			g.waiting, g.flying = nil, false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()

		if err := g.settle(ctx, calls); err != nil && len(calls) > 1 && !connectionLost(err) {
			for i := range calls {
				g.settle(ctx, calls[i:i+1])
			}
		}
		for _, c := range calls {
			close(c.done)
		}
	}
}

func (g *group[T, R]) settle(ctx context.Context, calls []*groupCall[T, R]) error {
	asks := make([]T, len(calls))
	for i, c := range calls {
		asks[i] = c.ask
	}
	var results []R
	err := again(ctx, func(ctx context.Context) (err error) {
		results, err = g.run(ctx, asks)
		return err
	})
	for i, c := range calls {
		if c.err = err; err == nil {
			c.res = results[i]
		}
	}
	return err
}
