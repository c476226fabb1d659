package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// scripted answers the n-th request by the n-th line, "status body", and by the last one from then on.
func scripted(t *testing.T, lines ...string) string {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status, body, _ := strings.Cut(lines[min(int(n.Add(1)), len(lines))-1], " ")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(map[string]int{"200": 200, "401": 401, "404": 404, "429": 429, "503": 503}[status])
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestClientCommandsEndWithTheCodeOfWhatHappened(t *testing.T) {
	job := func(status string) string {
		return `200 {"jobId":"J1","status":"` + status + `","total":3,"errorMessage":null}`
	}
	for _, c := range []struct {
		command, url, out, err string
		code                   int
	}{
		{"watch", scripted(t, job("IN_PROGRESS"), "503 ", "429 ", job("COMPLETED")), "J1 COMPLETED", "waiting for it", 0},
		{"watch", scripted(t, job("FAILED")), "J1 FAILED", "", 3},
		{"watch", scripted(t, job("CANCELLED")), "J1 CANCELLED", "", 4},
		{"watch", scripted(t, "404 {}"), "", "unknown job", 5},
		{"watch", scripted(t, "503 "), "", "EXPORTD_URL", 6},
		{"status", scripted(t, job("FAILED")), "J1 FAILED", "", 0},
		{"status", "http://127.0.0.1:1", "", "EXPORTD_URL", 6},
		{"status", scripted(t, "401 {}"), "", "EXPORTD_TOKEN", 1},
		{"status", scripted(t, "200 <html>"), "", "EXPORTD_URL", 1},
		{"status", "nowhere", "", "EXPORTD_URL", 2},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{c.command, "J1"}, nil, &out, &errs, []string{"EXPORTD_URL=" + c.url})
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.err) {
			t.Errorf("%s: code %d, want %d; printed %q and %q, want %q and %q", c.command, code, c.code, &out, &errs, c.out, c.err)
		}
	}
}

// cancelOnWrite is a person who interrupts at the first line.
type cancelOnWrite struct{ cancel context.CancelFunc }

func (c cancelOnWrite) Write(b []byte) (int, error) { c.cancel(); return len(b), nil }

func TestInterruptedWatchSaysThatTheJobGoesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var errs bytes.Buffer
	code := run(ctx, []string{"watch", "--json", "J1"}, nil, cancelOnWrite{cancel}, &errs,
		[]string{"EXPORTD_URL=" + scripted(t, `200 {"jobId":"J1","status":"IN_PROGRESS"}`)})
	if code != 130 || !strings.Contains(errs.String(), "goes on") {
		t.Errorf("code %d, said %q", code, &errs)
	}
}
