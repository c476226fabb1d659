package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"exportd/db"
	"exportd/export"
)

const (
	// A scrape gives what was read at most so long ago, unless reading it anew takes longer than scrapePatience.
	readingFresh   = 10 * time.Second
	scrapePatience = 250 * time.Millisecond
	// readingStale is when an old answer is no answer any more.
	readingStale = time.Minute
	// readingLimit bounds one reading.
	readingLimit = 15 * time.Second
	// One part in readingShare of the time may be spent on reading; but readingMost is the longest pause.
	readingShare = 20
	readingMost  = 30 * time.Second
)

// reading is something that costs a question, to the database or the broker, and is scraped by anybody at any time. It is read in the background, when
// somebody wants to know, and not more often than its cost allows.
type reading[T any] struct {
	name string
	read func(context.Context) (T, error)
	log  *slog.Logger

	mu       sync.Mutex
	value    T
	at       time.Time // of the value
	next     time.Time // not before
	failed   bool      // the last time
	failures int64
	under    chan struct{} // closed when the reading that is under way ends; nil without one
	stop     context.CancelFunc
	closed   bool
}

// get answers the last value, if it is not stale.
func (r *reading[T]) get() (value T, at time.Time, failures int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil && !r.closed && !time.Now().Before(r.next) {
		ctx, stop := context.WithTimeout(context.Background(), readingLimit)
		r.under, r.stop = make(chan struct{}), stop
		go r.refresh(ctx, r.under)
	}
	if under := r.under; under != nil && time.Since(r.at) > readingFresh {
		r.mu.Unlock()
		select {
		case <-under:
		case <-time.After(scrapePatience):
		}
		r.mu.Lock()
	}
	if time.Since(r.at) > readingStale {
		var none T
		return none, time.Time{}, r.failures
	}
	return r.value, r.at, r.failures
}

func (r *reading[T]) refresh(ctx context.Context, under chan struct{}) {
	began := time.Now()
	value, err := r.read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(under)
	r.stop()
	r.under = nil
	now := time.Now()
	r.next = now.Add(min(max(readingFresh, readingShare*now.Sub(began)), readingMost))
	if err == nil {
		r.value, r.at = value, now
	} else {
		r.failures++
		if !r.failed && !r.closed {
			r.log.Warn("not known for the metrics", "what", r.name, "error", err)
		}
	}
	r.failed = err != nil
}

// close ends the reading under way and waits for it. There is no other after it.
func (r *reading[T]) close() error {
	r.mu.Lock()
	r.closed = true
	under := r.under
	if under != nil {
		r.stop()
	}
	r.mu.Unlock()
	if under != nil {
		<-under
	}
	return nil
}

// stateMetrics are those of the whole installation, which every api tells alike.
type stateMetrics struct {
	state  *reading[db.State]
	queues *reading[map[string]export.QueueDepth] // by work and parking; nil without a broker
}

func (m metrics) state(read func(context.Context) (db.State, error), queues func(context.Context) (map[string]export.QueueDepth, error), closing *closers, log *slog.Logger) {
	s := stateMetrics{state: &reading[db.State]{name: "state of the database", read: read, log: log}}
	closing.add("state", s.state.close)
	if queues != nil {
		s.queues = &reading[map[string]export.QueueDepth]{name: "depth of the queues", read: queues, log: log}
		closing.add("queue depths", s.queues.close)
	}
	m.MustRegister(s)
}

func stateDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("exportd_"+name, help, labels, nil)
}

var (
	descJobs         = stateDesc("jobs", "Jobs that have not ended.", "status")
	descRunning      = stateDesc("chunks_running", "Chunks of which some worker holds a claim.")
	descDebts        = stateDesc("dispatch_chunks", "Chunks that are owed a run: ready (in line for the relay), sending, sent (published, not claimed yet), wait (for their retry to be due).", "state")
	descDebtAge      = stateDesc("dispatch_oldest_seconds", "Age of the oldest chunk that is owed a run: ready, since it was due (of the first 1000 in line); sent, since it was published last.", "state")
	descOutbox       = stateDesc("outbox_messages", "Dead-letter notices (parking) and webhook calls (webhook) that their receiver has not confirmed.", "destination")
	descOutboxAge    = stateDesc("outbox_oldest_seconds", "Age of the oldest notice or call that its receiver has not confirmed.", "destination")
	descWorkers      = stateDesc("fleet_workers", "Consumers that are alive.")
	descConcurrency  = stateDesc("fleet_concurrency", "Chunks that all living consumers together work on at a time.")
	descQueue        = stateDesc("queue_messages", "Messages in the work and the parking queue, those in flight included. Absent while the broker does not tell.", "queue")
	descInFlight     = stateDesc("queue_in_flight_messages", "Messages that the broker has sent to a consumer and that are not acknowledged.", "queue")
	descConsumers    = stateDesc("queue_consumers", "Subscriptions to the work and the parking queue.", "queue")
	descReadAt       = stateDesc("state_read_timestamp_seconds", "When the database and the queues were last asked for the gauges of the whole installation, in Unix time; 0, and they are absent, when that is more than a minute ago.", "of")
	descReadFailures = stateDesc("state_read_failures_total", "How often the database and the queues could not be asked for the gauges of the whole installation.", "of")
)

// Describe implements prometheus.Collector.
func (stateMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descJobs, descRunning, descDebts, descDebtAge, descOutbox, descOutboxAge, descWorkers, descConcurrency,
		descQueue, descInFlight, descConsumers, descReadAt, descReadFailures} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s stateMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	about := func(at time.Time, failures int64, of string) {
		seconds := 0.0
		if !at.IsZero() {
			seconds = float64(at.UnixMilli()) / 1000
		}
		gauge(descReadAt, seconds, of)
		ch <- prometheus.MustNewConstMetric(descReadFailures, prometheus.CounterValue, float64(failures), of)
	}
	st, at, failures := s.state.get()
	about(at, failures, "database")
	if !at.IsZero() {
		for _, status := range []export.JobStatus{export.Submitted, export.InProgress, export.Cancelling} {
			gauge(descJobs, float64(st.Jobs[status]), string(status))
		}
		gauge(descRunning, float64(st.Running))
		for label, state := range map[string]string{"ready": "READY", "sending": "SENDING", "sent": "SENT", "wait": "WAIT"} {
			gauge(descDebts, float64(st.Debts[state].Count), label)
			if label == "ready" || label == "sent" {
				gauge(descDebtAge, st.Debts[state].Oldest.Seconds(), label)
			}
		}
		for _, destination := range []string{export.OutboxParking, "webhook"} {
			gauge(descOutbox, float64(st.Outbox[destination].Count), destination)
			gauge(descOutboxAge, st.Outbox[destination].Oldest.Seconds(), destination)
		}
		gauge(descWorkers, float64(st.Workers))
		gauge(descConcurrency, float64(st.Concurrency))
	}
	if s.queues == nil {
		return
	}
	queues, at, failures := s.queues.get()
	about(at, failures, "queues")
	for name, q := range queues {
		gauge(descQueue, float64(q.Messages), name)
		gauge(descInFlight, float64(q.InFlight), name)
		gauge(descConsumers, float64(q.Consumers), name)
	}
}
