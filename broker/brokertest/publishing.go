package brokertest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/broker"
	"exportd/export"
)

func arrivesWhole(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	msgs := numbered(300)
	odd := map[string]string{"jobId": "J20260102_000123", "chunkKey": `key=Ä:1\2|€:date=20250215`, "correlation-id": "J20260102_000123",
		"priority": "7", "exportd-reason": "first line\nsecond line\r", "attempt": "3"}
	for _, body := range [][]byte{
		bytes.Repeat([]byte("64kB"), 16<<10),
		[]byte("plain text, ünïcödé €"),
		[]byte("a\x00b"),
		{0xff, 0xfe, 0x00, 0x01},
		{},
	} {
		msgs = append(msgs, export.Message{Body: body, Headers: odd})
	}
	publish(t, cfg, q, msgs)

	s, _ := subscribe(t, cfg, q, 10)
	for i, m := range msgs {
		d := take(t, s)
		if !bytes.Equal(d.Body, m.Body) {
			t.Fatalf("message %d: got %.80q, want %.80q", i, d.Body, m.Body)
		}
		for k, v := range m.Headers {
			if d.Headers[k] != v {
				t.Errorf("message %d: header %s is %q, want %q", i, k, d.Headers[k], v)
			}
		}
		if d.Redelivered {
			t.Errorf("message %d is marked redelivered", i)
		}
		d.Ack()
	}
	closeWell(t, s)
}

func allOrNothing(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	c := raw(t, srv)
	tx := c.Begin()
	for _, m := range numbered(10) {
		if err := tx.Send("/queue/"+q, "text/plain", m.Body, persistent); err != nil {
			t.Fatal(err)
		}
	}
	c.MustDisconnect()
	if left := browse(t, cfg, q); len(left) > 0 {
		t.Fatalf("an uncommitted batch left %d messages", len(left))
	}

	// A body that no frame can hold spoils its batch, and the publisher works on.
	p := broker.NewPublisher(cfg)
	defer p.Close()
	var refused *broker.RefusedError
	if err := p.Publish(t.Context(), q, append(numbered(2), export.Message{Body: make([]byte, 2<<20)})); !errors.As(err, &refused) {
		t.Fatalf("2 MiB: got %v, want a RefusedError", err)
	}
	if err := p.Publish(t.Context(), q, numbered(2)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bodies(2), browse(t, cfg, q)); diff != "" {
		t.Fatal(diff)
	}
}

func twoAddresses(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	for _, urls := range [][]string{{"stomp://127.0.0.1:1", srv.URLs[0]}, {srv.URLs[0], "stomp://127.0.0.1:1"}} {
		cfg.URLs = urls
		publish(t, cfg, q, numbered(3))
		s, _ := subscribe(t, cfg, q, 2)
		takeAndAck(t, s, 3)
		closeWell(t, s)
	}

	cfg.URLs = []string{"stomp://127.0.0.1:1", "stomp://127.0.0.1:2"}
	p := broker.NewPublisher(cfg)
	defer p.Close()
	began := time.Now()
	err := p.Publish(t.Context(), q, numbered(1))
	if err == nil || !contains(err.Error(), "127.0.0.1:1", "127.0.0.1:2", "refused") {
		t.Errorf("nobody answers: got %v, want both addresses named", err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("took %v to find that nobody answers", d)
	}
}

func refusedLogin(t *testing.T, srv Server) {
	cfg := srv.Config(t)
	cfg.Password = "wrong: \\n"
	p := broker.NewPublisher(cfg)
	defer p.Close()
	err := p.Publish(t.Context(), Queue(t), numbered(1))
	var refused *broker.RefusedError
	if !errors.As(err, &refused) || !contains(err.Error(), "login", cfg.User, "invalid") {
		t.Errorf("got %v, want that the login was refused", err)
	}
	if err != nil && strings.Contains(err.Error(), "wrong") {
		t.Errorf("the error tells the password: %v", err)
	}
	if faults := broker.Check(t.Context(), cfg, broker.Access{Queue: "x", Send: true}); len(faults) != 1 || !contains(faults[0], "login", cfg.User) {
		t.Errorf("check says %q", faults)
	}
}

func checkPasses(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(1))
	if faults := broker.Check(t.Context(), cfg, broker.Access{Queue: q, Send: true, Receive: true}); len(faults) > 0 {
		t.Errorf("got %q", faults)
	}
	if diff := cmp.Diff(bodies(1), browse(t, cfg, q)); diff != "" {
		t.Errorf("check changed the queue: %s", diff)
	}
}

// silent: a broker that is reachable and says nothing costs a publisher its timeout and a subscriber two and a half heart-beats.
func silent(t *testing.T, srv Server) {
	q := Queue(t)
	proxy := NewProxy(t, srv.addr(t))
	cfg := srv.through(t, proxy)
	cfg.HeartBeat = time.Second
	s, _ := subscribe(t, cfg, q, 2)
	p := broker.NewPublisher(srv.through(t, proxy))
	defer p.Close()
	if err := p.Publish(t.Context(), q, numbered(1)); err != nil {
		t.Fatal(err)
	}
	takeAndAck(t, s, 1)

	proxy.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := p.Publish(ctx, q, numbered(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("Publish took %v with a deadline of 500 ms", d)
	}
	until(t, "the loss of the subscription", func() bool { return !s.Connected() })
	proxy.Resume()
	until(t, "a new subscription", s.Connected)
	if err := p.Publish(t.Context(), q, numbered(1)); err != nil {
		t.Fatal(err)
	}
	takeAndAck(t, s, 1)
}
