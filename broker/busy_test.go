package broker_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/export"
)

// Work that leaves no processor idle must not cost the connection its heart-beats. Not parallel: it takes all processors but one from the others.
func TestABusyProcessWithOneProcessorKeepsItsConnection(t *testing.T) {
	srv := brokertest.ActiveMQ(t)
	proxy := brokertest.NewProxy(t, srv.URLs[0][len("stomp://"):])
	cfg, queue := srv.Config(t), brokertest.Queue(t)
	cfg.URLs, cfg.HeartBeat = []string{"stomp://" + proxy.Addr()}, time.Second

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := broker.NewSubscriber(cfg, queue, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { s.Run(ctx) })
	for range 4 {
		all.Go(func() {
			var n atomic.Int64
			for ctx.Err() == nil {
				n.Add(1)
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); !s.Connected(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no subscription")
		}
	}
	time.Sleep(8 * time.Second) // of both sides' heart-beats, which is what is tested
	if n := proxy.Connections(); n != 1 || !s.Connected() {
		t.Errorf("after eight heart-beats %d connections, connected %t", n, s.Connected())
	}
	p := broker.NewPublisher(cfg)
	defer p.Close()
	if err := p.Publish(t.Context(), queue, []export.Message{{Body: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	(<-s.Deliveries()).Ack()
}
