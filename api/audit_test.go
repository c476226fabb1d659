package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"exportd/api"
	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

// audited are the lines so far, oldest first.
func (w *world) audited() []export.AuditLine {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return append([]export.AuditLine(nil), w.store.lines...)
}

// line is the only one that was added since n.
func (w *world) line(n int) export.AuditLine {
	w.t.Helper()
	lines := w.audited()
	if len(lines) != n+1 {
		w.t.Fatalf("%d lines, want %d: %+v", len(lines), n+1, lines[min(n, len(lines)):])
	}
	return lines[n]
}

func pointer(n int) *int { return &n }

func TestOrdersSayWhoGaveThemAndFromWhere(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	if n := len(w.audited()); n != 0 {
		t.Errorf("a submission left %d lines", n)
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	w.do("POST", first+"/cancel", "", append(as("op"), "X-Request-Id", "req-1", "User-Agent", "tool/1", "X-Forwarded-For", "198.51.100.3", "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")...)
	want := export.AuditLine{ID: 1, At: day, JobID: job(1), JobTenant: "one", Chunks: pointer(1), Order: export.Order{Action: "cancelJob", Actor: export.Actor{
		Tenant: "ops", Role: "operator", Token: hash("op")[:8], Address: "127.0.0.1", Forwarded: "198.51.100.3", UserAgent: "tool/1", Via: "api", RequestID: "req-1", TraceID: trace,
	}}}
	if diff := cmp.Diff(want, w.line(0)); diff != "" {
		t.Error(diff)
	}
	w.do("POST", first+"/cancel", "", as("op")...)
	if n := len(w.audited()); n != 1 {
		t.Errorf("a cancel that changed nothing left a line: %d", n)
	}
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Cancelled = export.Cancelled, 1 })
	w.do("POST", first+"/redrive", "", as("t1")...)
	if l := w.line(1); l.Action != "redriveJob" || l.Tenant != "one" || l.Role != "submitter" || l.Token != hash("t1")[:8] || *l.Chunks != 1 || l.Status != 0 {
		t.Errorf("%+v", l)
	}
}

func TestARedriveByFilterLeavesALineForEachJobWithTheFilter(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	for n := 1; n <= 2; n++ {
		w.do("POST", "/jobs", oneChunk, as("t1")...)
		w.store.change(job(n), func(j *export.Job) { j.Status, j.Pending, j.Failed, j.Total = export.Failed, 0, n, n })
	}
	w.do("POST", "/redrive", `{"dryRun":true}`, as("op")...)
	if n := len(w.audited()); n != 0 {
		t.Errorf("a dry run left %d lines", n)
	}
	w.do("POST", "/redrive", `{"key":"ABC","from":"2026-01-02"}`, append(as("op"), "X-Request-Id", "all")...)
	lines := w.audited()
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, l := range lines {
		if l.JobID != job(i+1) || l.Action != "redriveJobs" || l.RequestID != "all" || *l.Chunks != i+1 || string(l.Filter) != `{"key":"ABC","from":"2026-01-02T00:00:00Z"}` {
			t.Errorf("%+v %s", l, l.Filter)
		}
	}
}

func TestWhatIsRefusedLeavesALine(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	for i, c := range []struct {
		method, path, token string
		status              int
		tenant, action, job string
		problem             string
	}{
		{"GET", "/audit", "t1", 403, "one", "listAudit", "", "forbidden"},
		{"GET", "/workers", "t2", 403, "two", "listWorkers", "", "forbidden"},
		{"POST", first + "/cancel", "t2", 404, "two", "cancelJob", job(1), "not-found"},
		{"POST", first + "/redrive", "op", 409, "ops", "redriveJob", job(1), "conflict"},
		{"POST", "/redrive", "wrong", 401, "", "redriveJobs", "", "unauthorized"},
		{"GET", first + "/events", "wrong", 401, "", "watchJob", job(1), "unauthorized"},
	} {
		if a := w.do(c.method, c.path, "{}", as(c.token)...); a.StatusCode != c.status {
			t.Fatalf("%s: %d", c.path, a.StatusCode)
		}
		l := w.line(i)
		if l.Status != c.status || l.Tenant != c.tenant || l.JobID != c.job || l.Problem != c.problem || l.Chunks != nil || (l.Token == "") != (c.tenant == "") {
			t.Errorf("%s %s: %+v", c.method, c.path, l)
		}
		if l.Action != c.action && !strings.Contains(c.path, "events") {
			t.Errorf("%s %s is called %q", c.method, c.path, l.Action)
		}
	}
	n := len(w.audited())
	w.do("GET", "/jobs", "").problem(t, 401, "unauthorized")
	w.do("GET", "/jobs/J20260102_000099", "", as("t1")...).problem(t, 404, "not-found")
	w.do("GET", "/nothing", "", as("t1")...)
	if lines := w.audited(); len(lines) != n {
		t.Errorf("looking about left %+v", lines[n:])
	}
	w.do("POST", first+"/cancel", "", append(as("t1"), "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site")...).problem(t, 403, "forbidden")
	if l := w.line(n); l.Action != "cancelJob" || l.Tenant != "" || l.Status != 403 {
		t.Errorf("of another site: %+v", l)
	}
}

func TestGuessersDoNotFillTheAudit(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	for i := range 50 {
		w.do("GET", "/jobs", "", as(fmt.Sprint("guess", i))...)
	}
	if n := len(w.audited()); n < 5 || n > 15 { // 10, and one a minute
		t.Errorf("%d lines of 50 guesses", n)
	}
	if got := string(w.do("GET", "/metrics", "").body); !strings.Contains(got, `exportd_audit_records_total{result="recorded"} 1`) || strings.Contains(got, `{result="left_out"} 0`) {
		t.Error("what was left out is not counted")
	}
	w.do("GET", "/audit", "", as("t1")...)
	if l := w.audited(); l[len(l)-1].Tenant != "one" {
		t.Error("somebody else's refusal is left out too")
	}
}

func TestWhatStrangersSayIsCutAndCleaned(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	w.do("POST", first+"/cancel", "", "User-Agent", "a\xff\x85\u202e\t"+strings.Repeat("é", 5000), "X-Forwarded-For", strings.Repeat("1.2.3.4, ", 900), "X-Forwarded-For", "\x9b31m")
	l := w.line(0)
	for _, s := range []string{l.UserAgent, l.Forwarded} {
		if len(s) > 200 || !utf8.ValidString(s) || strings.ContainsAny(s, "\t\x00\u202e\u0085\u009b") || !strings.HasSuffix(s, "…") {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
}

func TestAnAuditThatCannotBeWrittenKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.store.before = func(context.Context) error { return errors.New("away") }
	w.do("GET", "/workers", "", as("t1")...).problem(t, 403, "forbidden")
	if log := w.log.String(); !strings.Contains(log, "audit line lost") || !strings.Contains(log, "action=listWorkers") {
		t.Errorf("the log: %s", log)
	}
}

func TestTheAuditIsListedForOperatorsByPage(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	for n := 1; n <= 3; n++ {
		w.do("POST", "/jobs", oneChunk, as("t1")...)
		w.do("POST", "/jobs/"+job(n)+"/cancel", "", append(as([]string{"t1", "op", "op"}[n-1]), "User-Agent", "x", "X-Request-Id", "r")...)
	}
	w.do("GET", "/workers", "", as("t2")...)
	list := func(query string) (lines []map[string]any, next string) {
		t.Helper()
		a := w.do("GET", "/audit?"+query, "", as("op")...)
		var page struct {
			Lines      []map[string]any
			NextCursor *string
		}
		if err := json.Unmarshal(a.body, &page); err != nil || a.StatusCode != 200 || page.Lines == nil {
			t.Fatalf("%s: %d %s", query, a.StatusCode, a.body)
		}
		if page.NextCursor != nil {
			next = *page.NextCursor
		}
		return page.Lines, next
	}
	lines, next := list("limit=3")
	if len(lines) != 3 || next == "" || lines[0]["outcome"] != "REFUSED" || lines[0]["status"] != 403. || lines[0]["tenant"] != "two" {
		t.Fatalf("%v %q", lines, next)
	}
	lines, last := list("limit=3&cursor=" + next)
	want := []map[string]any{{
		"at": "2026-01-02T10:00:00.000Z", "action": "cancelJob", "outcome": "DONE", "status": nil, "problem": nil, "tenant": "one", "role": "submitter", "token": hash("t1")[:8],
		"address": "127.0.0.1", "forwarded": nil, "userAgent": "x", "via": "api", "jobId": job(1), "jobTenant": "one", "chunks": 1., "requestId": "r", "traceId": nil,
	}}
	if diff := cmp.Diff(want, lines); diff != "" || last != "" {
		t.Errorf("%s %q", diff, last)
	}
	for query, n := range map[string]int{
		"tenant=ops": 2, "token=" + hash("t1")[:8]: 1, "action=listWorkers": 1, "jobId=" + job(2): 1, "from=2026-01-02&to=2026-01-02": 4, "from=2026-01-03": 0, "tenant=nobody": 0,
	} {
		if lines, _ := list(query); len(lines) != n {
			t.Errorf("%s: %d lines, want %d", query, len(lines), n)
		}
	}
	for _, query := range []string{"cursor=x", "limit=0", "limit=201", "from=x", "to=20260230", "token=zz", "tenant=%00", "jobId=%FF", "action=" + strings.Repeat("x", 129), "who=me",
		"cursor=" + w.do("GET", "/jobs?limit=1", "", as("op")...).json(t)["nextCursor"].(string)} {
		w.do("GET", "/audit?"+query, "", as("op")...).problem(t, 400, "bad-request")
	}
	if before := len(w.audited()); before != 4 {
		t.Errorf("%d lines", before)
	}
}

// page is a console that asks the API in the visitor's name, as the real one does.
func page(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		token := r.FormValue("token")
		in := r.Clone(r.Context())
		in.Header = http.Header{"Authorization": {"Bearer " + token}}
		in.URL.Path, in.URL.RawPath, in.URL.RawQuery, in.RemoteAddr = "/jobs", "", "", "192.0.2.99:1"
		if r.URL.Path != "/console/sign-in" {
			in.URL.Path = strings.TrimPrefix(r.URL.Path, "/console")
		} else {
			in.Method = http.MethodGet
		}
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, in)
		status := rec.Code
		if status < 300 {
			status = http.StatusSeeOther
		}
		rw.WriteHeader(status)
	})
}

func TestWhatTheConsoleDoesIsTheVisitorsDoing(t *testing.T) {
	t.Parallel()
	with := tenants(t)
	w := setup(t, func(c *api.Config) { with(c); c.Console = page })
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	post := func(path, token string) int {
		t.Helper()
		req, err := http.NewRequest("POST", "http://"+w.addr+"/console"+path+"?token="+token, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "browser")
		req.Header.Set("X-Request-Id", "page-1")
		resp, err := w.client.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for i, c := range []struct {
		path, token    string
		answer, status int
		action, tenant string
	}{
		{"/sign-in", "op", 303, 0, "signIn", "ops"},
		{"/sign-in", "wrong", 401, 401, "signIn", ""},
		{first + "/cancel", "op", 303, 0, "cancelJob", "ops"},
		{first + "/cancel", "t2", 404, 404, "cancelJob", "two"},
	} {
		if got := post(c.path, c.token); got != c.answer {
			t.Errorf("%s of %s: %d", c.path, c.token, got)
		}
		l := w.line(i)
		if l.Action != c.action || l.Tenant != c.tenant || l.Status != c.status || l.Via != "console" || l.UserAgent != "browser" || l.Address != "127.0.0.1" {
			t.Errorf("%s of %s: %+v", c.path, c.token, l)
		}
	}
}
