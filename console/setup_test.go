package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"exportd/console"
	"exportd/export"
)

// fakeAPI answers as the API does, with a job of one tenant whose chunk has a hostile key, and keeps the calls that reach it.
type fakeAPI struct {
	calls []string
	job   map[string]any
	wrong int // status of every answer, when set
}

const hostileKey = `<script>alert(1)</script>"'/%2e&:`

var hostileChunk = "key=" + hostileKey + ":date=20250215"

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.calls = append(f.calls, r.Method+" "+r.URL.Path+" "+string(body))
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		if status >= 400 {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	chunk := map[string]any{"chunkKey": hostileChunk, "key": hostileKey, "effectiveDate": "20250215", "status": "DLQ", "errorCode": "SQL_P0001",
		"errorMessage": `<img src=x onerror=alert(2)>`, "attempts": []any{map[string]any{"number": 1, "outcome": "DLQ", "error": "<b>bold</b>", "worker": "w"}}}
	_, _, known := identify(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	switch {
	case f.wrong != 0:
		answer(f.wrong, map[string]any{"title": "Wrong", "detail": "<i>no</i>", "status": f.wrong})
	case !known:
		answer(http.StatusUnauthorized, map[string]any{"title": "Unauthorized"})
	case r.URL.Path == "/jobs":
		answer(200, map[string]any{"jobs": []any{f.job}, "nextCursor": nil})
	case r.URL.Path == "/jobs/J20260102_000001":
		answer(200, f.job)
	case r.URL.Path == "/jobs/J20260102_000001/chunks":
		answer(200, map[string]any{"chunks": []any{chunk}})
	case r.URL.Path == "/jobs/J20260102_000001/chunks/"+hostileChunk:
		answer(200, chunk)
	case r.URL.Path == "/jobs/J20260102_000001/cancel" && r.Method == "POST":
		answer(202, f.job)
	case r.URL.Path == "/jobs/J20260102_000001/redrive" && r.Method == "POST":
		answer(202, map[string]any{"jobId": "J20260102_000001", "redriven": 3})
	case r.URL.Path == "/redrive" && r.Method == "POST":
		answer(202, map[string]any{"jobs": 2, "redriven": 7})
	case r.URL.Path == "/jobs/J20260102_000001/files/"+hostileChunk:
		answer(200, map[string]any{"url": "https://bucket.example/file", "expiresAt": "2026-01-02T10:00:00Z"})
	case r.URL.Path == "/jobs/J20260102_000001/events":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: end\ndata: %s\n\n", r.Header.Get("Authorization")+r.Header.Get("Cookie"))
	case r.URL.Path == "/workers":
		answer(200, map[string]any{"workers": []any{}})
	case r.URL.Path == "/audit":
		answer(200, map[string]any{"lines": []any{map[string]any{"at": "2026-01-02T10:00:00Z", "action": "POST <b>bold", "outcome": "REFUSED", "status": 403, "tenant": "<tenant>", "token": "9f86d081",
			"address": "192.0.2.1", "forwarded": "<u>away", "userAgent": "<img src=x onerror=alert(3)>", "via": "api", "jobId": "J20260102_000001", "chunks": 3}}, "nextCursor": "older"})
	case r.URL.Path == "/queues":
		answer(200, map[string]any{"queues": []any{map[string]any{"queue": "q<b>", "known": false, "reason": "<u>away</u>"}}})
	default:
		answer(404, map[string]any{"title": "Not found", "status": 404})
	}
}

// fakeStore keeps the tenants that it was asked for.
type fakeStore struct {
	tenants      []string
	tenantsAsked bool
	err          error
}

func (s *fakeStore) asked(tenant string) error {
	s.tenants = append(s.tenants, tenant)
	return s.err
}

func (s *fakeStore) Activity(_ context.Context, tenant string) (export.Activity, error) {
	return export.Activity{Minutes: []export.Minute{{At: time.Unix(0, 0), Done: 5, Failed: 1}}}, s.asked(tenant)
}

func (s *fakeStore) Counts(_ context.Context, tenant string) (export.Counts, error) {
	return export.Counts{Jobs: map[export.JobStatus]int{export.Failed: 1}, Dead: 1}, s.asked(tenant)
}

func (s *fakeStore) Tenants(_ context.Context, jobIDs []string) (map[string]string, error) {
	s.tenantsAsked = true
	return map[string]string{jobIDs[0]: "<tenant>"}, s.err
}

func (s *fakeStore) Cells(_ context.Context, tenant, _ string) ([]export.Cell, error) {
	return []export.Cell{{Key: hostileKey, Date: 20250215, Status: export.DeadLetter}}, s.asked(tenant)
}

func (s *fakeStore) failed() []export.FailedChunk {
	at := time.Unix(0, 0)
	return []export.FailedChunk{{
		Ref: export.Ref{JobID: "J20260102_000001", Key: hostileKey, Date: 20250215}, Tenant: "acme", JobStatus: export.Failed, Status: export.DeadLetter,
		FailedAt: &at, ErrorCode: "SQL_P0001", Error: `<img src=x onerror=alert(2)>`,
	}}
}

func (s *fakeStore) Failures(_ context.Context, tenant, _ string) ([]export.FailedChunk, error) {
	return s.failed(), s.asked(tenant)
}

func (s *fakeStore) DeadLetters(_ context.Context, f export.RedriveFilter) ([]export.FailedChunk, bool, error) {
	return s.failed(), false, s.asked(f.Tenant)
}

func identify(token string) (tenant string, operator, ok bool) {
	switch token {
	case "sub mitter/+=":
		return "acme", false, true
	case "operator":
		return "ops", true, true
	}
	return "", false, false
}

type world struct {
	t     *testing.T
	api   *fakeAPI
	store *fakeStore
	http.Handler
	cookies []*http.Cookie
}

// setup gives a console with tokens, and a visitor that is not signed in.
func setup(t *testing.T, change ...func(*console.Config)) *world {
	t.Helper()
	w := &world{t: t, store: &fakeStore{}, api: &fakeAPI{job: map[string]any{
		"jobId": "J20260102_000001", "status": "FAILED", "total": 3, "done": 1, "failed": 1, "cancelled": 1, "errorMessage": "<s>cause</s>",
		"createdAt": "2026-01-02T10:00:00Z", "startedAt": "2026-01-02T10:00:01Z", "completedAt": "2026-01-02T10:00:05Z",
	}}}
	c := console.Config{API: w.api, Store: w.store, Identify: identify, Log: slog.New(slog.DiscardHandler), Version: "test"}
	for _, f := range change {
		f(&c)
	}
	w.Handler = console.New(c)
	return w
}

// do sends a request of the visitor; headers are pairs.
func (w *world) do(method, path string, form url.Values, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(method, "http://console.example"+path, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, c := range w.cookies {
		r.AddCookie(c)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

func (w *world) signIn(token string) *world {
	w.t.Helper()
	rec := w.do("POST", "/console/sign-in", url.Values{"token": {token}})
	if rec.Code != http.StatusSeeOther {
		w.t.Fatalf("sign in: %d %s", rec.Code, rec.Body)
	}
	w.cookies = rec.Result().Cookies()
	w.api.calls = nil
	return w
}
