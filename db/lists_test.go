package db_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
	"exportd/export"
)

func jobIDs(t *testing.T, s *db.Store, f export.JobFilter) []string {
	t.Helper()
	jobs, next, err := s.Jobs(t.Context(), f, nil, 100)
	if err != nil || next != nil {
		t.Fatalf("%+v: %v %v", f, next, err)
	}
	ids := []string{}
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

func TestListsOfJobsNeitherSkipNorRepeatWhileStatesChange(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	var want []string
	for range 7 {
		id, _ := submit(t, s, submission(2))
		want = append(want, id)
	}
	exec(t, pool, `update job set created_at = '2026-01-02' where job_id = any($1)`, want[2:5]) // the same instant: the ID decides
	exec(t, pool, `update job set created_at = '2026-01-01' where job_id = any($1)`, want[:2])
	slices.Reverse(want)
	var seen []string
	var after *export.Place
	for {
		jobs, next, err := s.Jobs(t.Context(), export.JobFilter{Tenant: "t"}, after, 2)
		must(t, err)
		for _, j := range jobs {
			seen = append(seen, j.ID)
			one := job(t, s, j.ID)
			if diff := cmp.Diff(one, j); diff != "" {
				t.Errorf("the list shows another job: %s", diff)
			}
			must(t, s.Cancel(t.Context(), "", j.ID))
			end(t, s, j.ID)
		}
		submit(t, s, submission(1))
		if after = next; after == nil {
			break
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

func TestJobsAreFilteredByTenantStateKeyAndTime(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	old, _ := submit(t, s, submission(1))
	other, _ := submit(t, s, submission(1, func(r *export.SubmitRequest) { r.Tenant = "u" }))
	keyed, _ := submit(t, s, submission(1, func(r *export.SubmitRequest) { r.Items[0].Key = "K:date=20200101" }))
	must(t, s.Cancel(t.Context(), "", old))
	end(t, s, old)
	exec(t, pool, `update job set created_at = '2020-01-01' where job_id = $1`, old)
	border := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		f    export.JobFilter
		want []string
	}{
		{export.JobFilter{}, []string{keyed, other, old}}, {export.JobFilter{Tenant: "u"}, []string{other}}, {export.JobFilter{Tenant: "v"}, []string{}},
		{export.JobFilter{Status: export.Cancelled}, []string{old}}, {export.JobFilter{Key: "K"}, []string{other, old}},
		{export.JobFilter{Key: "K:date=20200101", Tenant: "t", Status: export.Submitted}, []string{keyed}}, {export.JobFilter{Key: "K:"}, []string{}},
		{export.JobFilter{From: border, To: border.Add(1000)}, []string{old}}, {export.JobFilter{To: border}, []string{}}, {export.JobFilter{From: border.Add(1000)}, []string{keyed, other}},
	} {
		if diff := cmp.Diff(c.want, jobIDs(t, s, c.f)); diff != "" {
			t.Errorf("%+v: %s", c.f, diff)
		}
	}
}

func TestASearchForAKeyGoesOnWhereItsPageStoppedLooking(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	first, _ := submit(t, s, submission(1, func(r *export.SubmitRequest) { r.Items[0].Key = "RARE" }))
	generate(t, pool, 300, 1)
	f := export.JobFilter{Key: "RARE"}
	jobs, next, err := s.Jobs(t.Context(), f, nil, 5)
	if err != nil || len(jobs) != 0 || next == nil {
		t.Fatalf("first page: %d jobs, next %v, %v", len(jobs), next, err)
	}
	jobs, next, err = s.Jobs(t.Context(), f, next, 5)
	if err != nil || len(jobs) != 1 || jobs[0].ID != first || next != nil {
		t.Errorf("second page: %v, next %v, %v", jobs, next, err)
	}
}

// The jobs searched for stay as they are; all around them others come, and enter and leave the filter.
func TestASearchForAKeySkipsAndRepeatsNothingWhileStatesChange(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.MostLooks(10)
	pool := sessions(t, s)
	var want []string
	for i := range 120 {
		rare := i%12 == 5
		id, _ := submit(t, s, submission(1, func(r *export.SubmitRequest) {
			if rare {
				r.Items[0].Key = "RARE"
			}
		}))
		if rare {
			want = append([]string{id}, want...)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for range 2 {
		writers.Go(func() {
			for ctx.Err() == nil {
				_, err := pool.Exec(ctx, `update job set status = case status when 'SUBMITTED' then 'IN_PROGRESS' else 'SUBMITTED' end
					where job_id in (select job_id from job where not job_id = any($1) order by random() limit 5 for update skip locked)`, want)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	f := export.JobFilter{Key: "RARE", Status: export.Submitted}
	for range 100 {
		var got []string
		for after, pages := (*export.Place)(nil), 0; ; pages++ {
			jobs, next, err := s.Jobs(t.Context(), f, after, 3)
			must(t, err)
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			if next == nil {
				break
			}
			if after = next; pages > 100 {
				t.Fatal("it does not end")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestChunksAreListedWithWhatBecameOfTheirFiles(t *testing.T) {
	t.Parallel()
	s := setup(t)
	id, refs := submit(t, s, submission(4))
	if _, _, err := s.Chunks(t.Context(), "u", id, export.ChunkFilter{}, "", 10); !errors.Is(err, export.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	done := claim(t, s, refs[0])
	must(t, s.Done(t.Context(), done, file(done), false))
	must(t, s.Retry(t.Context(), claim(t, s, refs[1]), broken, time.Hour))
	list := func(f export.ChunkFilter) []export.ChunkView {
		chunks, more, err := s.Chunks(t.Context(), "t", id, f, "", 10)
		if err != nil || more {
			t.Fatal(more, err)
		}
		return chunks
	}
	all := list(export.ChunkFilter{})
	if len(all) != 4 || all[0].Facts != facts || all[0].ObjectKey != file(done).ObjectKey || all[0].Superseded || all[0].CompletedAt == nil || all[0].Attempts != 1 {
		t.Errorf("%+v", all)
	}
	if w := all[1]; w.Status != export.RetryWait || w.NextRetryAt == nil || w.ErrorCode != broken.Code || w.Ref != refs[1] {
		t.Errorf("%+v", w)
	}
	for _, c := range []struct {
		f    export.ChunkFilter
		want int
	}{{export.ChunkFilter{Status: export.Pending}, 2}, {export.ChunkFilter{Key: "K"}, 4}, {export.ChunkFilter{Key: "K", Status: export.Done}, 1}, {export.ChunkFilter{Key: "L"}, 0}} {
		if got := list(c.f); len(got) != c.want {
			t.Errorf("%+v: %d chunks", c.f, len(got))
		}
	}
	page, more, err := s.Chunks(t.Context(), "", id, export.ChunkFilter{}, all[1].ChunkKey(), 1)
	if err != nil || !more || len(page) != 1 || page[0].Ref != refs[2] {
		t.Errorf("second page: %v %v %v", page, more, err)
	}

	// Another job makes the first file anew; a third one takes it over as it is.
	_, later := submit(t, s, submission(1))
	again := claim(t, s, later[0])
	must(t, s.Done(t.Context(), again, file(again), false))
	reuser, third := submit(t, s, submission(1))
	must(t, s.Done(t.Context(), claim(t, s, third[0]), file(again), true))
	if c := list(export.ChunkFilter{})[0]; !c.Superseded || c.Facts != facts {
		t.Errorf("the first file: %+v", c)
	}
	for _, chunkOf := range []string{later[0].JobID, reuser} {
		if c, _, err := s.Chunk(t.Context(), "", chunkOf, later[0].ChunkKey()); err != nil || c.Superseded || c.Reused != (chunkOf == reuser) {
			t.Errorf("%+v %v", c, err)
		}
	}
}

func TestAChunkTellsOfAllItsAttempts(t *testing.T) {
	t.Parallel()
	s := setup(t)
	id, refs := submit(t, s, submission(1))
	must(t, s.GiveBack(t.Context(), claim(t, s, refs[0]), broken, 0))
	must(t, s.DeadLetter(t.Context(), claim(t, s, refs[0]), broken))
	end(t, s, id)
	if n, err := s.Redrive(t.Context(), "", id); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	outcomes := func() (list []string) {
		_, attempts, err := s.Chunk(t.Context(), "t", id, refs[0].ChunkKey())
		must(t, err)
		for _, a := range attempts {
			list = append(list, fmt.Sprintf("%d %s %s %v", a.Number, a.Outcome, a.ErrorCode, a.EndedAt != nil && a.StartedAt != nil && a.Worker == s.Worker))
		}
		return list
	}
	code := broken.Code
	want := []string{"1 GIVEN_BACK " + code + " true", "1 DLQ " + code + " true"}
	if diff := cmp.Diff(want, outcomes()); diff != "" {
		t.Errorf("re-driven: %s", diff)
	}
	c := claim(t, s, refs[0])
	if diff := cmp.Diff(append(want, "1 RUNNING  false"), outcomes()); diff != "" {
		t.Errorf("running: %s", diff)
	}
	must(t, s.Done(t.Context(), c, file(c), false))
	if diff := cmp.Diff(append(want, "1 DONE  true"), outcomes()); diff != "" {
		t.Errorf("done: %s", diff)
	}
	for _, name := range [][3]string{{"u", id, refs[0].ChunkKey()}, {"t", "J20200101_000001", refs[0].ChunkKey()}, {"t", id, "key=X:date=20200101"}} {
		if _, _, err := s.Chunk(t.Context(), name[0], name[1], name[2]); !errors.Is(err, export.ErrNotFound) {
			t.Errorf("%v: %v", name, err)
		}
	}
}

// generate fills the tables with ended jobs of n chunks each, of 100 tenants and 500 keys; every hundredth has failed.
func generate(t testing.TB, pool *pgxpool.Pool, jobs, chunks int) {
	t.Helper()
	exec(t, pool, `insert into job (job_id, tenant, status, outcome, pinned_at, request_hash, priority, on_failure, reuse, compression, total, done, failed, cancelled,
			files_reused, row_count, byte_count, created_at, completed_at)
		select 'J20260101_' || lpad((900000 + n)::text, 7, '0'), 'g' || n % 100, s, s, now(), '', 4, 'CONTINUE', true, 'NONE', $2::int,
			case when s = 'FAILED' then 0 else $2::int end, case when s = 'FAILED' then $2::int else 0 end, 0, 0, 1, 1, now() + n * interval '1 s', now() + n * interval '2 s'
		from generate_series(1, $1) n, lateral (select case when n % 100 = 7 then 'FAILED' else 'COMPLETED' end as s) x`, jobs, chunks)
	exec(t, pool, `insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, completed_at, s3_object_key, row_count, byte_count, sha256, etag, error_code)
		select job_id, 'key=G' || (n + i) % 500 || ':date=' || to_char(day, 'YYYYMMDD'), 'G' || (n + i) % 500, day, case when failed > 0 then 'DLQ' else 'DONE' end, 1, completed_at,
			case when failed = 0 then 'b/' || n || '/' || i end, 1, 1, case when failed = 0 then 'x' end, case when failed = 0 then '"e"' end, case when failed > 0 then 'SQL_22012' end
		from (select *, row_number() over (order by job_id) as n from job where tenant like 'g%') j, generate_series(1, $1) i, lateral (select date '2020-01-01' + i as day) d`, chunks)
	exec(t, pool, `analyze job, job_chunk`)
}
