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

	"exportd/export"
)

// observe logs, counts and traces the request.
func (a *API) observe(c *gin.Context) {
	start := time.Now()
	route := "unknown"
	if c.FullPath() != "" {
		route = c.Request.Method + " " + c.FullPath()
	}
	end := a.trace(c, route)
	defer func() {
		took := time.Since(start)
		level := slog.LevelInfo
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
		if id := export.TraceID(r.traceparent); id != "" {
			attrs = append(attrs, slog.String("traceId", id))
		}
		a.Log.LogAttrs(c.Request.Context(), level, "request", attrs...)
		end(c.Writer.Status())
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

// authenticate finds the caller, and refuses it when it asks too often.
func (a *API) authenticate(c *gin.Context) {
	r := requestOf(c.Request.Context())
	if a.Tokens == nil {
		r.caller = everybody
		a.limit(c, address(c.Request))
		return
	}
	scheme, token, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	who, ok := a.Tokens.find(strings.TrimSpace(token))
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		if a.limit(c, address(c.Request)) { // guesses are counted too
			a.fail(c, errNoToken)
		}
		return
	}
	r.caller = who
	a.limit(c, who.token)
}
