package brokertest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"exportd/broker"
	"exportd/export"
)

// Subject is a kind of broker under test.
type Subject struct {
	// Shared may be used by many tests at once, under queue names of their own.
	Shared func(testing.TB) Server
	// Private is stopped and started by the test, and offers TLS.
	Private func(testing.TB) Server
}

// Conformance runs the suite that every broker exportd works with must pass, through this package's clients and raw STOMP.
func Conformance(t *testing.T, subject Subject) {
	shared := subject.Shared(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, Server)
	}{
		{"a batch arrives whole, in order, byte for byte", arrivesWhole},
		{"a batch whose connection dies before its commit leaves nothing", allOrNothing},
		{"competing consumers share under their prefetch", competing},
		{"an acked message never comes back", ackedIsGone},
		{"what a dead connection held comes back in order and marked", redelivery},
		{"an ack for a dead connection is dropped", lateAck},
		{"a window above 32 is spread over connections", wideWindow},
		{"drain and close lose nothing and leave nothing in flight", drainAndClose},
		{"pause gives messages to others, resume takes part again", pauseAndResume},
		{"heart-beats keep an idle connection", idle},
		{"a silent broker is noticed and left", silent},
		{"of two addresses the one that answers is used", twoAddresses},
		{"a refused login says so", refusedLogin},
		{"transactions with acks commit and abort", transactions},
		{"an unknown ack is an error, a nack moves the message away", unknownAckAndNack},
		{"links that break again and again lose nothing", brokenLinks},
		{"browsing takes nothing", browsing},
		{"depth is told or said to be unknown, purge empties", depthAndPurge},
		{"a purge ends while others send, and takes no more than it says", purgeEnds},
		{"check finds nothing wrong", checkPasses},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, shared)
		})
	}
	t.Run("private", func(t *testing.T) {
		private := subject.Private(t)
		t.Run("publisher and subscriber outlive a restart, messages too", func(t *testing.T) { restart(t, private) })
		t.Run("TLS with our own authority", func(t *testing.T) { overTLS(t, private) })
	})
}

const patience = 20 * time.Second

func (s Server) addr(t testing.TB) string {
	u, err := url.Parse(s.URLs[0])
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// through is the configuration to reach the server through a proxy.
func (s Server) through(t testing.TB, p *Proxy) broker.Config {
	cfg := s.Config(t)
	cfg.URLs = []string{"stomp://" + p.Addr()}
	return cfg
}

func numbered(n int) []export.Message {
	msgs := make([]export.Message, n)
	for i := range msgs {
		msgs[i] = export.Message{Body: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	return msgs
}

func bodies(n int) []string {
	var all []string
	for _, m := range numbered(n) {
		all = append(all, string(m.Body))
	}
	return all
}

func publish(t testing.TB, cfg broker.Config, queue string, msgs []export.Message) {
	t.Helper()
	p := broker.NewPublisher(cfg)
	defer p.Close()
	if err := p.Publish(t.Context(), queue, msgs); err != nil {
		t.Fatal(err)
	}
}

// subscribe runs a subscriber and stops it, at the latest, when the test ends. kill drops its connections at once.
func subscribe(t testing.TB, cfg broker.Config, queue string, prefetch int) (s *broker.Subscriber, kill func()) {
	t.Helper()
	s = broker.NewSubscriber(cfg, queue, prefetch)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(ended)
	}()
	kill = func() {
		cancel()
		<-ended
	}
	t.Cleanup(kill)
	until(t, "a subscription", s.Connected)
	return s, kill
}

func take(t testing.TB, s *broker.Subscriber) *broker.Delivery {
	t.Helper()
	select {
	case d, ok := <-s.Deliveries():
		if !ok {
			t.Fatal("the subscriber has ended")
		}
		return d
	case <-time.After(patience):
		t.Fatal("no message came")
	}
	return nil
}

func takeAndAck(t testing.TB, s *broker.Subscriber, n int) (got []string) {
	t.Helper()
	for range n {
		d := take(t, s)
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(d.Body))
	}
	return got
}

func closeWell(t testing.TB, s *broker.Subscriber) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func browse(t testing.TB, cfg broker.Config, queue string) (found []string) {
	t.Helper()
	msgs, err := broker.Browse(t.Context(), cfg, queue, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs {
		found = append(found, string(m.Body))
	}
	return found
}

// until polls for a condition that another process brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about within %v", what, patience)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func contains(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
