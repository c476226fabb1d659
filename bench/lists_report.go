package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"exportd/e2e/stack"
)

// timing is how long a call took at the server: one entry a request, in the small and in the full database.
type timing struct {
	name                string
	small, full         []time.Duration
	coldSmall, coldFull time.Duration
	bytes               [2]int // of an answer
}

// warm asks both databases in turns.
func (l *lists) warm(ctx context.Context, c call) (t timing, err error) {
	t.name = c.name
	sides, paths := [2]*side{l.small, l.full}, [2]string{}
	for i, s := range sides {
		if paths[i], err = s.prepare(ctx, c); err != nil {
			return t, err
		}
	}
	times := l.sizes.Listed
	if c.times > 0 {
		times = min(times, c.times)
	}
	const warmUp = 3 // connections plan a statement when they first meet it
	var ids [2][]string
	for n := range times + warmUp {
		for i := range sides {
			if n%2 == 1 {
				i = 1 - i
			}
			id, took, _, body, err := sides[i].ask(ctx, c, paths[i])
			switch {
			case err != nil:
				return t, err
			case n < warmUp:
				continue
			case c.stream:
				t.add(i, took)
			default:
				ids[i] = append(ids[i], id)
			}
			t.bytes[i] = len(body)
		}
	}
	for i, s := range sides {
		took, err := s.logged(ctx, ids[i])
		if err != nil {
			return t, err
		}
		for _, id := range ids[i] {
			t.add(i, took[id])
		}
	}
	return t, nil
}

func (t *timing) add(side int, took time.Duration) {
	if side == 0 {
		t.small = append(t.small, took)
	} else {
		t.full = append(t.full, took)
	}
}

func (l *lists) cold(ctx context.Context, c call, t *timing) error {
	var paths [2]string
	sides := [2]*side{l.small, l.full}
	for i, s := range sides {
		var err error
		if paths[i], err = s.prepare(ctx, c); err != nil {
			return err
		}
	}
	if err := l.restart(ctx); err != nil {
		return err
	}
	into := [2]*time.Duration{&t.coldSmall, &t.coldFull}
	for i, s := range sides {
		id, took, _, _, err := s.ask(ctx, c, paths[i])
		if err != nil {
			return err
		}
		if !c.stream {
			logged, err := s.logged(ctx, []string{id})
			if err != nil {
				return err
			}
			took = logged[id]
		}
		*into[i] = took
	}
	return nil
}

// logged reads from the API's log how long requests took. A line may be written a moment after its answer.
func (s *side) logged(ctx context.Context, ids []string) (map[string]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	took := map[string]time.Duration{}
	err := stack.Poll(ctx, time.Millisecond, func() (bool, error) {
		f, err := os.Open(s.in.api.log)
		if err != nil {
			return false, err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var line struct {
				RequestID string
				Took      string
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Took == "" { // another line, or the last one half written
				continue
			}
			if took[line.RequestID], err = time.ParseDuration(line.Took); err != nil {
				return false, err
			}
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return took[id] == 0 }), nil
	})
	if err != nil {
		return nil, fmt.Errorf("the log of the API lacks requests: %w", err)
	}
	return took, nil
}

// What a call may take, and where a ratio begins to say anything.
const (
	mostMS    = 50.0
	mostRatio = 1.5
	floorMS   = 2.0
)

func milliseconds(list ...time.Duration) []float64 {
	ms := make([]float64, len(list))
	for i, d := range list {
		ms[i] = float64(d.Microseconds()) / 1000
	}
	return ms
}

func (t timing) medians() (small, full float64) {
	return median(milliseconds(t.small...)), median(milliseconds(t.full...))
}

// p99 is of the full database.
func (t timing) p99() float64 {
	sorted := slices.Sorted(slices.Values(milliseconds(t.full...)))
	return sorted[(len(sorted)*99+99)/100-1]
}

// misses says what the call should not do.
func (t timing) misses() string {
	var list []string
	small, full := t.medians()
	if full > mostMS || t.p99() > mostMS {
		list = append(list, fmt.Sprintf("over %.0f ms", mostMS))
	}
	if full > mostRatio*max(small, floorMS) {
		list = append(list, fmt.Sprintf("over %.1f ×", mostRatio))
	}
	return strings.Join(list, ", ")
}

func (t timing) String() string {
	small, full := t.medians()
	return fmt.Sprintf("%-70s small %6.2f  full %6.2f ms  × %5.2f  99%% %6.2f ms  bytes %7d %7d  %s", t.name, small, full, full/small, t.p99(), t.bytes[0], t.bytes[1], t.misses())
}

// listsReport is the table, in Markdown.
func (b *bench) listsReport(timings []timing) string {
	var s strings.Builder
	fmt.Fprintf(&s, "Measured on %s, %s, load %s; milliseconds, of %d requests each.\n\n", b.machine, time.Now().UTC().Format(time.DateOnly), load(), b.sizes.Listed)
	s.WriteString("| call | small, median | full, median | ratio | full, 99th percentile | first after a restart: small · full | misses |\n|---|---|---|---|---|---|---|\n")
	for _, t := range timings {
		small, full := t.medians()
		fmt.Fprintf(&s, "| `%s` | %s | %s | %.2f | %s | %s · %s | %s |\n", t.name, short(small), short(full), full/small, short(t.p99()),
			short(milliseconds(t.coldSmall)[0]), short(milliseconds(t.coldFull)[0]), t.misses())
	}
	return s.String()
}
