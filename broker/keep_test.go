package broker

import "testing"

// After an outage of any length a subscriber is back within half a minute, and never calls without a pause.
func TestASubscriberTriesAgainWithinHalfAMinuteHoweverLongTheOutage(t *testing.T) {
	b := newBackoff()
	for n := range 500 {
		wait, stop := b.Next()
		if stop || wait < reconnectFirst/2 || wait > reconnectMost {
			t.Fatalf("try %d waits %s, gives up: %t", n+1, wait, stop)
		}
		if n > 10 && wait < reconnectMost/4 {
			t.Errorf("try %d comes after %s only", n+1, wait)
		}
	}
}
