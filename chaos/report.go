package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

var discard = slog.New(slog.DiscardHandler)

// report is what a run says, and what it has found.
type report struct {
	began time.Time

	mu       sync.Mutex
	out      io.Writer
	counts   map[string]int // faults by kind
	struck   map[uint64]bool
	breaches []string
}

func newReport(out io.Writer) *report {
	return &report{began: time.Now(), out: out, counts: map[string]int{}, struck: map[uint64]bool{}}
}

func (r *report) line(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%8.3fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *report) breach(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	r.breaches = append(r.breaches, text)
	r.mu.Unlock()
	r.line("BREACH: %s", text)
}

func (r *report) inflicted(f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[string(f.kind)]++
	r.struck[f.seed] = true
}

// was says whether the fault was carried out.
func (r *report) was(f fault) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.struck[f.seed]
}

func (r *report) dropped(way, answer string) {
	r.mu.Lock()
	r.counts["drop answer to "+answer]++
	r.mu.Unlock()
	r.line("%s: %s, to %s", dropped, way, answer)
}

func (r *report) faults() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.counts {
		n += c
	}
	return n
}

func (r *report) found() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.breaches)
}

// summary lists faults by kind and the breaches.
func (r *report) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintln(&b, "faults:")
	for _, kind := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "  %5d  %s\n", r.counts[kind], kind)
	}
	fmt.Fprintf(&b, "breaches: %d\n", len(r.breaches))
	for _, s := range r.breaches {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	return b.String()
}

// sleepUntil waits until the offset from the beginning; false when ctx ended first.
func (r *report) sleepUntil(ctx context.Context, offset time.Duration) bool {
	pause(ctx, time.Until(r.began.Add(offset)))
	return ctx.Err() == nil
}
