package consumer_test

import (
	"context"
	"testing"
	"time"

	"exportd/consumer"
	"exportd/db"
)

// late has a heartbeat under way when the worker stops, which the server executes a while later, whether anybody still waits for it or not.
type late struct {
	*db.Store
	stopping chan struct{}
}

func (l late) Heartbeat(ctx context.Context, host, version string, concurrency, inFlight int) error {
	if err := l.Store.Heartbeat(ctx, host, version, concurrency, inFlight); err != nil {
		return err
	}
	<-l.stopping
	time.Sleep(200 * time.Millisecond)
	return l.Store.Heartbeat(context.WithoutCancel(ctx), host, version, concurrency, inFlight)
}

func TestNoHeartbeatFollowsTheFarewell(t *testing.T) {
	w := newWorld(t)
	stopping := make(chan struct{})
	c := w.start("a", sourceFunc{export: rows}, func(c *consumer.Config) { c.Store = late{c.Store.(*db.Store), stopping} })
	listed := func() bool { return one[bool](w, `select exists (select from worker where worker_id = 'a')`) }
	w.eventually("it is listed", listed)
	close(stopping)
	c.stop()
	if listed() {
		t.Error("a worker that has left is listed")
	}
}
