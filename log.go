package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// newLogger writes JSON, or text when w is a terminal and no format was asked for.
func newLogger(w io.Writer, cfg logConfig) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.level(), ReplaceAttr: readableDuration}
	if cfg.Format == "text" || cfg.Format == "" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// readableDuration writes 1.5s where JSON would have 1500000000.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
