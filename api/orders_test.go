package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"exportd/api"
	"exportd/export"
)

const first = "/jobs/J20260102_000001"

// tenants are two submitters, t1 and t2, and an operator, op; their tokens are their names.
func tenants(t *testing.T) func(*api.Config) {
	t.Helper()
	tokens, err := api.ParseTokens(strings.NewReader(
		"one:submitter:" + hash("t1") + "\ntwo:submitter:" + hash("t2") + "\nops:operator:" + hash("op")))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *api.Config) { c.Tokens = tokens }
}

// as is the header that names the caller.
func as(token string) []string { return []string{"Authorization", "Bearer " + token} }

func TestCancelIsIdempotentAndHasTheJobLookedAt(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var checked []string
	w := setup(t, func(c *api.Config) {
		c.Check = func(id string) { mu.Lock(); defer mu.Unlock(); checked = append(checked, id) }
	})
	w.do("POST", "/jobs", oneChunk)
	for range 2 {
		a := w.do("POST", first+"/cancel", "", "Content-Type", "")
		if body := a.json(t); a.StatusCode != 202 || body["status"] != "CANCELLING" || body["cancelled"] != 1. || a.Header.Get("Retry-After") != "1" {
			t.Fatalf("%d %s", a.StatusCode, a.body)
		}
	}
	w.store.change("J20260102_000001", func(j *export.Job) { j.Status = export.Cancelled })
	if a := w.do("POST", first+"/cancel", ""); a.StatusCode != 202 || a.json(t)["status"] != "CANCELLED" {
		t.Errorf("of a cancelled job: %d %s", a.StatusCode, a.body)
	}
	for _, ended := range []export.JobStatus{export.Completed, export.Failed} {
		w.store.change("J20260102_000001", func(j *export.Job) { j.Status = ended })
		if p := w.do("POST", first+"/cancel", "").problem(t, 409, "conflict"); p.Detail != fmt.Sprintf("job J20260102_000001 is %s", ended) {
			t.Errorf("the detail says %q", p.Detail)
		}
	}
	if mu.Lock(); len(checked) != 3 || checked[0] != "J20260102_000001" {
		t.Errorf("checked %v", checked)
	}
	mu.Unlock()
}

func TestRedriveSaysHowManyChunksItPutBack(t *testing.T) {
	t.Parallel()
	woken := make(chan struct{}, 10)
	w := setup(t, func(c *api.Config) { c.Wake = func() { woken <- struct{}{} } })
	w.do("POST", "/jobs", oneChunk)
	<-woken
	w.do("POST", first+"/redrive", "").problem(t, 409, "conflict")
	w.store.change("J20260102_000001", func(j *export.Job) { j.Status, j.Pending, j.Failed, j.Cancelled, j.Total = export.Failed, 0, 1, 2, 3 })
	a := w.do("POST", first+"/redrive", "")
	if body := a.json(t); a.StatusCode != 202 || body["redriven"] != 3. || body["jobId"] != "J20260102_000001" || a.Header.Get("Location") != first {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	<-woken
	if j := w.do("GET", first, "").json(t); j["status"] != "IN_PROGRESS" || j["pending"] != 3. {
		t.Errorf("%v", j)
	}
	w.do("POST", first+"/redrive", "").problem(t, 409, "conflict")
}

func TestOrdersReachOnlyJobsOfTheCaller(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	for _, order := range []string{"/cancel", "/redrive"} {
		w.do("POST", first+order, "").problem(t, 401, "unauthorized")
		w.do("POST", first+order, "", as("t2")...).problem(t, 404, "not-found")
		w.do("POST", "/jobs/x"+order, "", as("op")...).problem(t, 404, "not-found")
		w.do("POST", first+order, "", append(as("t1"), "Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site")...).problem(t, 403, "forbidden")
	}
	if a := w.do("POST", first+"/cancel", "", as("op")...); a.StatusCode != 202 {
		t.Errorf("operator: %d", a.StatusCode)
	}
}
