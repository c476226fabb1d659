package export

import (
	"context"
	"log/slog"
	"strings"
)

// Span is a step of work, for traces.
type Span struct {
	Name   string
	Kind   SpanKind
	Parent string // W3C traceparent of the step that caused it, in another process; empty: the step in the context, or none
	Attrs  []slog.Attr
}

// SpanKind says on which side of a call the step is.
type SpanKind int

const (
	SpanInternal SpanKind = iota
	SpanServer            // answers a request
	SpanClient            // asks somebody
	SpanProducer          // sends a message
	SpanConsumer          // works on a message
)

// StartSpan begins a step. Steps begun with the context that it returns are below it; those of other processes are by traceparent. end is called once, with
// what went wrong, if anything did. Whoever may be given one takes nil too: there are no traces.
type StartSpan func(ctx context.Context, s Span) (_ context.Context, traceparent string, end EndSpan)

// EndSpan ends a step, adding what became known of it.
type EndSpan func(err error, attrs ...slog.Attr)

// TraceID is the trace of a W3C traceparent; empty if that is not well-formed.
func TraceID(traceparent string) string {
	const zeroTrace, zeroSpan = "00000000000000000000000000000000", "0000000000000000"
	parts := strings.Split(traceparent, "-")
	if len(traceparent) != 55 || len(parts) != 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 ||
		parts[0] == "ff" || parts[1] == zeroTrace || parts[2] == zeroSpan ||
		strings.ContainsFunc(traceparent, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef-", r) }) {
		return ""
	}
	return parts[1]
}
