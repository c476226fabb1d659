package broker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/broker/localmq"
	"exportd/export"
)

// Two brokers share a data folder. While messages flow the first is killed, and the second takes over.
func TestFailoverPairLosesNothingConfirmed(t *testing.T) {
	data := t.TempDir()
	_, first := brokertest.PrivateActiveMQ(t, localmq.Config{Data: data})
	_, second := brokertest.PrivateActiveMQ(t, localmq.Config{Data: data, Standby: true})
	cfg := broker.Config{URLs: []string{first.URL(), second.URL()}, User: "admin", Password: "admin", Log: brokertest.Log(t)}
	queue := brokertest.Queue(t)

	s := broker.NewSubscriber(cfg, queue, 8)
	ctx, kill := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	defer running.Wait()
	defer kill()

	confirmed := make(chan string, 100_000)
	stop := make(chan struct{})
	running.Go(func() {
		p := broker.NewPublisher(cfg)
		defer p.Close()
		for n := 0; ; n++ {
			select {
			case <-stop:
				close(confirmed)
				return
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
			body := fmt.Sprint(n)
			for p.Publish(ctx, queue, []export.Message{{Body: []byte(body)}}) != nil && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
			confirmed <- body
		}
	})
	seen := map[string]bool{}
	receive := func(n int) {
		t.Helper()
		for range n {
			select {
			case d := <-s.Deliveries():
				seen[string(d.Body)] = true
				d.Ack()
			case <-time.After(60 * time.Second):
				t.Fatalf("nothing comes any more; %d messages so far", len(seen))
			}
		}
	}
	receive(50)
	first.Kill()
	receive(100) // from the second
	close(stop)
	for body := range confirmed {
		for !seen[body] {
			receive(1)
		}
	}
}
