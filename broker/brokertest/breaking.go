package brokertest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/broker"
	"exportd/export"
)

// brokenLinks cuts the publisher's and the consumer's connections at random moments. Whatever Publish confirmed arrives, and what is acked in the end
// is gone; that messages repeat is allowed.
func brokenLinks(t *testing.T, srv Server) {
	q := Queue(t)
	toPublish, toConsume := NewProxy(t, srv.addr(t)), NewProxy(t, srv.addr(t))
	s, _ := subscribe(t, srv.through(t, toConsume), q, 8)

	var cutting sync.WaitGroup
	for _, p := range []*Proxy{toPublish, toConsume} {
		cutting.Go(func() {
			for range 12 {
				time.Sleep(rand.N(300 * time.Millisecond))
				p.Cut()
			}
		})
	}
	const batches, size = 40, 10
	msgs := numbered(batches * size)
	cutting.Go(func() {
		p := broker.NewPublisher(srv.through(t, toPublish))
		defer p.Close()
		for part := range slices.Chunk(msgs, size) {
			deadline := time.Now().Add(patience)
			for p.Publish(t.Context(), q, part) != nil {
				if time.Now().After(deadline) {
					t.Error("a batch is never confirmed")
					return
				}
			}
			time.Sleep(rand.N(20 * time.Millisecond)) // so that the cuts meet different moments
		}
	})
	seen := receive(t, s, len(msgs))
	cutting.Wait()
	if diff := cmp.Diff(bodies(len(msgs)), seen); diff != "" {
		t.Error(diff)
	}
	// One more: when it has come, the connection that is to be closed well is one that the cuts have spared.
	p := broker.NewPublisher(srv.Config(t))
	defer p.Close()
	if err := p.Publish(t.Context(), q, []export.Message{{Body: []byte("last")}}); err != nil {
		t.Fatal(err)
	}
	for last := false; !last; {
		d := take(t, s)
		last = string(d.Body) == "last"
		d.Ack()
	}
	closeWell(t, s)
	if n, err := broker.Purge(t.Context(), srv.Config(t), q); err != nil || n > len(msgs) {
		t.Errorf("%d messages are left, %v", n, err)
	}
}

// receive acks messages until n different ones have come, and returns them in the order of numbered.
func receive(t testing.TB, s *broker.Subscriber, n int) []string {
	t.Helper()
	seen := map[string]bool{}
	for len(seen) < n {
		d := take(t, s)
		seen[string(d.Body)] = true
		d.Ack() // an error is a connection that just broke: the message comes again
	}
	var inOrder []string
	for _, b := range bodies(n) {
		if seen[b] {
			inOrder = append(inOrder, b)
		}
	}
	return inOrder
}
