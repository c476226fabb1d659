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

// MostCounted sets how many chunks are looked at for the activity.
func (s *Store) MostCounted(n int) { s.mostCounted = n }

// Careful leaves every claim and settlement to the statements that look closer.
func (s *Store) Careful(yes bool) { s.careful = yes }

// Turns are the claims and settlements that are under way and those that wait for them.
type Turns struct {
	Flying  bool
	Waiting int
}

func (s *Store) Turns() Turns {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return Turns{s.turns.flying, len(s.turns.waiting)}
}

// AgedStatement is the one that brings into line what waits for the broker too long.
const AgedStatement = agedSQL

// ChunkStatements are those that claim and settle chunks.
var ChunkStatements = map[string]string{
	"claim": claimSQL, "paid": paidSQL("true"), "renew": renewSQL, "announce": announceSQL, "done": doneSQL, "release": releaseSQL,
	"turn": turnSQL, "claimed": claimedSQL,
}
