package api

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exportd_http_requests_total", Help: "HTTP requests answered.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exportd_http_request_seconds", Help: "Time to answer HTTP requests.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "status"}),
	}
	registry.MustRegister(m.requests, m.seconds)
	return m
}

// observe logs and counts the request once it is answered.
func (a *API) observe(c *gin.Context) {
	start := time.Now()
	defer func() {
		took := time.Since(start)
		route, level := "unknown", slog.LevelInfo
		if c.FullPath() != "" {
			route = c.Request.Method + " " + c.FullPath()
		}
		switch c.FullPath() {
		case healthPath, readyPath, metricsPath:
			level = slog.LevelDebug
		}
		status := strconv.Itoa(c.Writer.Status())
		a.metrics.requests.WithLabelValues(route, status).Inc()
		a.metrics.seconds.WithLabelValues(route, status).Observe(took.Seconds())
		r := requestOf(c.Request.Context())
		attrs := []slog.Attr{
			slog.String("route", route), slog.Int("status", c.Writer.Status()), slog.Duration("took", took),
			slog.String("requestId", r.id), slog.String("tenant", r.caller.tenant),
		}
		if r.problem != "" {
			attrs = append(attrs, slog.String("problem", r.problem))
		}
		a.Log.LogAttrs(c.Request.Context(), level, "request", attrs...)
	}()
	c.Next()
}

var errPanic = errors.New("panic")

// recoverPanic answers 500 if nothing was sent yet; else it cuts the connection, so that half an answer cannot pass for a whole one.
func (a *API) recoverPanic(c *gin.Context) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == any(http.ErrAbortHandler) {
			panic(v)
		}
		a.Log.ErrorContext(c.Request.Context(), "panic", "requestId", requestOf(c.Request.Context()).id, "panic", v, "stack", string(debug.Stack()))
		if c.Writer.Written() {
			panic(http.ErrAbortHandler)
		}
		a.fail(c, errPanic)
	}()
	c.Next()
}

// authenticate finds the caller.
func (a *API) authenticate(c *gin.Context) {
	r := requestOf(c.Request.Context())
	if a.Tokens == nil {
		r.caller = caller{tenant: "default", operator: true}
		c.Next()
		return
	}
	scheme, token, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	who, ok := a.Tokens.find(strings.TrimSpace(token))
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		a.fail(c, errNoToken)
		return
	}
	r.caller = who
	c.Next()
}
