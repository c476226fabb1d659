package main

import (
	"strings"
	"testing"
	"time"
)

func TestLogsAreJSONWithReadableDurationsUnlessAskedOtherwise(t *testing.T) {
	t.Parallel()
	var json, text strings.Builder
	newLogger(&json, logConfig{Level: "info"}).Info("x", "took", 1500*time.Millisecond)
	newLogger(&text, logConfig{Level: "info", Format: "text"}).Info("x", "took", 1500*time.Millisecond)
	if !strings.Contains(json.String(), `"took":"1.5s"`) || !strings.Contains(text.String(), "took=1.5s") {
		t.Errorf("got %s and %s", json.String(), text.String())
	}
}

func TestLogLevelIsObeyed(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 3, "info": 2, "error": 0} {
		var out strings.Builder
		log := newLogger(&out, logConfig{Level: level})
		log.Debug("a")
		log.Info("b")
		log.Warn("c")
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("%s: got %d lines, want %d", level, got, want)
		}
	}
}
