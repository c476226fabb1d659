package consumer

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAsMuchIsAtHandAsEndedWithinTheLastQuarterOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{ends: make([]time.Time, 3)}
		at := func(want int, when string) {
			t.Helper()
			if got := p.ahead(); got != want {
				t.Errorf("%s: %d, want %d", when, got, want)
			}
		}
		at(0, "at the start")
		p.ended()
		time.Sleep(200 * time.Millisecond)
		p.ended()
		at(2, "after two")
		time.Sleep(100 * time.Millisecond)
		at(1, "when the first is long past")
		for range 5 {
			p.ended()
		}
		at(3, "after many: one for each slot")
		for i, want := range []bool{true, true, true, false} {
			if got := p.mayBeEarly(); got != want {
				t.Errorf("hint %d early: %t", i, got)
			}
		}
		p.caughtUp()
		if !p.mayBeEarly() {
			t.Error("none early when one has ended")
		}
		p.caughtUp()
		time.Sleep(time.Second)
		at(0, "after a second without an end")
		if p.mayBeEarly() {
			t.Error("early while chunks take long")
		}
	})
}
