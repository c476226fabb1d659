package main

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"exportd/broker"
	"exportd/consumer"
)

// metrics is the registry of one process. None carries a label that a client could choose.
type metrics struct{ *prometheus.Registry }

func newMetrics() metrics {
	m := metrics{prometheus.NewRegistry()}
	m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m metrics) counter(name, help string, labels prometheus.Labels, value func() float64) {
	m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "exportd_" + name, Help: help, ConstLabels: labels}, value))
}

func (m metrics) gauge(name, help string, value func() float64) {
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "exportd_" + name, Help: help}, value))
}

func (m metrics) relay(r *broker.Relay) {
	if r == nil {
		return
	}
	m.counter("relay_published_total", "Chunks whose message the broker confirmed.", nil, func() float64 { return float64(r.Stats().Published) })
	m.counter("relay_parked_total", "Dead-letter notices that the broker confirmed.", nil, func() float64 { return float64(r.Stats().Parked) })
	m.counter("relay_set_aside_total", "Messages that the broker refuses.", nil, func() float64 { return float64(r.Stats().SetAside) })
	m.counter("relay_failures_total", "Rounds of the relay that ended in an error.", nil, func() float64 { return float64(r.Stats().Failures) })
	m.gauge("relay_last_success_timestamp_seconds", "When the broker last confirmed a send, in Unix time; 0 before the first.", func() float64 {
		if last := r.Stats().LastSuccess; !last.IsZero() {
			return float64(last.UnixMilli()) / 1000
		}
		return 0
	})
}

func (m metrics) consumer(c *consumer.Consumer) {
	ended := func(outcome string, n *atomic.Int64) {
		m.counter("claims_ended_total", "Claims that ended, by outcome.", prometheus.Labels{"outcome": outcome}, func() float64 { return float64(n.Load()) })
	}
	s := &c.Stats
	ended("done", &s.Done)
	ended("retry", &s.Retried)
	ended("given_back", &s.GivenBack)
	ended("dead_lettered", &s.DeadLettered)
	ended("cancelled", &s.Cancelled)
	ended("lost", &s.LeasesLost)
	m.counter("files_reused_total", "Chunks answered by a file that an earlier one made.", nil, func() float64 { return float64(s.Reused.Load()) })
	m.counter("messages_unreadable_total", "Messages parked because they are no chunk of ours.", nil, func() float64 { return float64(s.Unreadable.Load()) })
	m.counter("messages_refused_total", "Messages of chunks that were not to run.", nil, func() float64 { return float64(s.Refused.Load()) })
	m.counter("rows_total", "Rows exported.", nil, func() float64 { return float64(s.Rows.Load()) })
	m.counter("bytes_total", "Bytes written to the object store.", nil, func() float64 { return float64(s.Bytes.Load()) })
	m.gauge("chunks_in_flight", "Chunks at work in this process.", func() float64 { return float64(c.InFlight()) })
	m.gauge("dependencies_away", "Shared dependencies whose outage stops this process from taking chunks.", func() float64 { return float64(len(c.Away())) })
}
