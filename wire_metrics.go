package main

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"exportd/broker"
	"exportd/consumer"
	"exportd/db"
	"exportd/webhook"
)

// metrics is the registry of one process. None carries a label that a client could choose.
type metrics struct{ *prometheus.Registry }

func newMetrics() metrics {
	m := metrics{prometheus.NewRegistry()}
	m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	v := buildVersion()
	m.gauge("build_info", "Always 1; the labels say what runs.", prometheus.Labels{"version": v.version, "commit": v.commit, "go": runtime.Version()}, func() float64 { return 1 })
	return m
}

func (m metrics) counter(name, help string, labels prometheus.Labels, value func() float64) {
	m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "exportd_" + name, Help: help, ConstLabels: labels}, value))
}

// count is a counter that lives elsewhere, as an atomic.
func (m metrics) count(name, help string, labels prometheus.Labels, n interface{ Load() int64 }) {
	m.counter(name, help, labels, func() float64 { return float64(n.Load()) })
}

func (m metrics) gauge(name, help string, labels prometheus.Labels, value func() float64) {
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "exportd_" + name, Help: help, ConstLabels: labels}, value))
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// connected is a connection to the broker.
func (m metrics) connected(of string, now func() bool) {
	m.gauge("broker_connected", "Whether the connection to the broker is up. The relay makes its own when it has something to send.",
		prometheus.Labels{"connection": of}, func() float64 { return truth(now()) })
}

func (m metrics) relay(r *broker.Relay, p *broker.Publisher) {
	m.connected("relay", p.Connected)
	m.counter("relay_published_total", "Chunks whose message the broker confirmed.", nil, func() float64 { return float64(r.Stats().Published) })
	m.counter("relay_parked_total", "Dead-letter notices that the broker confirmed.", nil, func() float64 { return float64(r.Stats().Parked) })
	m.counter("relay_set_aside_total", "Messages that the broker refuses.", nil, func() float64 { return float64(r.Stats().SetAside) })
	m.counter("relay_failures_total", "Rounds of the relay that ended in an error.", nil, func() float64 { return float64(r.Stats().Failures) })
	m.gauge("relay_last_success_timestamp_seconds", "When the broker last confirmed a send, in Unix time; 0 before the first.", nil, func() float64 {
		if last := r.Stats().LastSuccess; !last.IsZero() {
			return float64(last.UnixMilli()) / 1000
		}
		return 0
	})
}

// repairs are what every process does for those that died, and the ends of jobs.
func (m metrics) repairs(f *consumer.Finisher, s *consumer.Sweeper) {
	for status, n := range map[string]interface{ Load() int64 }{"COMPLETED": &f.Completed, "FAILED": &f.Failed, "CANCELLED": &f.Cancelled} {
		m.count("jobs_ended_total", "Jobs ended by this process, by outcome.", prometheus.Labels{"status": status}, n)
	}
	for then, n := range map[string]interface{ Load() int64 }{"retry": &s.Expired, "end": &s.Ended} {
		m.count("leases_expired_total", "Leases of lost workers that this process found, by what followed: the chunk is tried again, or was ended.", prometheus.Labels{"then": then}, n)
	}
}

func (m metrics) webhooks(d *webhook.Deliverer) {
	for outcome, n := range map[string]interface{ Load() int64 }{"delivered": &d.Delivered, "failed": &d.Failed, "given_up": &d.GivenUp, "gone": &d.Gone} {
		m.count("webhook_calls_total", "Calls to callback URLs, by outcome: failed ones are made again; after given_up (a day of failures) and gone (410) the receiver is not told.",
			prometheus.Labels{"outcome": outcome}, n)
	}
}

// pool is one of the connection pools.
func (m metrics) pool(name string, stats func() db.PoolStats) {
	labels := func(state string) prometheus.Labels { return prometheus.Labels{"pool": name, "state": state} }
	m.gauge("db_connections", "Database connections of this process, by pool and state.", labels("in_use"), func() float64 { return float64(stats().InUse) })
	m.gauge("db_connections", "Database connections of this process, by pool and state.", labels("idle"), func() float64 { s := stats(); return float64(s.Open - s.InUse) })
	pool := prometheus.Labels{"pool": name}
	m.gauge("db_connections_limit", "Most connections that the pool may have.", pool, func() float64 { return float64(stats().Most) })
	m.counter("db_connection_waits_total", "How often somebody waited for a free connection.", pool, func() float64 { return float64(stats().Waits) })
	m.counter("db_connection_wait_seconds_total", "How long anybody waited for a free connection, in all.", pool, func() float64 { return stats().Waited.Seconds() })
}

// chunkDurations is for consumer.Config.Ended.
func (m metrics) chunkDurations() func(consumer.Outcome, time.Duration) {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "exportd_chunk_duration_seconds", Help: "Time from the claim of a chunk to its settlement, by outcome.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800},
	}, []string{"outcome"})
	m.MustRegister(h)
	return func(o consumer.Outcome, took time.Duration) { h.WithLabelValues(string(o)).Observe(took.Seconds()) }
}

func (m metrics) consumer(c *consumer.Consumer) {
	s := &c.Stats
	m.count("claims_total", "Chunks claimed: attempts begun.", nil, &s.Claimed)
	for _, o := range consumer.Outcomes {
		m.count("claims_ended_total", "Claims that ended, by outcome. generated and reused are chunks that are done.", prometheus.Labels{"outcome": string(o)}, s.Of(o))
	}
	m.count("messages_unreadable_total", "Messages parked because they are no chunk of ours.", nil, &s.Unreadable)
	m.count("messages_refused_total", "Messages of chunks that were not to run.", nil, &s.Refused)
	m.count("rows_total", "Rows exported.", nil, &s.Rows)
	m.count("bytes_total", "Bytes written to the object store.", nil, &s.Bytes)
	m.gauge("chunks_in_flight", "Chunks at work or being settled in this process.", nil, func() float64 { return float64(c.InFlight()) })
	m.gauge("concurrency", "Chunks that this process works on at a time.", nil, func() float64 { return float64(c.Concurrency) })
	for _, name := range consumer.Dependencies {
		m.gauge("breaker_open", "Whether this process takes no chunks because the dependency is away.", prometheus.Labels{"dependency": name},
			func() float64 { return truth(c.IsAway(name)) })
	}
}
