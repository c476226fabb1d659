package db_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"

	"exportd/export"
)

// Two processes settle chunks of the same files in opposite order, each claims those of the other and renews them meanwhile, and a third party cancels: everybody takes locks in one order.
func TestWritersOfTheSameRowsInOppositeOrderDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const n = 150
	stores := fleet(t, 2)
	pool := sessions(t, stores[0])
	for range 3 {
		var all []func() error
		for i, s := range stores {
			id, refs := submit(t, s, submission(n))
			claims := make([]*export.Claim, n)
			take := make([]func() error, n)
			for k, ref := range refs {
				take[k] = func() (err error) {
					claims[k], _, err = s.Claim(context.Background(), ref, uuid.NewString())
					return err
				}
			}
			together(t, take...)
			if i == 1 {
				slices.Reverse(claims)
			}
			for _, c := range claims {
				all = append(all, func() error { return s.Done(context.Background(), c, file(c), false) })
				all = append(all, func() error { // a message that was delivered twice
					_, _, err := stores[1-i].Claim(context.Background(), c.Ref, uuid.NewString())
					return err
				})
			}
			all = append(all,
				func() error { _, err := stores[0].Renew(context.Background(), claims); return err },
				func() error { _, err := stores[1].Renew(context.Background(), claims); return err },
				func() error { return stores[1-i].Cancel(context.Background(), "", id) })
		}
		together(t, all...)
	}
	checkInvariants(t, pool)
	for _, s := range stores {
		s.Close() // which makes its sessions report
	}
	var deadlocks int
	must(t, pool.QueryRow(t.Context(), `select deadlocks from pg_stat_database where datname = current_database()`).Scan(&deadlocks))
	if deadlocks > 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}
