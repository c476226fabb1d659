package db

import (
	"math"
	"sync"
	"time"
)

// front remembers where the living debts begin. A queue's indexes are dead at their beginning, where all looks start: beside a long transaction (an export of
// half an hour from the same database is one) nothing removes what was paid since, and each look would read all of it. Once that takes time, the looks of the
// next seconds start where the last whole one found the first debt. What came in before that place meanwhile is found by the next whole look, or as soon as
// nothing is left behind it.
type front struct {
	slow time.Duration // a whole look that took longer is not repeated at once; 0: never

	mu    sync.Mutex
	rank  int64     // in line, nothing is before it
	at    time.Time // when waiting debts were last looked at whole
	until time.Time // when to do so again
}

const (
	slowLook   = 10 * time.Millisecond
	everything = math.MinInt64
	forEver    = 100 * 365 * 24 * time.Hour
)

// bounds are the first rank and how far back in time to look.
func (f *front) bounds() (rank int64, back time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !time.Now().Before(f.until) {
		return everything, forEver
	}
	return f.rank, time.Since(f.at) + time.Minute // what was written before that and committed after it has run into a timeout
}

// sawAll notes a whole look that began then and found first at the front of the line.
func (f *front) sawAll(began time.Time, first int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if took := time.Since(began); f.slow > 0 && took > f.slow {
		f.rank, f.at, f.until = first, began, time.Now().Add(min(20*took, 5*time.Second))
	}
}

// moved notes that the line begins at first now.
func (f *front) moved(first int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rank = first
}
