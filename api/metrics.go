package api

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics have no label that a client could choose: a route is a template, or "unknown".
type metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	submitted *prometheus.CounterVec
	chunks    prometheus.Counter
	audited   *prometheus.CounterVec
}

// newMetrics makes those of the requests.
func newMetrics(registry *prometheus.Registry, held func() float64) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exportd_http_requests_total", Help: "HTTP requests answered.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exportd_http_request_duration_seconds", Help: "Time to answer HTTP requests; of streams and waits, their whole length.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "status"}),
	}
	registry.MustRegister(m.requests, m.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "exportd_http_held_answers", Help: "Streams and waits that are open.",
	}, held))
	return m
}

// submissions adds those of a process that takes jobs.
func (m *metrics) submissions(registry *prometheus.Registry) {
	m.submitted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "exportd_submissions_total", Help: "Jobs submitted: stored, or replayed because their idempotency key was used before.",
	}, []string{"result"})
	m.chunks = prometheus.NewCounter(prometheus.CounterOpts{Name: "exportd_submitted_chunks_total", Help: "Chunks of the jobs stored."})
	for _, result := range []string{"stored", "replayed"} {
		m.submitted.WithLabelValues(result)
	}
	m.audited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "exportd_audit_records_total", Help: "Sign-ins and refusals, by what became of their audit line: recorded, left_out because there were many, failed.",
	}, []string{"result"})
	for _, result := range []string{"recorded", "left_out", "failed"} {
		m.audited.WithLabelValues(result)
	}
	registry.MustRegister(m.submitted, m.chunks, m.audited)
}

// submission counts one.
func (m *metrics) submission(replayed bool, chunks int) {
	if replayed {
		m.submitted.WithLabelValues("replayed").Inc()
		return
	}
	m.submitted.WithLabelValues("stored").Inc()
	m.chunks.Add(float64(chunks))
}
