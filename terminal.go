package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// drawsOn says whether a person looks at w: a terminal that can move its cursor.
func (p *process) drawsOn(w io.Writer) bool { return isTerminal(w) && p.getenv("TERM") != "dumb" }

func (p *process) coloured(w io.Writer) bool { return p.drawsOn(w) && p.getenv("NO_COLOR") == "" }

// asks says whether there is a person to answer questions.
func (p *process) asks() bool {
	f, ok := p.stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && isTerminal(p.stderr)
}

// confirm asks a question that only yes answers. Without a yes its error ends the command, which did nothing.
func (p *process) confirm(ctx context.Context, nothing, format string, args ...any) error {
	fmt.Fprintf(p.stderr, format+" [y/N] ", args...)
	answer := ""
	_, err := heeding(ctx, func() (int, error) { return fmt.Fscanln(p.stdin, &answer) }) // of other errors: nothing is no
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(p.stderr)
		return clientEnd(ctx, p, nothing, err)
	case strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes"):
		return nil
	}
	fmt.Fprintf(p.stderr, "exportd: %s\n", nothing)
	return errSilent
}

// heeding gives up a read that ctx does not end: what the user still types goes to nobody.
func heeding[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, errors.Join(r.err, ctx.Err())
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// width is that of the terminal, in characters.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// printable makes text that others wrote, a key or an error, fit for one line of a terminal: it moves no cursor and changes no colour.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, s)
}

// columns is how many columns of a terminal s takes.
func columns(s string) (n int) {
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

// columnsOf knows the wide blocks of Unicode (UAX #11) roughly: a terminal and its font know them no better.
func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115F, r >= 0x2E80 && r <= 0xA4CF, r >= 0xAC00 && r <= 0xD7A3, r >= 0xF900 && r <= 0xFAFF, r >= 0xFE30 && r <= 0xFE6F,
		r >= 0xFF00 && r <= 0xFF60, r >= 0xFFE0 && r <= 0xFFE6, r >= 0x1F300 && r <= 0x1FAFF, r >= 0x20000 && r <= 0x3FFFD:
		return 2
	}
	return 1
}

// cut shortens s to n columns.
func cut(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	left := n - 1
	for i, r := range s {
		if left -= columnsOf(r); left < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

const (
	red, green, yellow, grey = 31, 32, 33, 90
	reset                    = "\x1b[0m"
)

func paint(colour int, s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("\x1b[%dm%s%s", colour, s, reset)
}

// stateColours are of the states of jobs, chunks and attempts.
var stateColours = map[string]int{
	"COMPLETED": green, "DONE": green,
	"FAILED": red, "DLQ": red, "LOST": red,
	"IN_PROGRESS": yellow, "RUNNING": yellow, "RETRY_WAIT": yellow, "RETRY": yellow, "CANCELLING": yellow,
	"CANCELLED": grey, "SUBMITTED": grey, "PENDING": grey, "GIVEN_BACK": grey,
}

// printTable aligns rows under a header for a person, and cuts lines at the terminal's edge; for programs it writes rows only, whole, with tabs.
func (p *process) printTable(header []string, rows [][]string) error {
	var b strings.Builder
	if !p.drawsOn(p.stdout) {
		for _, row := range rows {
			for i, cell := range row {
				row[i] = printable(cell)
			}
			b.WriteString(strings.Join(row, "\t") + "\n")
		}
		_, err := io.WriteString(p.stdout, b.String())
		return err
	}
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			row[i] = printable(cell)
			widths[i] = max(widths[i], columns(row[i]))
		}
	}
	room, coloured := width(p.stdout), p.coloured(p.stdout)
	line := func(cells []string, colour func(string) int) {
		left := room
		for i, cell := range cells {
			text := cut(cell, left)
			pad := max(0, min(widths[i]+2, left)-columns(text))
			left -= columns(text) + pad
			if c := colour(cell); coloured && c != 0 {
				text = paint(c, text)
			}
			b.WriteString(text)
			if i < len(cells)-1 && left > 0 {
				b.WriteString(strings.Repeat(" ", pad))
			}
		}
		b.WriteByte('\n')
	}
	line(header, func(string) int { return grey })
	for _, row := range rows {
		line(row, func(cell string) int { return stateColours[cell] })
	}
	_, err := io.WriteString(p.stdout, b.String())
	return err
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.5 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	return fmt.Sprintf("%.3g %cB", value, units[unit])
}

// count is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// timeText is a time for people, in their zone, and for programs.
func (p *process) timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if p.drawsOn(p.stdout) {
		t = t.Local()
		if t.Format(time.DateOnly) == time.Now().Format(time.DateOnly) {
			return t.Format(time.TimeOnly)
		}
		return t.Format("2006-01-02 15:04")
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func durationText(d time.Duration) string {
	switch {
	case d < 0:
		return ""
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
