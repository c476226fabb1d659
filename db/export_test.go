package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

func (s *Store) InTx(ctx context.Context, do func(pgx.Tx) error) error { return s.inTx(ctx, do) }

// SlowLook is how long a whole look for debts may take before the next ones are bounded.
func (s *Store) SlowLook(d time.Duration) { s.front.slow = d }

// MostLooks sets how many jobs one page of a list looks through for a key.
func (s *Store) MostLooks(n int) { s.mostLooks = n }

// GroupStatements are those that settle many chunks at once.
var GroupStatements = map[string]string{
	"claim": claimSQL, "paid": paidSQL("true"), "renew": renewSQL, "announce": announceSQL, "done": doneSQL, "release": releaseSQL, "cached": cachedSQL,
}
