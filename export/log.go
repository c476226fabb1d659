package export

import (
	"context"
	"log/slog"
)

type logKey struct{}

// WithLog has whoever works for a chunk log with what names it.
func WithLog(ctx context.Context, log *slog.Logger) context.Context {
	return context.WithValue(ctx, logKey{}, log)
}

// LogOf is the log of the chunk that is worked for, and else the given one.
func LogOf(ctx context.Context, other *slog.Logger) *slog.Logger {
	if log, ok := ctx.Value(logKey{}).(*slog.Logger); ok {
		return log
	}
	return other
}
