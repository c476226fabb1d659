package consumer_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"exportd/export"
)

// The clock of the database is ten minutes ahead of the workers', or behind. Every lease and every pause is the database's business, so nothing changes.
func TestTheClockOfAWorkerDecidesNothing(t *testing.T) {
	for _, shift := range []string{"10 minutes", "-10 minutes"} {
		t.Run(shift, func(t *testing.T) {
			w := newWorld(t, shift)
			var failed atomic.Bool
			long := func(ctx context.Context, key string, out io.Writer) (int64, error) {
				if key == "AGAIN" && failed.CompareAndSwap(false, true) {
					return 0, errGone
				}
				select {
				case <-time.After(w.lease * 4 / 3): // without renewals it would be lost
				case <-ctx.Done():
					return 0, ctx.Err()
				}
				return rows(ctx, key, out)
			}
			w.start("a", sourceFunc{export: long})
			w.start("b", sourceFunc{export: long})
			j := w.ended(w.submit(export.FailFast, "A", "B", "C", "D", "E", "AGAIN"), export.Completed)
			if ahead := time.Until(j.CreatedAt); ahead.Abs() < 9*time.Minute {
				t.Fatalf("the clock of the database is only %s ahead", ahead)
			}
			if n := one[int](w, `select count(*) from job_chunk where attempts <> case key when 'AGAIN' then 2 else 1 end`); n > 0 {
				t.Errorf("%d chunks ran more often than they had to", n)
			}
		})
	}
}
