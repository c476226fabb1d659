package e2e

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"exportd/e2e/stack"
)

// metric is the sum over the series of a metric that begin so, and whether there are any.
func (w *world) metric(p *stack.Process, series string) (sum float64, told bool) {
	w.t.Helper()
	began := time.Now()
	status, text := w.get(p, "/metrics")
	if took := time.Since(began); status != http.StatusOK || took > 5*time.Second {
		w.t.Fatalf("%s answered a scrape with %d after %s", p.Name, status, took)
	}
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(series)+`[^ ]* (.*)$`).FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			w.t.Fatal(err)
		}
		sum, told = sum+v, true
	}
	return sum, told
}

func TestMetricsTellOfALostWorkerAndOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	w := setup(t, own{postgres: true})
	api, victim := w.startAPI(), w.startConsumer()
	w.closeGate(3) // until the server is killed
	job := w.submit(stack.Submission{Items: items("GATE_3")})
	w.eventually("the running chunk is told of", func() bool {
		n, _ := w.metric(api, "exportd_chunks_running")
		return n == 1
	})
	w.kill(victim)
	heir := w.startConsumer()
	w.eventually("the lost lease is counted", func() bool {
		a, _ := w.metric(api, `exportd_leases_expired_total{then="retry"}`)
		h, _ := w.metric(heir, `exportd_leases_expired_total{then="retry"}`)
		return a+h >= 1
	})

	if err := w.postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the outage is told of", func() bool {
		breaker, _ := w.metric(heir, `exportd_breaker_open{dependency="database"}`)
		failures, _ := w.metric(api, `exportd_state_read_failures_total{of="database"}`)
		return breaker == 1 && failures >= 1
	})
	if _, told := w.metric(heir, "exportd_claims_total"); !told {
		t.Error("nothing is told of the process itself")
	}
	if err := w.postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ended(job, "COMPLETED")
	w.eventually("the state is told of again", func() bool {
		jobs, told := w.metric(api, `exportd_jobs{`)
		running, _ := w.metric(api, "exportd_chunks_running")
		return told && jobs == 0 && running == 0
	})
	w.eventually("the breaker is closed", func() bool {
		n, _ := w.metric(heir, "exportd_breaker_open")
		return n == 0
	})
	w.checkInvariants()
}
