package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/embedded"
	"exportd/consumer"
	"exportd/export"
)

func take(t *testing.T, i *intake) consumer.Delivery {
	t.Helper()
	select {
	case d := <-i.Deliveries():
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no message")
		return nil
	}
}

func TestDrainedIntakeLeavesWhatNobodyTookToOthers(t *testing.T) {
	t.Parallel()
	b, err := embedded.Listen("127.0.0.1:0", embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cfg := broker.Config{URLs: []string{b.URL()}, Log: slog.New(slog.DiscardHandler)}
	publisher := broker.NewPublisher(cfg)
	defer publisher.Close()
	if err := publisher.Publish(t.Context(), "work", []export.Message{{Body: []byte("first")}, {Body: []byte("second")}}); err != nil {
		t.Fatal(err)
	}

	closing := &closers{log: cfg.Log}
	defer closing.run()
	open := func() *intake {
		s := broker.NewSubscriber(cfg, "work", 2)
		closing.background(t.Context(), "subscriber", func(ctx context.Context) { _ = s.Run(ctx) })
		return newIntake(s)
	}
	one := open()
	d := take(t, one)
	if string(d.Message().Body) != "first" {
		t.Errorf("got %q", d.Message().Body)
	}
	one.Drain()
	select {
	case d := <-one.Deliveries():
		t.Errorf("after Drain: %q", d.Message().Body)
	default:
	}
	if err := d.Ack(); err != nil {
		t.Error(err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Error(err)
	}
	other := open()
	if d := take(t, other); string(d.Message().Body) != "second" {
		t.Errorf("the other got %q", d.Message().Body)
	}
	other.Drain()
}

func TestClosersRunBackwardsAndAllOfThem(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var order []string
	c := &closers{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, name := range []string{"first", "second", "third"} {
		c.add(name, func() error {
			order = append(order, name)
			if name == "third" {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
	c.run()
	if got := strings.Join(order, " "); got != "third second first" || !strings.Contains(log.String(), "what=third") {
		t.Errorf("got %s, log %s", got, log.String())
	}
}

func TestBackgroundOutlivesTheSignalAndEndsWithItsCloser(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &closers{log: slog.New(slog.DiscardHandler)}
	started, ended := make(chan struct{}), false
	c.background(ctx, "worker", func(ctx context.Context) {
		if ctx.Err() != nil {
			t.Error("ended with the signal")
		}
		close(started)
		<-ctx.Done()
		ended = true
	})
	<-started
	c.run()
	if !ended {
		t.Error("the closer did not wait")
	}
}

func TestWorkerNamesAreUniquePerStart(t *testing.T) {
	t.Parallel()
	if a, b := workerName(), workerName(); a == b || len(strings.Split(a, "/")) != 3 {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestWhatDoesNotCloseEndsWithTheProcessInTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log strings.Builder
	c := &closers{log: slog.New(slog.NewTextHandler(&log, nil))}
	c.limit(ctx, 10*time.Millisecond)
	c.add("database", func() error { t.Error("it was closed although others still use it"); return nil })
	c.add("publisher", func() error { <-t.Context().Done(); return nil })
	c.run()
	if !strings.Contains(log.String(), "what=publisher") {
		t.Errorf("nothing is said of what hangs: %s", log.String())
	}
}
