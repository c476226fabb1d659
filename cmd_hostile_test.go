package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// answering gives each request the same answer; %d in it is the number of the request.
func answering(t *testing.T, body string) string {
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "%d", strconv.FormatInt(n.Add(1)%2, 10)))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWhatIsNoExportdIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"null", `{"hello":"world"}`} {
		url := answering(t, body)
		for _, command := range []string{"jobs", "chunks J1", "parked", "queues", "audit", "redrive J1", "redrive --error-code X --yes", "cancel J1", "status J1", "submit --key A --dates 20250101"} {
			var errs bytes.Buffer
			if code := run(t.Context(), strings.Fields(command), nil, io.Discard, &errs, []string{"EXPORTD_URL=" + url}); code != 1 || !strings.Contains(errs.String(), "check EXPORTD_URL") {
				t.Errorf("%s on %s: code %d, printed %q", command, body, code, &errs)
			}
		}
	}
}

func TestAListThatGoesRoundInCirclesEnds(t *testing.T) {
	t.Parallel()
	url := answering(t, `{"jobs":[],"chunks":[],"lines":[],"nextCursor":"c%d"}`)
	for _, command := range []string{"jobs", "chunks J1", "parked", "audit"} {
		var errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(command), nil, io.Discard, &errs, []string{"EXPORTD_URL=" + url}); code != 1 || !strings.Contains(errs.String(), "circles") {
			t.Errorf("%s: code %d, printed %q", command, code, &errs)
		}
	}
}

func TestAnAddressOrTokenThatCannotBeSentIsRefusedBefore(t *testing.T) {
	t.Parallel()
	url := answering(t, "null")
	for env, want := range map[string]string{
		"EXPORTD_URL=" + strings.Replace(url, "//", "//user:geheim@", 1): "EXPORTD_URL", "EXPORTD_URL=" + url + "?a=b": "EXPORTD_URL",
		"EXPORTD_URL=" + url + "#x": "EXPORTD_URL", "EXPORTD_TOKEN=a\nb": "EXPORTD_TOKEN",
	} {
		var errs bytes.Buffer
		if code := run(t.Context(), []string{"jobs"}, nil, io.Discard, &errs, []string{env}); code != 2 || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "geheim") {
			t.Errorf("%q: code %d, printed %q", env, code, &errs)
		}
	}
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"submit", "--key", "A", "--dates", "20250101", "--idempotency-key", "a\nb"}, nil, io.Discard, &errs, []string{"EXPORTD_URL=" + url}); code != 2 {
		t.Errorf("code %d, printed %q", code, &errs)
	}
	if code := run(t.Context(), []string{"status", "J1"}, nil, io.Discard, io.Discard, []string{"EXPORTD_TOKEN=t\n", "EXPORTD_URL=" + answering(t, `{"jobId":"J1","status":"COMPLETED"}`)}); code != 0 {
		t.Errorf("code %d of a token with the end of its line", code)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAnIDThatCannotBePrintedIsNotLost(t *testing.T) {
	t.Parallel()
	url := answering(t, `{"jobId":"J7","status":"SUBMITTED"}`)
	for _, flag := range []string{"-q", "--json"} {
		var errs bytes.Buffer
		code := run(t.Context(), []string{"submit", "--key", "A", "--dates", "20250101", flag}, nil, full{}, &errs, []string{"EXPORTD_URL=" + url})
		if code != 1 || flag == "-q" && !strings.Contains(errs.String(), "J7") {
			t.Errorf("%s: code %d, printed %q", flag, code, &errs)
		}
	}
	s := newStore(t)
	s.add("A", "20250101", content(1), nil)
	if code := run(t.Context(), []string{"download", "J1", t.TempDir(), "--json"}, nil, full{}, io.Discard, []string{"EXPORTD_URL=" + s.url}); code != 1 {
		t.Errorf("download: code %d", code)
	}
}

func TestStatesOfTheAPIMoveNoCursorAndBreakNoBar(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[31mEVIL\x07"
	var out bytes.Buffer
	run(t.Context(), []string{"chunks", "J1", "key=A:date=20250101"}, nil, &out, io.Discard, []string{"EXPORTD_URL=" + answering(t, `{"chunkKey":"x","status":"\u001b[31mEVIL\u0007"}`)})
	out.WriteString(drawing{}.line(state{label: evil, done: -5, bad: -2, total: 3, count: "c", rate: func(float64) string { return "" }}, 1, 80))
	if strings.ContainsAny(out.String(), "\x1b\x07") || !strings.Contains(out.String(), "EVIL") {
		t.Errorf("printed %q", &out)
	}
}

func TestADownloadHeedsItsEndWhileItReadsWhatIsThere(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := io.Copy(io.Discard, heedful{ctx, bytes.NewReader(content(10))}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s := newStore(t)
	s.add("A", "20250101", content(10), nil)
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "A_20250101.csv.part"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := s.download(dir); code != 1 || !strings.Contains(errs, "no plain file") {
		t.Errorf("code %d, printed %q", code, errs)
	}
}
