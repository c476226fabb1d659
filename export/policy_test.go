package export_test

import (
	"testing"
	"time"

	"exportd/export"
)

func TestBackoffGrowsToItsCapAndNeverBeyondOrBelow(t *testing.T) {
	for name, c := range map[string]struct{ base, most time.Duration }{
		"usual":         {time.Second, 5 * time.Minute},
		"a long base":   {30 * time.Second, 5 * time.Minute},
		"the most":      {time.Second, 1<<63 - 1},
		"base over cap": {time.Hour, time.Minute},
		"no base":       {0, time.Minute},
		"nothing":       {0, 0},
		"below nothing": {-time.Hour, -time.Minute},
	} {
		most := max(c.most, time.Millisecond)
		want := min(max(c.base, time.Millisecond), most)
		for attempt := range 201 {
			for range 20 {
				if d := export.Backoff(attempt, c.base, c.most); d < want/2 || d > want || d <= 0 {
					t.Fatalf("%s: after attempt %d a delay of %s, want it in [%s, %s]", name, attempt, d, want/2, want)
				}
			}
			if attempt > 0 && want > most/2 {
				want = most
			} else if attempt > 0 {
				want *= 2
			}
		}
		if want != most {
			t.Errorf("%s: the cap is never reached", name)
		}
	}
}

// What failed together must not come back together.
func TestDelaysAreSpreadOverHalfTheBackoff(t *testing.T) {
	const n, slots = 5000, 10
	var counts [slots]int
	for range n {
		counts[int(export.Backoff(4, time.Second, time.Minute)-4*time.Second)*slots/int(4*time.Second+1)]++
	}
	for i, count := range counts {
		if count < n/slots/2 || count > n/slots*2 {
			t.Errorf("tenth %d of the spread has %d of %d delays", i, count, n)
		}
	}
}

func TestFilesOfTheWindowAndOfTheFutureAreNotReused(t *testing.T) {
	const today = export.Date(20250305)
	for date, want := range map[export.Date]bool{20250225: true, 20250226: false, 20250227: false, 20250305: false, 20250306: false, 20991231: false, 19000101: true} {
		if got := export.MayReuse(date, today, 7); got != want {
			t.Errorf("%s: %t", date, got)
		}
	}
	if !export.MayReuse(today.AddDays(-1), today, 0) || export.MayReuse(today, today, 0) {
		t.Error("with a window of no days only what lies before today is reused")
	}
}
