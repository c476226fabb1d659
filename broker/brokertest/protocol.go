package brokertest

import (
	"testing"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"
	"github.com/google/go-cmp/cmp"

	"exportd/broker"
)

// raw is a bare go-stomp connection, closed when the test ends.
func raw(t testing.TB, srv Server) *stomp.Conn {
	t.Helper()
	c, err := stomp.Dial("tcp", srv.addr(t), stomp.ConnOpt.Login(srv.User, srv.Password), stomp.ConnOpt.AcceptVersion(stomp.V12),
		stomp.ConnOpt.HeartBeat(10*time.Second, 10*time.Second), stomp.ConnOpt.HeartBeatGracePeriodMultiplier(2.5))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.MustDisconnect() })
	return c
}

func persistent(f *frame.Frame) error {
	f.Header.Set("persistent", "true")
	return nil
}

func rawSubscribe(t testing.TB, c *stomp.Conn, queue string, prefetch string) *stomp.Subscription {
	t.Helper()
	sub, err := c.Subscribe("/queue/"+queue, stomp.AckClientIndividual, stomp.SubscribeOpt.Header("activemq.prefetchSize", prefetch))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.MustDisconnect()
		for range sub.C {
		}
	})
	return sub
}

func rawTake(t testing.TB, sub *stomp.Subscription) *stomp.Message {
	t.Helper()
	select {
	case m := <-sub.C:
		if m == nil || m.Err != nil {
			t.Fatalf("the subscription ended: %+v", m)
		}
		return m
	case <-time.After(patience):
		t.Fatal("no message came")
	}
	return nil
}

func transactions(t *testing.T, srv Server) {
	in, out, cfg := Queue(t), Queue(t), srv.Config(t)
	publish(t, cfg, in, numbered(2))
	c := raw(t, srv)
	sub := rawSubscribe(t, c, in, "2")
	first, second := rawTake(t, sub), rawTake(t, sub)
	move := func(m *stomp.Message, end func(*stomp.Transaction) error) {
		t.Helper()
		tx := c.Begin()
		if err := tx.Send("/queue/"+out, "text/plain", m.Body, stomp.SendOpt.NoContentLength, persistent); err != nil {
			t.Fatal(err)
		}
		if err := tx.Ack(m); err != nil {
			t.Fatal(err)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	move(first, (*stomp.Transaction).AbortWithReceipt)
	if got := browse(t, cfg, out); len(got) > 0 {
		t.Errorf("an aborted transaction sent %v", got)
	}
	move(first, (*stomp.Transaction).CommitWithReceipt) // after the abort the ack is valid again
	if diff := cmp.Diff(bodies(1), browse(t, cfg, out)); diff != "" {
		t.Errorf("a committed transaction: %s", diff)
	}
	tx := c.Begin()
	tx.Ack(second)
	c.MustDisconnect() // before the commit: the message is free again

	s, _ := subscribe(t, cfg, in, 2)
	if d := take(t, s); string(d.Body) != string(second.Body) || !d.Redelivered {
		t.Errorf("got %s (redelivered %v), want %s again", d.Body, d.Redelivered, second.Body)
	} else {
		d.Ack()
	}
	closeWell(t, s)
	if left := browse(t, cfg, in); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func unknownAckAndNack(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(2))
	c := raw(t, srv)
	sub := rawSubscribe(t, c, q, "2")
	first, second := rawTake(t, sub), rawTake(t, sub)
	if err := c.Nack(first); err != nil {
		t.Fatal(err)
	}
	if err := c.Ack(second); err != nil {
		t.Fatal(err)
	}
	if err := c.Ack(second); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-sub.C:
		if m == nil || m.Err == nil || !contains(m.Err.Error(), "ACK") {
			t.Errorf("the second ack of a message gives %+v, want an ERROR frame", m)
		}
	case <-time.After(patience):
		t.Error("the second ack of a message gives no ERROR frame")
	}
	if left := browse(t, cfg, q); len(left) > 0 {
		t.Errorf("after a nack and an ack the queue has %v", left)
	}
}

func browsing(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(300)) // ActiveMQ shows 400 of a queue for which its configuration says nothing else
	s, _ := subscribe(t, cfg, q, 10)
	for range 10 {
		take(t, s) // what is in flight is shown too
	}
	if diff := cmp.Diff(bodies(300), browse(t, cfg, q)); diff != "" {
		t.Error(diff)
	}
	if some, err := broker.Browse(t.Context(), cfg, q, 7); err != nil || len(some) != 7 {
		t.Errorf("with a limit of 7: %d messages, %v", len(some), err)
	}
	if none := browse(t, cfg, Queue(t)); len(none) > 0 {
		t.Errorf("an empty queue shows %v", none)
	}
}

func depthAndPurge(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(50))
	s, kill := subscribe(t, cfg, q, 5)
	take(t, s).Ack()
	take(t, s)
	until(t, "the ack to be counted", func() bool {
		d := broker.Depth(t.Context(), cfg, q)[0]
		return !d.Known && d.Reason != "" || d.Messages == 49 && d.InFlight == 5 && d.Consumers == 1
	})
	kill()
	until(t, "the end of the consumer", func() bool {
		d := broker.Depth(t.Context(), cfg, q)[0]
		return !d.Known || d.InFlight == 0
	})
	if n, err := broker.Purge(t.Context(), cfg, q); err != nil || n != 49 {
		t.Errorf("purged %d, %v; want 49", n, err)
	}
	if n, err := broker.Purge(t.Context(), cfg, q); err != nil || n != 0 {
		t.Errorf("purging an empty queue: %d, %v", n, err)
	}
	if d := broker.Depth(t.Context(), cfg, Queue(t))[0]; d.Known || d.Reason == "" {
		t.Errorf("a queue that does not exist: %+v", d)
	}
	cfg.URLs = []string{"stomp://127.0.0.1:1"}
	if d := broker.Depth(t.Context(), cfg, q)[0]; d.Known || !contains(d.Reason, "127.0.0.1:1") {
		t.Errorf("without a broker: %+v", d)
	}
}

func purgeEnds(t *testing.T, srv Server) {
	q, cfg := Queue(t), srv.Config(t)
	publish(t, cfg, q, numbered(100))
	if d := broker.Depth(t.Context(), cfg, q)[0]; !d.Known {
		t.Skipf("this broker does not tell how many there are: %s", d.Reason)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	sent := 100
	go func() {
		defer close(stopped)
		for p := broker.NewPublisher(cfg); ; sent++ {
			select {
			case <-stop:
				p.Close()
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err := p.Publish(t.Context(), q, numbered(1)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	n, err := broker.Purge(t.Context(), cfg, q)
	close(stop)
	<-stopped
	if err != nil || n < 100 {
		t.Errorf("purged %d, %v", n, err)
	}
	if left := len(browse(t, cfg, q)); n+left != sent {
		t.Errorf("of %d messages %d were purged and %d are left", sent, n, left)
	}
}
