package db_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/export"
)

// eachFilter is called with every combination of what jobs are listed by.
func eachFilter(tenant, key string, status export.JobStatus, from, to time.Time, do func(name string, f export.JobFilter)) {
	for n := range 32 {
		f, name := export.JobFilter{}, "all"
		if n&1 > 0 {
			f.Tenant, name = tenant, name+" tenant"
		}
		if n&2 > 0 {
			f.Status, name = status, name+" status"
		}
		if n&4 > 0 {
			f.Key, name = key, name+" key"
		}
		if n&8 > 0 {
			f.From, name = from, name+" from"
		}
		if n&16 > 0 {
			f.To, name = to, name+" to"
		}
		do(name, f)
	}
}

func TestEveryCombinationOfFiltersListsWhatMatchesPageByPage(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.MostLooks(11)
	pool := sessions(t, s)
	for i := range 96 {
		r := submission(1, func(r *export.SubmitRequest) {
			r.Tenant = []string{"t", "T", "tt", "a"}[i%4]
			r.Items[0].Key = []string{"K", "K1", "L"}[i%3]
		})
		id, _ := submit(t, s, r)
		// Three of an instant; states that lie around the one asked for, in the alphabet.
		exec(t, pool, `update job set created_at = timestamptz '2026-01-01' + $2::int * interval '1 s', status = (array['IN_PROGRESS', 'SUBMITTED', 'CANCELLING'])[1 + $3::int % 3] where job_id = $1`,
			id, i/12, i/2)
	}
	at := func(seconds int) time.Time { return time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC) }
	eachFilter("t", "K", export.InProgress, at(2), at(6), func(name string, f export.JobFilter) {
		rows, err := pool.Query(t.Context(), `select job_id from job j where ($1 = '' or tenant = $1) and ($2 = '' or status = $2)
			and ($3 = '' or exists (select from job_chunk c where c.job_id = j.job_id and c.key = $3))
			and ($4 or created_at >= $5) and ($6 or created_at < $7) order by created_at desc, job_id desc`,
			f.Tenant, f.Status, f.Key, f.From.IsZero(), f.From, f.To.IsZero(), f.To)
		must(t, err)
		want, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		if len(want) == 0 {
			t.Errorf("%s: nothing to find", name)
		}
		var got []string
		var after *export.Place
		for pages := 0; pages == 0 || after != nil; pages++ {
			jobs, next, err := s.Jobs(t.Context(), f, after, 4)
			must(t, err)
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			if after = next; pages > len(want)+10 {
				t.Fatalf("%s: it does not end", name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	})
}

var onJobs = regexp.MustCompile(`Scan (?:Backward )?(?:using|on) (\w+) on job j\w*\b|Bitmap Heap Scan on job\b`)

// Whatever the statistics say, a page is read from where it begins on the index of what it is asked for, and no further than it is full.
func TestPagesOfJobsAreReadFromTheIndexOfTheirFilter(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := sessions(t, s)
	for _, state := range []struct {
		name    string
		prepare func()
	}{
		{"new", func() {}},
		{"small", func() { through(t, s, 20); exec(t, conn, `analyze`) }},
		{"large", func() { generate(t, conn, 3000, 3) }},
	} {
		state.prepare()
		now := time.Now()
		eachFilter("t", "K", export.Failed, now, now, func(name string, f export.JobFilter) {
			for _, after := range []*export.Place{nil, {CreatedAt: now.Add(-time.Hour), JobID: "J20260101_000001"}} {
				p := plan(t, s, db.JobsSQL(f, after), db.ByIndex)
				index := "job_created"
				switch {
				case f.Tenant != "" && f.Status != "":
					index = "job_tenant_status_created"
				case f.Tenant != "":
					index = "job_tenant_created"
				case f.Status != "":
					index = "job_status_created"
				}
				fault := ""
				switch found := onJobs.FindAllStringSubmatch(p, -1); {
				case len(found) != 1 || found[0][1] != index:
					fault = fmt.Sprintf("is read from %v, not from %s", found, index)
				case strings.Contains(p, "Sort"):
					fault = "is sorted"
				case !strings.Contains(p, "One-Time Filter: (j.completed_at IS NULL)"):
					fault = "counts the chunks of ended jobs"
				case strings.Contains(p, "hashed"):
					fault = "reads all chunks for the key"
				}
				if fault != "" {
					t.Fatalf("%s, %s tables, cursor %v: %s:\n%s", name, state.name, after != nil, fault, p)
				}
			}
		})
	}
}

func TestTheFilesOfAJobAreThoseOfItsDoneChunks(t *testing.T) {
	t.Parallel()
	s := setup(t)
	id, refs := submit(t, s, submission(4))
	for i, reused := range map[int]bool{0: false, 2: true, 3: false} {
		c := claim(t, s, refs[i])
		must(t, s.Done(t.Context(), c, file(c), reused))
	}
	if _, err := s.Files(t.Context(), "u", id, 10); !errors.Is(err, export.ErrNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	files, err := s.Files(t.Context(), "t", id, 10)
	must(t, err)
	var want []export.ChunkFile
	for _, i := range []int{0, 2, 3} {
		c, _, err := s.Chunk(t.Context(), "t", id, refs[i].ChunkKey())
		must(t, err)
		want = append(want, export.ChunkFile{Key: c.Key, Date: c.Date, ObjectKey: c.ObjectKey, Facts: facts, Reused: i == 2})
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Error(diff)
	}
	if files, err = s.Files(t.Context(), "", id, 2); err != nil || !cmp.Equal(want[:2], files) {
		t.Errorf("two of them: %v %v", files, err)
	}
}
