package api_test

import (
	"context"
	"sync/atomic"
	"testing"

	"exportd/api"
	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

func TestOperatorsSeeQueuesAndWorkers(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	withTokens := tenants(t)
	w := setup(t, func(c *api.Config) {
		withTokens(c)
		c.Queues = func(context.Context) []export.QueueDepth {
			asked.Add(1)
			return []export.QueueDepth{{Queue: "work", Known: true, Messages: 3, InFlight: 2, Consumers: 0}, {Queue: "parking", Reason: "no statistics", Messages: 9}}
		}
	})
	want := map[string]any{"queues": []any{
		map[string]any{"queue": "work", "known": true, "reason": nil, "messages": 3., "inFlight": 2., "consumers": 0.},
		map[string]any{"queue": "parking", "known": false, "reason": "no statistics", "messages": nil, "inFlight": nil, "consumers": nil},
	}}
	for range 3 {
		if diff := cmp.Diff(want, w.do("GET", "/queues", "", as("op")...).json(t)); diff != "" {
			t.Error(diff)
		}
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("the broker was asked %d times", n)
	}
	const at = "2026-01-02T10:00:00.000Z"
	want = map[string]any{"workers": []any{
		map[string]any{"workerId": "h/1/x", "host": "h", "version": "1", "concurrency": 8., "inFlight": 1., "startedAt": at, "lastHeartbeat": at,
			"chunks": []any{map[string]any{"jobId": "J", "chunkKey": "c", "startedAt": at}}},
		map[string]any{"workerId": "idle", "host": "", "version": "", "concurrency": 0., "inFlight": 0., "startedAt": at, "lastHeartbeat": at, "chunks": []any{}},
	}}
	if diff := cmp.Diff(want, w.do("GET", "/workers", "", as("op")...).json(t)); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"/queues", "/workers"} {
		w.do("GET", path, "", as("t1")...).problem(t, 403, "forbidden")
		w.do("GET", path, "").problem(t, 401, "unauthorized")
	}
	if a := setup(t, nil).do("GET", "/queues", ""); string(a.body) != `{"queues":[]}`+"\n" {
		t.Errorf("without a broker: %s", a.body)
	}
}

func TestRedriveByFilterReachesTheCallersJobs(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	for _, token := range []string{"t1", "t2", "t1", "t1"} {
		w.do("POST", "/jobs", oneChunk, as(token)...)
	}
	for n := 1; n <= 3; n++ {
		w.store.change(job(n), func(j *export.Job) { j.Status, j.Pending, j.Failed, j.Total = export.Failed, 0, n, n })
	}
	redrive := func(token, body string) map[string]any {
		t.Helper()
		a := w.do("POST", "/redrive", body, as(token)...)
		if a.StatusCode != 202 {
			t.Errorf("%s: %d %s", body, a.StatusCode, a.body)
		}
		return a.json(t)
	}
	answer := func(jobs, chunks float64, dry bool) map[string]any {
		return map[string]any{"jobs": jobs, "redriven": chunks, "dryRun": dry, "more": false}
	}
	for body, want := range map[string]map[string]any{
		`{"dryRun":true}`: answer(2, 4, true), `{"dryRun":true,"status":"FAILED","key":"ABC","from":"2026-01-02","to":"2026-01-02"}`: answer(2, 4, true),
		`{"key":"X"}`: answer(0, 0, false), `{"to":"2026-01-01"}`: answer(0, 0, false), `{"errorCode":"NONE"}`: answer(0, 0, false), `{"status":"CANCELLED"}`: answer(0, 0, false),
	} {
		if diff := cmp.Diff(want, redrive("t1", body)); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
	if diff := cmp.Diff(answer(2, 4, false), redrive("t1", `{}`)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(answer(1, 2, false), redrive("op", `{"dryRun":false}`)); diff != "" {
		t.Error(diff)
	}
	for _, s := range w.store.all() {
		if s.job.Status == export.Failed {
			t.Errorf("%s is still FAILED", s.job.ID)
		}
	}
}

func TestRedriveByFilterRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	for body, pointer := range map[string]string{
		``: "", `[]`: "", `null`: "", `{} {}`: "", `{"key":"` + "\xff" + `"}`: "", `{"status":"DONE"}`: "/status", `{"status":null}`: "/status", `{"key":""}`: "/key", `{"key":1}`: "/key",
		`{"from":"x"}`: "/from", `{"to":"20260230"}`: "/to", `{"dryRun":"yes"}`: "/dryRun", `{"dryRun":null}`: "/dryRun", `{"errorCode":"\u0000"}`: "/errorCode",
		`{"a/b":1}`: "/a~1b", `{"key":"a","key":"a"}`: "/key", `{"key":"\ud800"}`: "/key", `{"Status":"FAILED"}`: "/Status",
	} {
		p := w.do("POST", "/redrive", body).problem(t, 400, "validation")
		if len(p.Errors) != 1 || p.Errors[0].Pointer == nil || *p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	if p := w.do("POST", "/redrive", `{"status":"X","from":"x","y":1}`).problem(t, 400, "validation"); len(p.Errors) != 3 {
		t.Errorf("not every fault: %+v", p.Errors)
	}
}
