package consumer

import (
	"context"
	"log/slog"

	"exportd/export"
)

// hint is what made us look at a chunk: a message, or a debt taken from the database. Only ref is to be relied on: anyone may write messages.
type hint struct {
	ref                    export.Ref
	requestID, traceparent string
	done                   func() // called when the hint is done with
}

// requestID is what a message says, for the log. Those that the API lets pass are no longer.
func requestID(m export.Message) string {
	id := m.Headers[export.HeaderRequestID]
	return id[:min(len(id), 128)]
}

// withLog has what is logged for the chunk name it.
func (c *Consumer) withLog(ctx context.Context, claim *export.Claim) (context.Context, *slog.Logger) {
	log := c.Log.With("jobId", claim.JobID, "chunkKey", claim.ChunkKey(), "attempt", claim.Attempt, "requestId", claim.Job.RequestID)
	if id := export.TraceID(claim.Job.Traceparent); id != "" {
		log = log.With("traceId", id)
	}
	return export.WithLog(ctx, log), log
}

func (c *Consumer) log(ctx context.Context) *slog.Logger { return export.LogOf(ctx, c.Log) }

func noTrace(error, ...slog.Attr) {}

// traceAttempt begins the span of an attempt: below the message that led to it, if that is of the job's trace, or else below the submission.
func (c *Consumer) traceAttempt(ctx context.Context, claim *export.Claim, message string) (context.Context, export.EndSpan) {
	if c.Trace == nil {
		return ctx, noTrace
	}
	parent := claim.Job.Traceparent
	if id := export.TraceID(message); id != "" && id == export.TraceID(parent) {
		parent = message
	}
	ctx, _, end := c.Trace(ctx, export.Span{Name: "attempt", Kind: export.SpanConsumer, Parent: parent, Attrs: []slog.Attr{
		slog.String("exportd.job", claim.JobID), slog.String("exportd.chunk", claim.ChunkKey()), slog.Int("exportd.attempt", claim.Attempt),
		slog.String("exportd.claim", claim.ID), slog.String("exportd.request", claim.Job.RequestID),
	}})
	return ctx, end
}

// step begins the span of a part of an attempt.
func (c *Consumer) step(ctx context.Context, name string) (context.Context, export.EndSpan) {
	if c.Trace == nil {
		return ctx, noTrace
	}
	ctx, _, end := c.Trace(ctx, export.Span{Name: name, Kind: export.SpanClient})
	return ctx, end
}
