package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress is one line of a terminal that tells how far something has come, drawn anew several times a second and erased at its end.
type progress struct {
	out     io.Writer
	drawing drawing
	mu      sync.Mutex // guards the state, the meter and the line on the terminal
	state   state
	meter   meter
	stopped chan struct{}
	gone    chan struct{}
}

// state is how far it has come, out of total.
type state struct {
	label           string
	done, bad, left int64 // of total; bad is counted in done
	total           int64
	count           string // the numbers for people
	rate            func(perSecond float64) string
	notes           []string
}

// drawing is what the terminal can show.
type drawing struct{ coloured, blocks bool }

const redraw = 200 * time.Millisecond

func (p *process) startProgress(out io.Writer) *progress {
	g := &progress{
		out: out, drawing: drawing{coloured: p.coloured(out), blocks: p.unicode()},
		stopped: make(chan struct{}), gone: make(chan struct{}),
	}
	go g.keepDrawing()
	return g
}

// unicode says whether the locale has block characters.
func (p *process) unicode() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := p.getenv(name); v != "" {
			return strings.Contains(strings.ToLower(strings.ReplaceAll(v, "-", "")), "utf8")
		}
	}
	return false
}

func (g *progress) set(s state) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = s
}

func (g *progress) keepDrawing() {
	defer close(g.gone)
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		select {
		case <-g.stopped:
			return
		case now := <-ticker.C:
			g.mu.Lock()
			if g.state.label != "" {
				g.meter.add(now, g.state.done)
				fmt.Fprintf(g.out, "\r%s\x1b[K", g.drawing.line(g.state, g.meter.rate(), width(g.out)-1))
			}
			g.mu.Unlock()
		}
	}
}

// say prints a line above the progress.
func (g *progress) say(w io.Writer, line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fmt.Fprint(g.out, "\r\x1b[K")
	fmt.Fprintln(w, line)
}

// stop erases the line; again is nothing.
func (g *progress) stop() {
	select {
	case <-g.stopped:
		return
	default:
	}
	close(g.stopped)
	<-g.gone
	fmt.Fprint(g.out, "\r\x1b[K")
}

const (
	widestBar    = 40
	narrowestBar = 8
)

// line is the state in at most width characters: what does not fit is left out from the end, and the bar takes what is over.
func (d drawing) line(s state, perSecond float64, width int) string {
	s.label = printable(s.label)
	share := 0.0
	if s.total > 0 {
		share = max(0, min(1, float64(s.done)/float64(s.total)))
	}
	parts := []string{fmt.Sprintf("%3d%%", int(100*share)), s.count}
	if perSecond > 0 {
		parts = append(parts, s.rate(perSecond))
		if s.left > 0 {
			eta := time.Duration(float64(s.left) / perSecond * float64(time.Second))
			parts = append(parts, "ETA "+eta.Round(time.Second).String())
		}
	}
	parts = append(parts, s.notes...)
	text, used := "", columns(s.label)+1+narrowestBar
	for _, part := range parts {
		n := 2 + columns(part)
		if used+n > width {
			break
		}
		text, used = text+"  "+part, used+n
	}
	if used > width { // hardly a terminal at all
		return cut(s.label, width)
	}
	cells := min(widestBar, narrowestBar+width-used)
	filled := int(share * float64(cells))
	bad := 0
	if s.total > 0 && s.bad > 0 {
		bad = min(filled, max(1, int(float64(s.bad)/float64(s.total)*float64(cells))))
	}
	full, empty := "#", "."
	if d.blocks {
		full, empty = "█", "░"
	}
	good, worse, rest := strings.Repeat(full, filled-bad), strings.Repeat(full, bad), strings.Repeat(empty, cells-filled)
	if d.coloured {
		good, worse, rest = paint(green, good), paint(red, worse), paint(grey, rest)
	}
	return s.label + " " + good + worse + rest + text
}

// meter measures the speed of the last half minute.
type meter struct{ samples []sample }

type sample struct {
	at   time.Time
	done int64
}

const meterWindow = 30 * time.Second

func (m *meter) add(now time.Time, done int64) {
	if n := len(m.samples); n > 0 && done < m.samples[n-1].done {
		m.samples = nil // begun anew
	}
	m.samples = append(m.samples, sample{now, done})
	for len(m.samples) > 2 && now.Sub(m.samples[0].at) > meterWindow {
		m.samples = m.samples[1:]
	}
}

// rate is per second; 0 while it cannot be told.
func (m *meter) rate() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	if passed := last.at.Sub(first.at).Seconds(); passed >= 1 {
		return float64(last.done-first.done) / passed
	}
	return 0
}
