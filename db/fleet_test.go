package db_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/export"
)

func TestTheLiveFleetIsListedWithItsChunks(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	if workers, err := s.Workers(t.Context()); err != nil || len(workers) != 0 {
		t.Errorf("%v %v", workers, err)
	}
	_, refs := submit(t, s, submission(3))
	c := claim(t, s, refs[1])
	exec(t, pool, `insert into worker (worker_id, host, version, concurrency, heartbeat_at) values ('dead', 'h', 'v', 1, now() - interval '31 s')`)
	must(t, s.Heartbeat(t.Context(), "host-1", "1.2", 8, 1))
	workers, err := s.Workers(t.Context())
	if err != nil || len(workers) != 1 {
		t.Fatal(workers, err)
	}
	w := workers[0]
	if w.ID != s.Worker || w.Host != "host-1" || w.Version != "1.2" || w.Concurrency != 8 || w.InFlight != 1 || w.StartedAt.IsZero() || w.HeartbeatAt.IsZero() {
		t.Errorf("%+v", w)
	}
	if diff := cmp.Diff([]export.WorkerChunk{{JobID: c.JobID, ChunkKey: c.ChunkKey(), StartedAt: c.StartedAt}}, w.Chunks); diff != "" {
		t.Error(diff)
	}
}

func TestJobsToRedriveArePickedByTheFilter(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	failed, refs := submit(t, s, submission(3))
	must(t, s.DeadLetter(t.Context(), claim(t, s, refs[0]), broken))
	end(t, s, failed)
	cancelled, _ := submit(t, s, submission(2, func(r *export.SubmitRequest) { r.Tenant, r.Items[0].Key = "u", "L" }))
	must(t, s.Cancel(t.Context(), "", cancelled))
	end(t, s, cancelled)
	ending, _ := submit(t, s, submission(2))
	must(t, s.Cancel(t.Context(), "", ending))
	whole, refs := submit(t, s, submission(1)) // cancelled too late: there is nothing to re-drive
	c := claim(t, s, refs[0])
	must(t, s.Cancel(t.Context(), "", whole))
	must(t, s.Done(t.Context(), c, file(c), false))
	end(t, s, whole)
	submit(t, s, submission(1))
	exec(t, pool, `update job set created_at = '2020-01-01' where job_id = $1`, failed)

	f, k := export.Redrivable{JobID: failed, Chunks: 3}, export.Redrivable{JobID: cancelled, Chunks: 2}
	border := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		filter export.RedriveFilter
		limit  int
		want   []export.Redrivable
	}{
		{export.RedriveFilter{}, 9, []export.Redrivable{f, k}}, {export.RedriveFilter{}, 1, []export.Redrivable{f}},
		{export.RedriveFilter{JobFilter: export.JobFilter{Tenant: "u"}}, 9, []export.Redrivable{k}},
		{export.RedriveFilter{JobFilter: export.JobFilter{Status: export.Failed}}, 9, []export.Redrivable{f}},
		{export.RedriveFilter{JobFilter: export.JobFilter{Status: export.Completed}}, 9, []export.Redrivable{}},
		{export.RedriveFilter{JobFilter: export.JobFilter{Key: "L"}}, 9, []export.Redrivable{k}},
		{export.RedriveFilter{JobFilter: export.JobFilter{To: border}}, 9, []export.Redrivable{f}},
		{export.RedriveFilter{JobFilter: export.JobFilter{From: border}, ErrorCode: broken.Code}, 9, []export.Redrivable{}},
		{export.RedriveFilter{JobFilter: export.JobFilter{Key: "K"}, ErrorCode: broken.Code}, 9, []export.Redrivable{f}},
	} {
		got, err := s.Redrivable(t.Context(), c.filter, c.limit)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v %s", c.filter, err, diff)
		}
	}
}
