package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder answers by path, "METHOD /path body" or "METHOD /path", with the answers in turn, and keeps what it was asked.
type recorder struct {
	answers map[string][]string
	mu      sync.Mutex
	asked   []string
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	target := req.Method + " " + req.URL.Path
	query, _ := url.QueryUnescape(req.URL.RawQuery)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, strings.TrimSpace(target+" "+query+string(body)))
	for _, key := range []string{target + " " + query + string(body), target} {
		if list := r.answers[key]; len(list) > 0 {
			if len(list) > 1 {
				r.answers[key] = list[1:]
			}
			status, text, _ := strings.Cut(list[0], " ")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(map[string]int{"200": 200, "202": 202, "403": 403, "404": 404, "409": 409}[status])
			_, _ = io.WriteString(w, text)
			return
		}
	}
	http.NotFound(w, req)
}

func TestMassRedriveGoesOnWhileThereIsMore(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{
		`POST /redrive {"status":"FAILED","errorCode":"SQL_1","dryRun":true}`: {`202 {"jobs":1500,"redriven":3000,"dryRun":true,"more":false}`},
		`POST /redrive {"status":"FAILED","errorCode":"SQL_1"}`: {
			`202 {"jobs":1000,"redriven":2000,"dryRun":false,"more":true}`, `202 {"jobs":500,"redriven":1000,"dryRun":false,"more":false}`},
	}}
	code, out, errs := callAPI(t, api, "", "redrive", "--status", "failed", "--error-code", "SQL_1")
	if code != 0 || out != "put back 3000 chunks of 1500 jobs\n" || errs != "" || len(api.asked) != 3 {
		t.Errorf("code %d, printed %q, %q, asked %q", code, out, errs, api.asked)
	}
}

func TestMassRedriveEndsWhereJobsFailAgainAtOnce(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{
		`POST /redrive {"key":"A","dryRun":true}`: {`202 {"jobs":1500,"redriven":1500,"dryRun":true,"more":false}`},
		`POST /redrive {"key":"A"}`:               {`202 {"jobs":1000,"redriven":1000,"dryRun":false,"more":true}`},
	}}
	code, out, _ := callAPI(t, api, "", "redrive", "--key", "A")
	if code != 0 || out != "put back 2000 chunks of 2000 jobs\n" || len(api.asked) != 3 {
		t.Errorf("code %d, printed %q, asked %q", code, out, api.asked)
	}
}

func TestDryRunPutsNothingBack(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{
		"POST /redrive": {`202 {"jobs":2,"redriven":7,"dryRun":true,"more":false}`},
		"GET /jobs/J1":  {`200 {"jobId":"J1","status":"FAILED","total":9,"failed":2,"cancelled":3}`},
		"GET /jobs/J2":  {`200 {"jobId":"J2","status":"COMPLETED","total":9}`},
	}}
	if code, out, _ := callAPI(t, api, "", "redrive", "--since", "24h", "--dry-run"); code != 0 || out != "would put back 7 chunks of 2 jobs\n" {
		t.Errorf("code %d, printed %q", code, out)
	}
	code, out, errs := callAPI(t, api, "", "redrive", "--dry-run", "J1", "J2")
	if code != 1 || out != "J1: would put back 5 chunks\n" || !strings.Contains(errs, "J2") || !strings.Contains(errs, "COMPLETED") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	for _, asked := range api.asked {
		if strings.HasPrefix(asked, "POST") && !strings.Contains(asked, `"dryRun":true`) {
			t.Errorf("asked %s", asked)
		}
	}
}

func TestOrdersGoToEachJobAndTellOfEach(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{
		"POST /jobs/J1/cancel":  {`202 {"jobId":"J1","status":"CANCELLING","total":2,"running":2}`},
		"POST /jobs/J2/cancel":  {`409 {"title":"The state does not allow it","status":409,"detail":"it is COMPLETED"}`},
		"POST /jobs/J3/cancel":  {`404 {"title":"There is nothing here","status":404,"detail":"there is no such job"}`},
		"POST /jobs/J1/redrive": {`202 {"jobId":"J1","redriven":4}`},
		"POST /jobs/J3/redrive": {`404 {"title":"There is nothing here","status":404,"detail":"there is no such job"}`},
	}}
	code, out, errs := callAPI(t, api, "", "cancel", "J2", "J3", "J1")
	if code != 1 || !strings.HasPrefix(out, "J1 CANCELLING") || !strings.Contains(errs, "it is COMPLETED") || !strings.Contains(errs, "cancel J3: unknown job") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	code, out, errs = callAPI(t, api, "", "redrive", "J3", "J1")
	if code != 5 || out != "J1: put back 4 chunks\n" || !strings.Contains(errs, "J3") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
}

func TestListsAskForPagesUpToTheirLimit(t *testing.T) {
	t.Parallel()
	page := func(from, n int, next string) string {
		var jobs []string
		for i := range n {
			jobs = append(jobs, fmt.Sprintf(`{"jobId":"J%d","status":"FAILED","total":1,"failed":1,"createdAt":"2026-01-02T10:00:00.000Z","errorMessage":"a\tb\nc"}`, from+i))
		}
		return `200 {"jobs":[` + strings.Join(jobs, ",") + `],"nextCursor":` + next + `}`
	}
	api := &recorder{answers: map[string][]string{
		"GET /jobs key=A b&limit=200&status=FAILED&to=2026-01-31": {page(0, 200, `"c1"`)},
		"GET /jobs cursor=c1&key=A b&limit=50&status=FAILED&to=2026-01-31": {
			`200 {"jobs":[],"nextCursor":"c2"}`}, // short, and yet not the last
		"GET /jobs cursor=c2&key=A b&limit=50&status=FAILED&to=2026-01-31": {page(200, 50, `"c3"`)},
	}}
	code, out, errs := callAPI(t, api, "", "jobs", "-n", "250", "--status", "failed", "--key", "A b", "--to", "2026-01-31")
	if code != 0 || strings.Count(out, "\n") != 250 || !strings.Contains(errs, "raise --limit") {
		t.Errorf("code %d, %d lines, printed %q; asked %q", code, strings.Count(out, "\n"), errs, api.asked)
	}
	first, _, _ := strings.Cut(out, "\n")
	if first != "J0\tFAILED\t0\t1\t1\t0\t2026-01-02T10:00:00Z\t\ta b c" {
		t.Errorf("the first line is %q", first)
	}
	api.answers = map[string][]string{"GET /jobs": {page(0, 2, `"c1"`)}}
	if code, _, errs := callAPI(t, api, "", "jobs"); code != 1 || !strings.Contains(errs, "circles") {
		t.Errorf("a cursor that does not move: code %d, printed %q", code, errs)
	}
}

func TestParkedGathersTheDeadLettersOfJobs(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{
		"GET /jobs limit=200&status=FAILED":       {`200 {"jobs":[{"jobId":"J9","status":"FAILED","total":3,"failed":2},{"jobId":"J8","status":"FAILED","total":3,"failed":0}],"nextCursor":null}`},
		"GET /jobs limit=200&status=IN_PROGRESS":  {`200 {"jobs":[{"jobId":"J7","status":"IN_PROGRESS","total":3,"failed":1}]}`},
		"GET /jobs limit=200&status=CANCELLING":   {`200 {"jobs":[]}`},
		"GET /jobs limit=200&status=CANCELLED":    {`200 {"jobs":[{"jobId":"J6","status":"CANCELLED","total":3,"failed":1}]}`},
		"GET /jobs/J9/chunks limit=3&status=DLQ":  {`200 {"chunks":[{"chunkKey":"key=A:date=20250101","status":"DLQ","attemptCount":5,"errorCode":"X","errorMessage":"it \u001b[31mbroke"},{"chunkKey":"key=B:date=20250101","status":"DLQ","errorCode":"Y"}]}`},
		"GET /jobs/J7/chunks limit=3&status=DLQ":  {`200 {"chunks":[{"chunkKey":"key=C:date=20250101","status":"DLQ","errorCode":"X"}]}`},
		"GET /jobs/J6/chunks limit=3&status=DLQ":  {`404 {"title":"gone","status":404,"detail":"removed meanwhile"}`},
		"GET /jobs from=2026-01-01&status=FAILED": {`200 {"jobs":[]}`},
	}}
	code, out, errs := callAPI(t, api, "", "parked", "--error-code", "X")
	if want := "J9\tkey=A:date=20250101\t5\t\tX\tit \uFFFD[31mbroke\nJ7\tkey=C:date=20250101\t0\t\tX\t\n"; code != 0 || out != want || errs != "" {
		t.Errorf("code %d, printed %q, %q, want %q", code, out, errs, want)
	}
	code, out, errs = callAPI(t, api, "", "parked", "--json", "-n", "1")
	if code != 0 || !strings.Contains(out, `"jobId":"J9"`) || strings.Count(out, "\n") != 1 || !strings.Contains(errs, "there are more") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
}

func TestAuditSaysWhoDidWhatFromWhere(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{"GET /audit": {`200 {"lines":[` +
		`{"at":"2026-01-02T10:00:00.000Z","action":"cancelJob","outcome":"DONE","status":null,"tenant":"ops","role":"operator","token":"9f86d081","address":"10.0.0.1","forwarded":"192.0.2.7","via":"console","jobId":"J1","chunks":3},` +
		`{"at":"2026-01-02T09:00:00.000Z","action":"signIn","outcome":"REFUSED","status":401,"tenant":null,"role":null,"token":null,"address":"10.0.0.2","forwarded":"` + `\u001b[31m` + `","via":"console","jobId":null,"chunks":null}` +
		`],"nextCursor":null}`}}}
	code, out, errs := callAPI(t, api, "", "audit", "--since", "1d", "--by", "9f86d081")
	want := "2026-01-02T10:00:00Z\tcancelJob\tDONE\tJ1\t3\tops (operator 9f86d081)\t10.0.0.1 for 192.0.2.7, console\n" +
		"2026-01-02T09:00:00Z\tsignIn\tREFUSED 401\t\t\t\t10.0.0.2 for \uFFFD[31m, console\n"
	if code != 0 || out != want || errs != "" {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, out, _ := callAPI(t, api, "", "audit", "--json"); code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, `"chunks":3`) {
		t.Errorf("code %d, printed %q", code, out)
	}
	if code, _, errs := callAPI(t, api, "", "audit", "--by", "a whole token"); code != 2 || !strings.Contains(errs, "first eight") {
		t.Errorf("code %d, printed %q", code, errs)
	}
}

func TestQueuesSayWhatIsUnknownAndWhy(t *testing.T) {
	t.Parallel()
	api := &recorder{answers: map[string][]string{"GET /queues": {
		`200 {"queues":[{"queue":"w","known":true,"messages":3,"inFlight":1,"consumers":2},{"queue":"p","known":false,"reason":"it is shy","messages":null,"inFlight":null,"consumers":null}]}`,
		`200 {"queues":[]}`, `403 {"title":"This is not allowed","status":403,"detail":"this is for operators"}`}}}
	if code, out, _ := callAPI(t, api, "", "queues"); code != 0 || out != "w\t3\t1\t2\t\np\tunknown\tunknown\tunknown\tit is shy\n" {
		t.Errorf("code %d, printed %q", code, out)
	}
	if code, out, errs := callAPI(t, api, "", "queues"); code != 0 || out != "" || !strings.Contains(errs, "without a broker") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, _, errs := callAPI(t, api, "", "queues"); code != 1 || !strings.Contains(errs, "for operators") {
		t.Errorf("code %d, printed %q", code, errs)
	}
}

func TestDrainingAsksOrWantsYes(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"parked", "--drain"}, nil, &out, &errs, []string{"EXPORTD_BROKER_URLS=stomp://127.0.0.1:1"})
	if code != 2 || !strings.Contains(errs.String(), "--yes") {
		t.Errorf("code %d, printed %q", code, &errs)
	}
	errs.Reset()
	if code := run(t.Context(), []string{"parked", "--broker"}, nil, &out, &errs, nil); code != 2 || !strings.Contains(errs.String(), "EXPORTD_BROKER_URLS") {
		t.Errorf("code %d, printed %q", code, &errs)
	}
}

func TestSpansAreReadWithDays(t *testing.T) {
	for s, want := range map[string]time.Duration{"24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "90m": 90 * time.Minute, "": -1, "d": -1, "-1h": -1, "0s": -1, "1.5d": -1, "7": -1} {
		if got, err := parseSince(s); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q is %s, %v", s, got, err)
		}
	}
}
