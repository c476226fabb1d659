// Exportd exports row sets of a database function as CSV files into an object store: a job of many chunks, at least once claimed,
// exactly once written. This package is its commands, its configuration and its wiring; everything else is in the packages it imports.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// Exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1 // it started and did not reach its end, or doctor found something
	exitUsage  = 2 // command line or configuration: nothing was started
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default handling is back, so that a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// process is what a command has of the world besides its configuration.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	log            *slog.Logger
}

// getenv is os.Getenv of what the process was given.
func (p *process) getenv(name string) string {
	for _, kv := range slices.Backward(p.environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// command is one command of the program, holding its configuration.
type command interface {
	check(*faults)
	run(context.Context, *process) error
}

// errSilent ends a command with exitFailed after it has itself said why.
var errSilent = errors.New("failed, and said why")

// run is the whole program: it returns the exit code and touches nothing global, so that tests may call it many times.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	loaded, code := load(args, stdout, stderr, environ)
	if loaded == nil {
		return code
	}
	p := &process{stdin: stdin, stdout: stdout, stderr: stderr, environ: environ, log: newLogger(stderr, loaded.Log)}
	for _, name := range loaded.unknown {
		p.log.Warn("unknown variable, ignored: is it misspelt?", "variable", name)
	}
	err := loaded.command.run(ctx, p)
	ended := exitCode(exitFailed)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &ended):
	case !errors.Is(err, errSilent):
		fmt.Fprintf(stderr, "exportd: %s\n", lines(err.Error()))
	}
	return int(ended)
}
