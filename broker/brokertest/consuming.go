package brokertest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/broker"
)

// competing: in lock step each of two consumers finds a message, although the first one came to a full queue.
func competing(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(60))
	a, _ := subscribe(t, cfg, q, 5)
	b, _ := subscribe(t, cfg, q, 5)
	for range 20 {
		da, db := take(t, a), take(t, b)
		da.Ack()
		db.Ack()
	}
	for range 20 { // who gets the last ones depends on whose acks came first
		select {
		case d := <-a.Deliveries():
			d.Ack()
		case d := <-b.Deliveries():
			d.Ack()
		case <-time.After(patience):
			t.Fatal("no message came")
		}
	}
	closeWell(t, a)
	closeWell(t, b)
	if left := browse(t, cfg, q); len(left) > 0 {
		t.Errorf("%d messages are left", len(left))
	}
}

func ackedIsGone(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(200))
	s, _ := subscribe(t, cfg, q, 16)
	if diff := cmp.Diff(bodies(200), takeAndAck(t, s, 200)); diff != "" {
		t.Fatal(diff)
	}
	closeWell(t, s)
	if left := browse(t, cfg, q); len(left) > 0 {
		t.Errorf("%d acked messages are back: %v", len(left), left)
	}
}

func redelivery(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(5)) // all of them with the dead one: what waits would go to the next before the death is noticed
	a, kill := subscribe(t, cfg, q, 4)
	first := take(t, a)
	first.Ack()
	for range 3 {
		take(t, a)
	}
	// The ack is written before the connection goes: the fifth message is pulled by it.
	take(t, a)
	kill()

	b, _ := subscribe(t, cfg, q, 6)
	for i, want := range bodies(5)[1:] {
		d := take(t, b)
		if string(d.Body) != want {
			t.Fatalf("message %d is %s, want %s", i, d.Body, want)
		}
		if !d.Redelivered {
			t.Errorf("%s was at a consumer and is not marked redelivered", want)
		}
		d.Ack()
		d.Ack() // the second does nothing: to the broker it would be an error
	}
	closeWell(t, b)
}

// lateAck: two messages in hand when the connection breaks; acks for them must not hurt the new connection.
func lateAck(t *testing.T, srv Server) {
	q := Queue(t)
	proxy := NewProxy(t, srv.addr(t))
	publish(t, srv.Config(t), q, numbered(2))
	s, _ := subscribe(t, srv.through(t, proxy), q, 2)
	old := []*broker.Delivery{take(t, s), take(t, s)}
	proxy.Cut()
	again := []*broker.Delivery{take(t, s), take(t, s)}
	for _, d := range old {
		if err := d.Ack(); err != nil {
			t.Errorf("a late ack: %v", err)
		}
	}
	for _, d := range again {
		if !d.Redelivered {
			t.Errorf("%s is not marked redelivered", d.Body)
		}
		d.Ack()
	}
	closeWell(t, s)
	if n := proxy.Connections(); n != 2 {
		t.Errorf("%d connections, want the one that was cut and one more", n)
	}
	if left := browse(t, srv.Config(t), q); len(left) > 0 {
		t.Errorf("%d messages are left", len(left))
	}
}

func wideWindow(t *testing.T, srv Server) {
	q := Queue(t)
	proxy := NewProxy(t, srv.addr(t))
	publish(t, srv.Config(t), q, numbered(100))
	s, _ := subscribe(t, srv.through(t, proxy), q, 100)
	var inHand []*broker.Delivery
	for range 100 {
		inHand = append(inHand, take(t, s)) // all at once, none acked
	}
	for _, d := range inHand {
		d.Ack()
	}
	closeWell(t, s)
	if n := proxy.Connections(); n != 4 {
		t.Errorf("a window of 100 uses %d connections, want 4", n)
	}
	if left := browse(t, srv.Config(t), q); len(left) > 0 {
		t.Errorf("%d messages are left", len(left))
	}
}

func drainAndClose(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(100))
	s, _ := subscribe(t, cfg, q, 10)
	var inHand []*broker.Delivery
	for range 10 {
		inHand = append(inHand, take(t, s))
	}
	s.Drain()
	for _, d := range inHand {
		d.Ack()
	}
	select {
	case d, ok := <-s.Deliveries():
		if ok {
			t.Errorf("%s was handed out after Drain", d.Body)
		}
	default:
	}
	closeWell(t, s)
	if s.Connected() {
		t.Error("still connected after Close")
	}
	if diff := cmp.Diff(bodies(100)[10:], browse(t, cfg, q)); diff != "" {
		t.Error(diff)
	}
	if d := broker.Depth(t.Context(), cfg, q)[0]; d.Known && (d.InFlight != 0 || d.Consumers != 0 || d.Messages != 90) {
		t.Errorf("after Close the queue has %+v", d)
	}
}

func pauseAndResume(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(20))
	a, _ := subscribe(t, cfg, q, 5)
	inHand := take(t, a)
	a.Pause()
	inHand.Ack() // in time: it counts
	until(t, "the end of the subscription", func() bool { return !a.Connected() })

	b, _ := subscribe(t, cfg, q, 5)
	// In any order: the second consumer may get waiting ones before the first one's are back.
	got, want := takeAndAck(t, b, 19), bodies(20)[1:]
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("while the first consumer pauses: %s", diff)
	}
	closeWell(t, b)
	a.Resume()
	publish(t, cfg, q, numbered(2))
	takeAndAck(t, a, 2)
	closeWell(t, a)
}

func idle(t *testing.T, srv Server) {
	q := Queue(t)
	proxy := NewProxy(t, srv.addr(t))
	cfg := srv.through(t, proxy)
	cfg.HeartBeat = time.Second
	s, _ := subscribe(t, cfg, q, 1)
	time.Sleep(6 * time.Second) // the silence is what is tested
	if n := proxy.Connections(); n != 1 || !s.Connected() {
		t.Errorf("after six idle heart-beats: %d connections, connected %v", n, s.Connected())
	}
	publish(t, srv.Config(t), q, numbered(1))
	takeAndAck(t, s, 1)
	closeWell(t, s)
}

func restart(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	p := broker.NewPublisher(cfg)
	defer p.Close()
	if err := p.Publish(t.Context(), q, numbered(20)); err != nil {
		t.Fatal(err)
	}
	s, _ := subscribe(t, cfg, q, 5)
	takeAndAck(t, s, 3)
	old := take(t, s)

	srv.Private.Kill()
	until(t, "the loss of the subscription", func() bool { return !s.Connected() })
	if err := p.Publish(t.Context(), q, numbered(1)); err == nil {
		t.Error("Publish reports success without a broker")
	}
	if err := srv.Private.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), q, numbered(1)); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	// Acks are not waited for: a killed broker may repeat any message it was not asked a barrier after.
	seen := map[string]bool{string(old.Body): true}
	for len(seen) < 20-3 {
		d := take(t, s)
		seen[string(d.Body)] = true
		d.Ack()
	}
	if err := old.Ack(); err != nil {
		t.Error(err)
	}
	closeWell(t, s)
}

func overTLS(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	cfg.URLs = []string{srv.TLSURL}
	publish(t, cfg, q, numbered(50))
	s, _ := subscribe(t, cfg, q, 5)
	takeAndAck(t, s, 50)
	closeWell(t, s)

	cfg.CAFile = "" // now only the system's authorities are trusted
	p := broker.NewPublisher(cfg)
	defer p.Close()
	if err := p.Publish(t.Context(), q, numbered(1)); err == nil || !contains(err.Error(), "TLS", "certificate") {
		t.Errorf("an unknown authority: got %v", err)
	}
}
