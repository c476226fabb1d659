package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"exportd/export"
)

// trace begins the span of a request, below that of its caller. Probes have none.
func (a *API) trace(c *gin.Context, route string) (end func(status int)) {
	switch c.FullPath() {
	case healthPath, readyPath, metricsPath:
		return func(int) {}
	}
	if a.Trace == nil {
		return func(int) {}
	}
	r := requestOf(c.Request.Context())
	ctx, traceparent, done := a.Trace(c.Request.Context(), export.Span{Name: route, Kind: export.SpanServer, Parent: r.traceparent, Attrs: []slog.Attr{
		slog.String("http.request.method", c.Request.Method), slog.String("http.route", c.FullPath()), slog.String("exportd.request", r.id),
	}})
	r.traceparent = traceparent
	c.Request = c.Request.WithContext(ctx)
	return func(status int) {
		var err error
		if status >= http.StatusInternalServerError {
			err = errors.New(http.StatusText(status))
		}
		done(err, slog.Int("http.response.status_code", status))
	}
}

// traceSubmission begins the span that all of a job is below. Without traces that is the caller's own.
func (a *API) traceSubmission(ctx context.Context, caller string) (_ context.Context, traceparent string, end export.EndSpan) {
	if a.Trace == nil {
		return ctx, caller, nil
	}
	return a.Trace(ctx, export.Span{Name: "submit"})
}
