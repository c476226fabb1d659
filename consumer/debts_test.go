package consumer_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"exportd/consumer"
	"exportd/db"
	"exportd/export"
)

func keys(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("K%d", i)
	}
	return list
}

// greedy takes three debts more than it was asked for.
type greedy struct{ *db.Store }

func (g greedy) TakeDebts(ctx context.Context, limit int, age time.Duration) ([]export.Debt, error) {
	return g.Store.TakeDebts(ctx, limit+3, age)
}

func TestDebtsTakenAheadAreReturnedByADrainingWorker(t *testing.T) {
	w := newWorld(t)
	c := w.start("a", sourceFunc{export: func(ctx context.Context, _ string, _ io.Writer) (int64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}}, func(c *consumer.Config) { c.Store, c.DrainTimeout = greedy{c.Store.(*db.Store)}, time.Second })
	id := w.submit(export.FailFast, keys(20)...)
	w.eventually("it has its hands full, and more", func() bool {
		return one[int](w, `select count(*) from job_chunk where status = 'RUNNING'`) == 4 && one[int](w, `select count(*) from dispatch where state = 'SENDING'`) > 0
	})
	c.stop()
	if n := one[int](w, `select count(*) from dispatch where state = 'SENDING'`); n > 0 {
		t.Errorf("%d debts are kept from others", n)
	}
	w.start("b", sourceFunc{export: rows})
	if job := w.ended(id, export.Completed); job.Done != 20 {
		t.Errorf("got %+v", job)
	}
}

// silent is an intake whose broker is away.
type silent struct{}

func (silent) Deliveries() <-chan consumer.Delivery { return nil }
func (silent) Pause()                               {}
func (silent) Resume()                              {}
func (silent) Drain()                               {}
func (silent) Close(context.Context) error          { return nil }

// A look every second or two, which is often enough while there is nothing to take, would need a minute for these.
func TestTheFallbackTakesDebtsAsFastAsTheyAreWorkedOff(t *testing.T) {
	w := newWorld(t)
	id := w.submit(export.FailFast, keys(60)...)
	w.exec(`update dispatch set due_at = now() - interval '2 min', owed_at = now() - interval '2 min'`)
	w.start("a", sourceFunc{export: rows}, func(c *consumer.Config) { c.Intake, c.Fallback, c.Concurrency = silent{}, time.Minute, 1 })
	w.ended(id, export.Completed)
}
