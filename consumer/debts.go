package consumer

import (
	"context"
	"math/rand/v2"
	"time"

	"exportd/export"
)

// databaseLoop takes debts from the database: all of them without an intake, the old ones with it.
func (c *Consumer) databaseLoop(ctx context.Context) {
	age, pause := time.Duration(0), 250*time.Millisecond
	if c.Intake != nil {
		if c.Fallback <= 0 {
			return
		}
		age, pause = c.Fallback, min(max(c.Fallback/2, 10*time.Millisecond), 5*time.Second)
	}
	defer c.returnDebts()
	plenty := c.Intake == nil // there may be more as soon as a slot is free
	last := time.Now()
	for {
		away := len(c.breaker.away()) > 0
		if away {
			c.returnDebts()
		}
		// Where chunks take milliseconds, a look for each would cost more than they do: what is at hand is filled up when half of it is at work.
		want := c.Concurrency - len(c.slots) + c.pace.ahead()
		if lacking := want - len(c.debts); 2*lacking > want && !away {
			last = time.Now()
			debts, err := c.Store.TakeDebts(ctx, lacking, age)
			if err != nil && ctx.Err() == nil {
				c.Log.Warn("take debts from the database", "error", err)
			}
			for _, d := range debts {
				c.debts <- d
			}
			plenty = c.Intake == nil || len(debts) > 0
			if len(debts) > 0 {
				continue
			}
		}
		var freed <-chan struct{}
		if plenty {
			freed = c.freed
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		case <-freed:
			wait.Stop()
		case <-c.Owed:
			wait.Stop()
			sleep(ctx, looksApart-time.Since(last))
		}
	}
}

// looksApart is the least time between looks for new debts: a fleet that is idle is told of every submission.
const looksApart = 25 * time.Millisecond

// returnDebts lets others have what was taken and not begun.
func (c *Consumer) returnDebts() {
	var rest []export.Debt
	for len(c.debts) > 0 {
		select {
		case d := <-c.debts:
			rest = append(rest, d)
		default:
		}
	}
	if len(rest) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainTimeout/4)
	defer cancel()
	if err := c.Store.ReturnDebts(ctx, rest); err != nil {
		c.Log.Warn("return debts", "error", err) // their lease runs out
	}
}
