package export

import (
	"math/rand/v2"
	"time"
)

// Backoff is the delay before attempt+1, after attempt attempts: in [d/2, d] with d = min(most, base·2^(attempt−1)). It never overflows and
// is never below a millisecond.
func Backoff(attempt int, base, most time.Duration) time.Duration {
	base, most = max(base, time.Millisecond), max(most, time.Millisecond)
	d := min(base, most)
	for i := 1; i < attempt && d < most; i++ {
		if d > most/2 {
			d = most
		} else {
			d *= 2
		}
	}
	return max(d/2+rand.N(d/2+1), time.Millisecond)
}

// MayReuse is the reuse rule: files of effective dates within the last window days (in the future too) are always generated again, because
// their data may still change. today is the current UTC day.
func MayReuse(date, today Date, window int) bool { return date < today.AddDays(-window) }
