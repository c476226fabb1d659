package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/export"
)

func TestSmoke(t *testing.T) {
	srv := brokertest.ActiveMQ(t)
	q := brokertest.Queue(t)
	p := broker.NewPublisher(srv.Config(t))
	defer p.Close()
	var msgs []export.Message
	for i := range 200 {
		msgs = append(msgs, export.Message{Body: []byte(fmt.Sprintf(`{"n":%d}`, i)), Headers: map[string]string{"jobId": "J1:ü", "priority": "5"}})
	}
	start := time.Now()
	if err := p.Publish(t.Context(), q, msgs); err != nil {
		t.Fatal(err)
	}
	t.Log("published", time.Since(start))
	s := broker.NewSubscriber(srv.Config(t), q, 50)
	errc := make(chan error, 1)
	go func() { errc <- s.Run(context.Background()) }()
	for i := range 200 {
		d := <-s.Deliveries()
		if i == 0 {
			t.Log(string(d.Body), d.Headers)
		}
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("consumed", time.Since(start), s.Connected())
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Log("closed", time.Since(start), <-errc)
}
