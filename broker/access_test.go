package broker_test

import (
	"errors"
	"strings"
	"testing"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/broker/localmq"
	"exportd/export"
)

// The users of activemq.xml may do what their processes need, and no more; passwords may hold what STOMP escapes.
func TestUsersOfActiveMQ(t *testing.T) {
	odd := `p:a\s s=ü`
	srv, _ := brokertest.PrivateActiveMQ(t, localmq.Config{Env: []string{"AMQ_API_PASSWORD=" + odd}})
	const work, parking = "job.chunk.work", "job.chunk.parking"
	api, worker := srv.Config(t), srv.Config(t)
	api.User, api.Password = "api", odd
	worker.User, worker.Password = "worker", "worker"

	for _, c := range []struct {
		cfg    broker.Config
		access []broker.Access
	}{
		{api, []broker.Access{{Queue: work, Send: true}, {Queue: parking, Send: true, Receive: true}}},
		{worker, []broker.Access{{Queue: work, Send: true, Receive: true}, {Queue: parking, Send: true}}},
	} {
		if faults := broker.Check(t.Context(), c.cfg, c.access...); len(faults) > 0 {
			t.Errorf("user %s: %q", c.cfg.User, faults)
		}
		d := broker.Depth(t.Context(), c.cfg, work, parking)
		for range 3 { // a cold JVM on a busy machine
			if !d[0].Known || !d[1].Known {
				d = broker.Depth(t.Context(), c.cfg, work, parking)
			}
		}
		if !d[0].Known || !d[1].Known {
			t.Errorf("user %s sees no depth: %+v", c.cfg.User, d)
		}
	}
	faults := broker.Check(t.Context(), api, broker.Access{Queue: work, Receive: true}, broker.Access{Queue: "other", Send: true})
	if len(faults) != 2 || !strings.Contains(faults[0], `cannot receive from queue job.chunk.work`) || !strings.Contains(faults[1], `cannot send to queue other`) {
		t.Errorf("missing rights are reported as %q", faults)
	}

	p := broker.NewPublisher(worker)
	defer p.Close()
	var refused *broker.RefusedError
	err := p.Publish(t.Context(), "other", []export.Message{{Body: []byte("x")}, {Body: []byte("y")}})
	if !errors.As(err, &refused) {
		t.Errorf("a forbidden batch: got %v, want a RefusedError", err)
	}
}
