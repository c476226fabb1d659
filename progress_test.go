package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestProgressFitsItsLine(t *testing.T) {
	s := state{label: "IN_PROGRESS", done: 120, bad: 6, left: 180, total: 300, count: "120/300",
		rate: func(r float64) string { return fmt.Sprintf("%.3g/s", r) }, notes: []string{"6 failed", "8 running"}}
	for n := range 130 {
		line := drawing{blocks: true}.line(s, 12, n)
		if got := utf8.RuneCountInString(line); got > n {
			t.Errorf("%d characters in %d: %q", got, n, line)
		}
	}
	full := drawing{}.line(s, 12, 120)
	for _, part := range []string{" 40%", "120/300", "12/s", "ETA 15s", "6 failed", "8 running", "################"} {
		if !strings.Contains(full, part) {
			t.Errorf("no %q in %q", part, full)
		}
	}
	if line := (drawing{}).line(state{label: "SUBMITTED", count: "0/0"}, 0, 80); strings.Contains(line, "ETA") || strings.Contains(line, "#") {
		t.Errorf("of nothing: %q", line)
	}
	if line := (drawing{coloured: true}).line(s, 12, 120); !strings.Contains(line, "\x1b[31m") || !strings.Contains(line, "\x1b[32m") {
		t.Errorf("no colours in %q", line)
	}
}

func TestMeterForgetsWhatIsLongAgo(t *testing.T) {
	var m meter
	at := time.Unix(0, 0)
	if m.add(at, 1000); m.rate() != 0 {
		t.Errorf("one sample gives %g", m.rate())
	}
	for i := range 60 {
		at = at.Add(time.Second)
		m.add(at, 1000+int64(10*min(i+1, 20)))
	}
	if m.rate() != 0 {
		t.Errorf("half a minute of nothing gives %g", m.rate())
	}
	for range 100 {
		at = at.Add(time.Second)
		m.add(at, m.samples[len(m.samples)-1].done+5)
	}
	if r := m.rate(); r < 4.9 || r > 5.1 || len(m.samples) > 40 {
		t.Errorf("5 a second is %g, of %d samples", r, len(m.samples))
	}
	if m.add(at.Add(time.Second), 0); m.rate() != 0 {
		t.Errorf("begun anew, and yet %g", m.rate())
	}
}

func TestTextIsCutToItsColumns(t *testing.T) {
	for _, s := range []string{"", "a", "abc", "日本語日本", "a日b", "e\u0301e\u0301e\u0301", strings.Repeat("x", 50)} {
		for n := range 12 {
			if got := cut(s, n); columns(got) > n || columns(s) <= n && got != s || n > 0 && s != "" && got == "" {
				t.Errorf("%q cut to %d columns is %q", s, n, got)
			}
		}
	}
}

func TestTextOfOthersMovesNoCursor(t *testing.T) {
	for s, want := range map[string]string{
		"plain ☃": "plain ☃", "a\tb\r\nc": "a b  c", "\x1b[31mred\x07": "\uFFFD[31mred\uFFFD", "\u202Eabc": "\uFFFDabc", "\x00\xff\u009b1m": "\uFFFD\uFFFD\uFFFD1m",
	} {
		if got := printable(s); got != want {
			t.Errorf("%q is shown as %q, want %q", s, got, want)
		}
	}
}

func TestSizesAreShownToThreeDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 12345: "12.3 kB", 999_400: "999 kB", 999_999: "1 MB", 5_430_000_000: "5.43 GB", 1 << 62: "4.61 EB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
