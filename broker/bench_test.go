package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/broker/embedded"
	"exportd/export"
)

// brokers to measure: BenchmarkPublish/activemq, BenchmarkPublish/embedded.
func eachBroker(b *testing.B, measure func(b *testing.B, srv brokertest.Server)) {
	b.Run("activemq", func(b *testing.B) { measure(b, brokertest.ActiveMQ(b)) })
	b.Run("embedded", func(b *testing.B) {
		e, err := embedded.Listen("127.0.0.1:0", embedded.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		measure(b, brokertest.Server{URLs: []string{e.URL()}})
	})
}

func work(n int) []export.Message {
	msgs := make([]export.Message, n)
	for i := range msgs {
		msgs[i] = export.WorkMessage(export.Debt{Ref: export.Ref{JobID: "J20260102_000123", Key: fmt.Sprintf("KEY%05d", i), Date: 20250215}, Attempt: 1, Priority: 4,
			RequestID: "01234567-89ab-cdef-0123-456789abcdef", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	}
	return msgs
}

// BenchmarkPublish sends persistent work messages in the relay's batches; an operation is one message.
func BenchmarkPublish(b *testing.B) {
	eachBroker(b, func(b *testing.B, srv brokertest.Server) {
		for _, batch := range []int{1, 50, 500} {
			b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
				cfg, queue := quiet(b, srv), brokertest.Queue(b)
				p := broker.NewPublisher(cfg)
				defer p.Close()
				msgs := work(batch)
				b.ResetTimer()
				for sent := 0; sent < b.N; sent += batch {
					if err := p.Publish(b.Context(), queue, msgs[:min(batch, b.N-sent)]); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				broker.Purge(b.Context(), cfg, queue)
			})
		}
	})
}

// BenchmarkConsume takes and acks waiting messages; an operation is one message.
func BenchmarkConsume(b *testing.B) {
	eachBroker(b, func(b *testing.B, srv brokertest.Server) {
		for _, prefetch := range []int{1, 8, 32, 128} {
			b.Run(fmt.Sprint("prefetch=", prefetch), func(b *testing.B) {
				cfg, queue := quiet(b, srv), brokertest.Queue(b)
				p := broker.NewPublisher(cfg)
				defer p.Close()
				msgs := work(500)
				for sent := 0; sent < b.N; sent += len(msgs) {
					if err := p.Publish(b.Context(), queue, msgs[:min(len(msgs), b.N-sent)]); err != nil {
						b.Fatal(err)
					}
				}
				s := broker.NewSubscriber(cfg, queue, prefetch)
				go s.Run(context.Background())
				(<-s.Deliveries()).Ack() // connected
				b.ResetTimer()
				for range b.N - 1 {
					(<-s.Deliveries()).Ack()
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				if err := s.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		}
	})
}

func quiet(b *testing.B, srv brokertest.Server) broker.Config {
	cfg := srv.Config(b)
	cfg.Log = slog.New(slog.DiscardHandler)
	return cfg
}
