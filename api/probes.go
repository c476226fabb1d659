package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	healthPath  = "/healthz"
	readyPath   = "/readyz"
	metricsPath = "/metrics"
)

// Check looks at one dependency. It must return soon after its context ends.
type Check struct {
	Name  string
	Check func(context.Context) error
}

func (a *API) registerProbes() {
	a.engine.GET(healthPath, func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) })
	a.engine.GET(readyPath, func(c *gin.Context) {
		answer := a.readiness()
		status := http.StatusOK
		if answer.Status != "ready" {
			status = http.StatusServiceUnavailable
		}
		c.JSON(status, answer)
	})
	a.engine.GET(metricsPath, gin.WrapH(promhttp.HandlerFor(a.Metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelError)})))
}

// readiness is not asked of the dependencies once the process is stopping: nobody should send it anything more.
func (a *API) readiness() readyAnswer {
	select {
	case <-a.stopping:
	case <-a.Stopping:
	default:
		return a.ready.look()
	}
	return readyAnswer{Status: "stopping", Checks: map[string]string{}}
}

// readyAnswer says no more of a failure than that there is one: it is given to everybody.
type readyAnswer struct {
	Status string            `json:"status" enum:"ready,not ready,stopping"`
	Checks map[string]string `json:"checks" doc:"ok or unavailable, by dependency."`
}

// readiness remembers its last look for a second, so that probes cost the dependencies nothing.
type readiness struct {
	checks  []Check
	timeout time.Duration
	log     *slog.Logger

	mu    sync.Mutex // held while looking: whoever comes meanwhile waits for that look
	at    time.Time
	last  readyAnswer
	state map[string]bool
}

func (r *readiness) look() readyAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < time.Second {
		return r.last
	}
	errs := make([]error, len(r.checks))
	var wg sync.WaitGroup
	for i, check := range r.checks {
		wg.Go(func() { errs[i] = r.run(check) })
	}
	wg.Wait()
	answer := readyAnswer{Status: "ready", Checks: map[string]string{}}
	for i, check := range r.checks {
		answer.Checks[check.Name] = "ok"
		if errs[i] != nil {
			answer.Checks[check.Name] = "unavailable"
			answer.Status = "not ready"
		}
		r.report(check.Name, errs[i])
	}
	r.at, r.last = time.Now(), answer
	return answer
}

var errCheckPanic = errors.New("the check panicked")

// run does not wait for a check that ignores the end of its context.
func (r *readiness) run(check Check) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := errCheckPanic
		defer func() {
			recover() //nolint:errcheck // a probe must not end the process; err says it
			done <- err
		}()
		err = check.Check(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report logs a dependency when it goes and when it comes back.
func (r *readiness) report(name string, err error) {
	if r.state == nil {
		r.state = map[string]bool{}
	}
	was, known := r.state[name]
	r.state[name] = err == nil
	switch {
	case err != nil && (was || !known):
		r.log.Warn("dependency unavailable", "dependency", name, "error", err)
	case err == nil && known && !was:
		r.log.Info("dependency available again", "dependency", name)
	}
}
