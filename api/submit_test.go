package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportd/api"
	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

func TestSubmitAnswersWithTheJob(t *testing.T) {
	t.Parallel()
	var woken atomic.Int32
	w := setup(t, func(c *api.Config) { c.Wake = func() { woken.Add(1) } })
	a := w.do("POST", "/jobs", `{"items":[{"key":"ABC","effectiveDates":["20250215","20250315","20250215"]}],"priority":7}`,
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Correlation-Id", "corr-1")
	if a.StatusCode != 202 || a.Header.Get("Location") != "/jobs/J20260102_000001" || a.Header.Get("Retry-After") == "" || a.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, a.body)
	}
	want := map[string]any{
		"jobId": "J20260102_000001", "status": "SUBMITTED", "total": 2., "pending": 2., "running": 0., "retrying": 0., "done": 0., "failed": 0.,
		"cancelled": 0., "filesGenerated": 0., "filesReused": 0., "rowCount": 0., "byteCount": 0., "s3BasePath": "s3://bucket/exports",
		"errorMessage": nil, "createdAt": "2026-01-02T10:00:00.000Z", "updatedAt": "2026-01-02T10:00:00.000Z", "startedAt": nil, "completedAt": nil,
	}
	if diff := cmp.Diff(want, a.json(t)); diff != "" {
		t.Error(diff)
	}
	req := w.store.all()[0].req
	if req.Tenant != "default" || req.RequestID != "corr-1" || req.Traceparent != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" || req.Priority != 7 {
		t.Errorf("stored %+v", req)
	}
	if woken.Load() != 1 {
		t.Errorf("the relay was woken %d times", woken.Load())
	}
}

func TestSubmitRefusesWithTheExactProblem(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	many := `{"items":[{"key":"A","effectiveDates":["20250101"` + strings.Repeat(`,"20250102"`, 9) + `]}`
	for i := range 100 {
		many += fmt.Sprintf(`,{"key":"K%d","effectiveDates":["20250101"]}`, i)
	}
	many += "]}"
	for name, c := range map[string]struct {
		body     string
		headers  []string
		status   int
		kind     string
		pointers []string // or headers
	}{
		"empty":                 {"", nil, 400, "validation", []string{""}},
		"no JSON":               {"{", nil, 400, "validation", []string{""}},
		"trailing":              {oneChunk + "1", nil, 400, "validation", []string{""}},
		"fields":                {`{"items":[{"key":"","effectiveDates":["x"]}],"a/b":1}`, nil, 400, "validation", []string{"/items/0/key", "/items/0/effectiveDates/0", "/a~1b"}},
		"too many":              {many, nil, 422, "too-many-chunks", []string{"/items"}},
		"too many and a fault":  {strings.Replace(many, "{", `{"priority":"x",`, 1), nil, 400, "validation", []string{"/priority", "/items"}},
		"too large":             {strings.Repeat(" ", 64<<10) + oneChunk, nil, 413, "too-large", nil},
		"form":                  {oneChunk, []string{"Content-Type", "", "Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported-media-type", nil},
		"charset":               {oneChunk, []string{"Content-Type", "", "Content-Type", "application/json; charset=latin1"}, 415, "unsupported-media-type", nil},
		"media type broken":     {oneChunk, []string{"Content-Type", "", "Content-Type", ";;"}, 415, "unsupported-media-type", nil},
		"compressed":            {oneChunk, []string{"Content-Encoding", "gzip"}, 415, "unsupported-media-type", nil},
		"key header unclosed":   {oneChunk, []string{"Idempotency-Key", `"abc`}, 400, "validation", []string{"Idempotency-Key"}},
		"key header parameters": {oneChunk, []string{"Idempotency-Key", `"abc";a=1`}, 400, "validation", []string{"Idempotency-Key"}},
		"key header empty":      {oneChunk, []string{"Idempotency-Key", `""`}, 400, "validation", []string{"Idempotency-Key"}},
		"key header long":       {oneChunk, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "validation", []string{"Idempotency-Key"}},
		"key header not UTF-8":  {oneChunk, []string{"Idempotency-Key", "\xff"}, 400, "validation", []string{"Idempotency-Key"}},
		"two key headers":       {oneChunk, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "validation", []string{"Idempotency-Key"}},
		"keys differ":           {strings.Replace(oneChunk, "{", `{"idempotencyKey":"a","x":1,`, 1), []string{"Idempotency-Key", "b"}, 400, "validation", []string{"/x", "Idempotency-Key"}},
		"keys differ alone":     {strings.Replace(oneChunk, "{", `{"idempotencyKey":"a",`, 1), []string{"Idempotency-Key", "b"}, 400, "validation", []string{"Idempotency-Key"}},
		"key and body wrong":    {`{"items":[]}`, []string{"Idempotency-Key", `"`}, 400, "validation", []string{"/items", "Idempotency-Key"}},
		"another site":          {oneChunk, []string{"Sec-Fetch-Site", "cross-site"}, 403, "forbidden", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.do("POST", "/jobs", c.body, c.headers...).problem(t, c.status, c.kind)
			var got []string
			for _, e := range p.Errors {
				if e.Pointer != nil {
					got = append(got, *e.Pointer)
				} else {
					got = append(got, e.Header)
				}
				if e.Detail == "" {
					t.Errorf("no detail: %+v", e)
				}
			}
			if diff := cmp.Diff(c.pointers, got); diff != "" {
				t.Errorf("%s\n%+v", diff, p)
			}
		})
	}
	if n := len(w.store.all()); n != 0 {
		t.Errorf("%d jobs were stored", n)
	}
}

func TestTooManyChunksSaysHowMany(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.Limits.MaxChunks = 1 })
	p := w.do("POST", "/jobs", `{"items":[{"key":"A","effectiveDates":["20250101","20250102"]}]}`).problem(t, 422, "too-many-chunks")
	if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Detail, "2 chunks") {
		t.Errorf("%+v", p)
	}
}

func TestReplayIsTheFirstAnswerAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	first := w.do("POST", "/jobs", oneChunk, "Idempotency-Key", "req-1")
	w.store.change("J20260102_000001", func(j *export.Job) {
		j.Status, j.Pending, j.Done, j.UpdatedAt = export.Completed, 0, 1, day.Add(time.Hour)
	})
	for _, again := range []answer{
		w.do("POST", "/jobs", oneChunk, "Idempotency-Key", `"req-1"`),
		w.do("POST", "/jobs", strings.Replace(oneChunk, "{", `{"idempotencyKey":"req-1","priority":4,`, 1)),
		w.do("POST", "/jobs", strings.Replace(oneChunk, "{", `{"idempotencyKey":"req-1",`, 1), "Idempotency-Key", "req-1"),
	} {
		if again.StatusCode != 202 || again.Header.Get("Idempotency-Replayed") != "true" || string(again.body) != string(first.body) || again.Header.Get("Location") != first.Header.Get("Location") {
			t.Errorf("%d %v %s, first %s", again.StatusCode, again.Header, again.body, first.body)
		}
	}
	w.do("POST", "/jobs", strings.Replace(oneChunk, "ABC", "ABD", 1), "Idempotency-Key", "req-1").problem(t, 422, "idempotency-mismatch")
	if n := len(w.store.all()); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

func TestMissingContentTypeIsTakenForJSON(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	if a := w.do("POST", "/jobs", oneChunk, "Content-Type", ""); a.StatusCode != 202 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

func TestBodyOfExactlyTheLimitIsTaken(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.MaxBody = int64(len(oneChunk)) })
	if a := w.do("POST", "/jobs", oneChunk); a.StatusCode != 202 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	w.do("POST", "/jobs", oneChunk+" ").problem(t, 413, "too-large")
}

func TestStoreErrorsAreNotShown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		kind   string
	}{
		"unknown":  {errors.New("secret detail of db-host-7"), 500, "internal"},
		"outage":   {fmt.Errorf("submit: %w", &export.Failure{Class: export.Outage, Code: "X", Err: errors.New("secret detail of db-host-7")}), 503, "unavailable"},
		"deadline": {fmt.Errorf("secret: %w", context.DeadlineExceeded), 503, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			w := setup(t, nil)
			w.store.before = func(context.Context) error { return c.err }
			for _, a := range []answer{w.do("POST", "/jobs", oneChunk), w.do("GET", "/jobs/J20260102_000001", "")} {
				a.problem(t, c.status, c.kind)
				if strings.Contains(string(a.body), "secret") {
					t.Errorf("shown: %s", a.body)
				}
			}
			if !strings.Contains(w.log.String(), "secret") {
				t.Errorf("not logged: %s", w.log)
			}
		})
	}
}

func TestStoreThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.Timeouts.Submit = 20 * time.Millisecond })
	w.store.before = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if a := w.do("POST", "/jobs", oneChunk); a.Header.Get("Retry-After") == "" {
		t.Errorf("no Retry-After in %v", a.Header)
	} else {
		a.problem(t, 503, "unavailable")
	}
}

func TestPanicIsA500WithNothingInternal(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.store.before = func(context.Context) error { panic("secret") }
	a := w.do("POST", "/jobs", oneChunk, "X-Request-Id", "req-9")
	if p := a.problem(t, 500, "internal"); p.RequestID != "req-9" || strings.Contains(string(a.body), "secret") {
		t.Errorf("%s", a.body)
	}
	if log := w.log.String(); !strings.Contains(log, "panic=secret") || !strings.Contains(log, "req-9") {
		t.Errorf("log %s", log)
	}
	w.store.before = nil
	if a := w.do("POST", "/jobs", oneChunk); a.StatusCode != 202 {
		t.Errorf("after a panic: %d", a.StatusCode)
	}
}

func FuzzSubmitNeverFailsOnOurSide(f *testing.F) {
	for _, body := range []string{oneChunk, "", "{", `{"items":[{"key":"\ud800","effectiveDates":[null]}]}`, `[[[[`, "\xff", `{"items":[],"items":[]}`} {
		f.Add(body, "application/json", "key", "req-1", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	}
	f.Add(oneChunk, "text/plain;=", `"\"`, "\r\nx: y", "--")
	w := setupHandler()
	f.Fuzz(func(t *testing.T, body, media, key, id, trace string) {
		status, problemBody := w(body, map[string]string{"Content-Type": media, "Idempotency-Key": key, "X-Request-Id": id, "traceparent": trace})
		if status >= 500 || status < 200 || status >= 300 && !strings.Contains(problemBody, `"type":"/problems/`) {
			t.Fatalf("%d %s", status, problemBody)
		}
	})
}
