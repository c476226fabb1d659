package db_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/db"
	"exportd/export"
)

// failing submits a job of three chunks for the tenant, of which the first becomes a dead letter and the second waits to be tried again.
func failing(t *testing.T, s *db.Store, tenant string) (string, []export.Ref) {
	t.Helper()
	id, refs := submit(t, s, submission(3, func(r *export.SubmitRequest) {
		r.Tenant, r.OnFailure, r.Items[0].Key = tenant, export.Continue, "K"+tenant
	}))
	must(t, s.DeadLetter(t.Context(), claim(t, s, refs[0]), &export.Failure{Class: export.Permanent, Code: "SQL_22012", Err: errors.New(strings.Repeat("division by zero ", 200))}))
	must(t, s.Retry(t.Context(), claim(t, s, refs[1]), &export.Failure{Class: export.Transient, Code: "SQL_P0001", Err: errors.New("not yet")}, time.Hour))
	return id, refs
}

func TestTheConsoleSeesWhatItsTenantMay(t *testing.T) {
	t.Parallel()
	s := setup(t)
	mine, refs := failing(t, s, "a")
	other, _ := failing(t, s, "b")
	done := claim(t, s, refs[2])
	must(t, s.Done(t.Context(), done, file(done), false))

	cells, err := s.Cells(t.Context(), "a", mine)
	must(t, err)
	want := []export.Cell{{Key: "Ka", Date: refs[0].Date, Status: export.DeadLetter}, {Key: "Ka", Date: refs[1].Date, Status: export.RetryWait}, {Key: "Ka", Date: refs[2].Date, Status: export.Done}}
	if diff := cmp.Diff(want, cells); diff != "" {
		t.Error(diff)
	}
	failures, err := s.Failures(t.Context(), "a", mine)
	must(t, err)
	if len(failures) != 2 || failures[0].Status != export.DeadLetter || failures[0].FailedAt == nil || failures[0].ErrorCode != "SQL_22012" || len(failures[0].Error) != 200+len("…") ||
		failures[1].Status != export.RetryWait || failures[1].FailedAt != nil || failures[1].Error != "not yet" || failures[1].JobStatus != export.InProgress || failures[1].Attempts != 1 {
		t.Errorf("got %+v", failures)
	}
	for call, err := range map[string]error{
		"cells":    second(s.Cells(t.Context(), "a", other)),
		"failures": second(s.Failures(t.Context(), "a", other)),
	} {
		if !errors.Is(err, export.ErrNotFound) {
			t.Errorf("%s of another tenant's job: %v", call, err)
		}
	}
	tenants, err := s.Tenants(t.Context(), []string{mine, other, "J20200101_000001"})
	must(t, err)
	if diff := cmp.Diff(map[string]string{mine: "a", other: "b"}, tenants); diff != "" {
		t.Error(diff)
	}
	for tenant, want := range map[string]int{"": 2, "a": 1, "c": 0} {
		counts, err := s.Counts(t.Context(), tenant)
		must(t, err)
		activity, err := s.Activity(t.Context(), tenant)
		must(t, err)
		dead, more, err := s.DeadLetters(t.Context(), export.RedriveFilter{JobFilter: export.JobFilter{Tenant: tenant}})
		must(t, err)
		failed, finished := sums(activity)
		if counts.Jobs[export.InProgress] != want || counts.Dead != want || counts.More || len(dead) != want || more || failed != want || finished != min(want, 1) {
			t.Errorf("tenant %q: %+v, %+v, %v, activity %d failed %d done", tenant, counts, dead, more, failed, finished)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func sums(a export.Activity) (failed, done int) {
	for _, m := range a.Minutes {
		failed, done = failed+m.Failed, done+m.Done
	}
	return failed, done
}

func TestDeadLettersAreFoundByCodeKeyAndTheJobsDay(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first, _ := failing(t, s, "a")
	last, _ := failing(t, s, "b")
	exec(t, sessions(t, s), `update job set created_at = '2026-01-02' where job_id = $1`, first)
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		filter export.RedriveFilter
		want   []string
	}{
		"all, newest first": {export.RedriveFilter{}, []string{last, first}},
		"code":              {export.RedriveFilter{ErrorCode: "SQL_22012"}, []string{last, first}},
		"other code":        {export.RedriveFilter{ErrorCode: "SQL_P0001"}, nil}, // of a chunk that waits
		"key":               {export.RedriveFilter{JobFilter: export.JobFilter{Key: "Ka"}}, []string{first}},
		"from":              {export.RedriveFilter{JobFilter: export.JobFilter{From: day.AddDate(0, 0, 1)}}, []string{last}},
		"to":                {export.RedriveFilter{ErrorCode: "SQL_22012", JobFilter: export.JobFilter{To: day.AddDate(0, 0, 1), Tenant: "a", Status: export.InProgress}}, []string{first}},
	} {
		list, _, err := s.DeadLetters(t.Context(), c.filter)
		must(t, err)
		var got []string
		for _, f := range list {
			got = append(got, f.JobID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWhatIsTooMuchToCountIsSpreadOverTheTimeOfItsJob(t *testing.T) {
	t.Parallel()
	s := setup(t)
	id, refs := submit(t, s, submission(120))
	for _, ref := range refs {
		c := claim(t, s, ref)
		must(t, s.Done(t.Context(), c, file(c), false))
	}
	end(t, s, id)
	exec(t, sessions(t, s), `update job set started_at = date_trunc('minute', now()) - interval '30 min 10 s', completed_at = date_trunc('minute', now()) - interval '1 min' where job_id = $1`, id)
	s.MostCounted(119)
	a, err := s.Activity(t.Context(), "")
	must(t, err)
	_, done := sums(a)
	if len(a.Minutes) != 60 || a.Partial || done < 110 || done > 130 {
		t.Errorf("got %d minutes, partial %v, %d done", len(a.Minutes), a.Partial, done)
	}
	for i, m := range a.Minutes {
		if within := i >= 28 && i <= 58; (m.Done == 4) != within && m.Done != 0 {
			t.Errorf("minute %d of 60: %d done", i, m.Done)
		}
	}
	submit(t, s, submission(120))
	if a, err = s.Activity(t.Context(), ""); err != nil || !a.Partial {
		t.Errorf("an open job that is too large to count: partial %v, %v", a.Partial, err)
	}
}
