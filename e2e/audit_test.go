package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"exportd/e2e/stack"
)

// auditLine is one as exportd audit --json prints it.
type auditLine struct {
	Action, Outcome, Tenant, Role, Token, Address, Forwarded, UserAgent, Via, JobID, JobTenant, RequestID string
	Status, Chunks                                                                                        int
	Filter                                                                                                map[string]string
}

// audited asks as the operator, and gives the lines from the oldest on.
func (w *world) audited(args ...string) (lines []auditLine) {
	w.t.Helper()
	code, out, errs := w.person("", append([]string{"audit", "--json"}, args...)...)
	if code != 0 || errs != "" {
		w.t.Fatalf("audit: code %d, printed %q, %q", code, out, errs)
	}
	for text := range strings.Lines(out) {
		var l auditLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			w.t.Fatal(err)
		}
		lines = append([]auditLine{l}, lines...)
	}
	return lines
}

func TestTheAuditTellsWhoDidWhatByWhateverWay(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI("EXPORTD_TOKENS_FILE=" + tokensFile(t))
	w.startConsumer()
	w.Settings = append(w.Settings, "EXPORTD_TOKEN=boss")
	w.client.Token = "victim"
	job := w.ended(w.submit(stack.Submission{OnFailure: "CONTINUE", Items: items("DIV_1", "ROWS_1")}), "FAILED")
	digits := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token)))[:8] }
	post := func(client *http.Client, path, body string, headers ...string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, api.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	form := func(path string, values url.Values) int {
		t.Helper()
		return post(browser, path, values.Encode(), "Content-Type", "application/x-www-form-urlencoded", "User-Agent", "browser")
	}
	const guess = "s3cret-guess"
	for _, step := range []struct {
		do   func() int
		want int
	}{
		{func() int {
			return post(http.DefaultClient, "/jobs/"+job.JobID+"/cancel", "", "Authorization", "Bearer attacker", "User-Agent", "evil\xff\x85"+strings.Repeat("x", 5000))
		}, 404},
		{func() int { return form("/console/sign-in", url.Values{"token": {guess}}) }, 401},
		{func() int { return form("/console/sign-in", url.Values{"token": {"boss"}}) }, 303},
		{func() int { return form("/console/jobs/"+job.JobID+"/redrive", nil) }, 303},
	} {
		if got := step.do(); got != step.want {
			t.Fatalf("%d, want %d", got, step.want)
		}
	}
	w.ended(job, "FAILED")
	if code, out, errs := w.person("", "redrive", "--key", "DIV_1", "--yes"); code != 0 {
		t.Fatalf("code %d, printed %q, %q", code, out, errs)
	}
	w.ended(job, "FAILED")
	boss := auditLine{Outcome: "DONE", Tenant: "boss", Role: "operator", Token: digits("boss"), Address: "127.0.0.1"}
	browsing, byFilter := boss, boss
	browsing.UserAgent, browsing.Via = "browser", "console"
	byFilter.Via, byFilter.Action, byFilter.Chunks, byFilter.JobID, byFilter.JobTenant = "api", "redriveJobs", 1, job.JobID, "victim"
	signedIn, redriven := browsing, browsing
	signedIn.Action = "signIn"
	redriven.Action, redriven.Chunks, redriven.JobID, redriven.JobTenant = "redriveJob", 1, job.JobID, "victim"
	want := []auditLine{
		{Action: "cancelJob", Outcome: "REFUSED", Status: 404, Tenant: "attacker", Role: "submitter", Token: digits("attacker"), Address: "127.0.0.1", Via: "api", JobID: job.JobID},
		{Action: "signIn", Outcome: "REFUSED", Status: 401, Address: "127.0.0.1", UserAgent: "browser", Via: "console"},
		signedIn, redriven, byFilter,
	}
	got := w.audited()
	if len(got) != len(want) {
		t.Fatalf("%d lines: %+v", len(got), got)
	}
	for i, l := range got {
		if l.RequestID == "" || !strings.Contains(api.Log(), fmt.Sprintf(`"action":%q`, l.Action)) {
			t.Errorf("%+v is not in the log, or has no request", l)
		}
		if l.Action == "redriveJobs" && l.Filter["key"] != "DIV_1" || i == 0 && (len(l.UserAgent) > 200 || !strings.HasPrefix(l.UserAgent, "evil")) {
			t.Errorf("%+v", l)
		}
		l.RequestID, l.Filter = "", nil
		if want[i].UserAgent == "" {
			l.UserAgent = ""
		}
		if fmt.Sprint(l) != fmt.Sprint(want[i]) {
			t.Errorf("line %d: %+v\nwant   %+v", i, l, want[i])
		}
	}
	if lines := w.audited("--job", job.JobID, "--by", digits("boss")); len(lines) != 2 {
		t.Errorf("of the job by the boss: %+v", lines)
	}
	if n := w.number(`select count(*) from audit where audit::text like '%' || $1 || '%'`, guess); n != 0 || strings.Contains(api.Log(), guess) {
		t.Error("a guessed token was written down")
	}
	w.Settings = append(w.Settings, "EXPORTD_TOKEN=victim")
	if code, out, errs := w.person("", "audit"); code != 1 || out != "" || !strings.Contains(errs, "for operators") {
		t.Errorf("a submitter: code %d, printed %q, %q", code, out, errs)
	}
	w.checkInvariants()
}

// The api is killed when the order is carried out and its line is not written yet: there is neither.
func TestAnAPIKilledBeforeTheAuditLineHasNotCancelled(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI()
	job := w.submit(stack.Submission{Items: items("ROWS_1", "ROWS_2")})
	hold, err := pgx.Connect(t.Context(), w.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close(context.Background())
	if _, err := hold.Exec(t.Context(), `begin; lock table audit`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.client.Order(context.Background(), job.JobID, "cancel") }()
	waiting := `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%insert into audit%'`
	w.eventually("the line waits", func() bool { return w.number(waiting) == 1 })
	w.kill(api)
	if err := <-done; err == nil {
		t.Error("the order was answered")
	}
	if _, err := hold.Exec(t.Context(), `rollback`); err != nil {
		t.Fatal(err)
	}
	w.eventually("the session is over", func() bool {
		return w.number(`select count(*) from pg_stat_activity where datname = current_database() and application_name = 'exportd'`) == 0
	})
	if n := w.number(`select count(*) from audit`); n != 0 {
		t.Errorf("%d lines", n)
	}
	w.startAPI()
	w.startConsumer()
	w.ended(job, "COMPLETED")
	w.checkInvariants()
}
