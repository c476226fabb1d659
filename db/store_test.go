package db_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

// setup gives the test a store of its own on an empty, migrated database.
func setup(t testing.TB, change ...func(*db.Config)) *db.Store {
	t.Helper()
	cfg := db.Config{
		URL:    dbtest.Template(t, "exportd", func(url string) error { return db.Migrate(context.Background(), url) }),
		Worker: "w-" + t.Name(), Lease: time.Minute, MaxAttempts: 3, RepublishAfter: time.Minute, Parking: true,
		BasePath: "b", Bucket: "bucket", Function: "export_rows", Log: slog.New(slog.DiscardHandler), Pool: 8,
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := db.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.SlowLook(time.Hour) // however busy the machine is, each look sees everything
	return s
}

// submission orders n chunks of the key K, one a day from 2020-01-01 on.
func submission(n int, change ...func(*export.SubmitRequest)) export.SubmitRequest {
	r := export.SubmitRequest{Tenant: "t", RequestID: "r-1", Submission: export.Submission{
		Compression: export.None, OnFailure: export.FailFast, Reuse: true, Priority: 4, Items: []export.Item{{Key: "K"}},
	}}
	for i := range n {
		r.Items[0].Dates = append(r.Items[0].Dates, export.Date(20200101).AddDays(i))
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func submit(t *testing.T, s *db.Store, r export.SubmitRequest) (string, []export.Ref) {
	t.Helper()
	job, _, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return job.ID, r.Refs(job.ID)
}

func claim(t *testing.T, s *db.Store, ref export.Ref) *export.Claim {
	t.Helper()
	c, refusal, err := s.Claim(t.Context(), ref, uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		t.Fatalf("claim of %s refused: %s", ref, refusal)
	}
	return c
}

func file(c *export.Claim) export.File {
	return export.File{ObjectKey: export.ObjectKey("b", c.Key, c.Date, export.None), Facts: facts, ETag: `"e-` + c.ID + `"`, ClaimID: c.ID, ClaimStartedAt: c.StartedAt}
}

var facts = export.Facts{Rows: 3, Bytes: 30, SHA256: fmt.Sprintf("%064d", 7)}

func job(t *testing.T, s *db.Store, id string) export.Job {
	t.Helper()
	j, err := s.Job(t.Context(), "", id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// end ends the job if it is ready to.
func end(t *testing.T, s *db.Store, id string) *export.Ending {
	t.Helper()
	e, err := s.Pin(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if e != nil {
		if err := s.End(t.Context(), *e); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAJobGoesFromSubmissionToCompleted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := t.Context()
	id, refs := submit(t, s, submission(3))
	if !export.ValidJobID(id) {
		t.Fatalf("job id %q", id)
	}
	debts, err := s.LeaseDebts(ctx, 10)
	must(t, err)
	if len(debts) != 3 || debts[0].Ref != refs[0] || debts[2].Ref != refs[2] || debts[0].Attempt != 1 {
		t.Fatalf("debts %+v", debts)
	}
	must(t, s.ConfirmSent(ctx, debts))
	if again, err := s.LeaseDebts(ctx, 10); err != nil || len(again) != 0 {
		t.Fatalf("leased again: %v %v", again, err)
	}
	for i, ref := range refs {
		c := claim(t, s, ref)
		if c.Attempt != 1 || c.Previous != nil {
			t.Fatalf("claim %+v", c)
		}
		if j := job(t, s, id); j.Status != export.InProgress || j.Running != 1 || j.Done != i {
			t.Fatalf("job %+v", j)
		}
		must(t, s.Announce(ctx, c, file(c).ObjectKey, facts))
		must(t, s.Done(ctx, c, file(c), i == 2))
		must(t, s.Done(ctx, c, file(c), i == 2)) // the answer was lost: settling again is success
	}
	if e := end(t, s, id); e == nil || e.Outcome != export.Completed {
		t.Fatalf("ending %+v", e)
	}
	if e := end(t, s, id); e != nil {
		t.Fatalf("ended twice: %+v", e)
	}
	j := job(t, s, id)
	if j.Status != export.Completed || j.Done != 3 || j.FilesReused != 1 || j.FilesGenerated != 2 || j.RowCount != 9 || j.ByteCount != 90 || j.CompletedAt == nil {
		t.Fatalf("job %+v", j)
	}
}

func TestAClaimTellsOfTheFileThatIsRecordedUnderItsObjectKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, careful := range []bool{false, true} {
		s.Careful(careful)
		for _, c := range []export.Compression{export.None, export.Gzip, export.Zstd} {
			_, refs := submit(t, s, submission(1, func(r *export.SubmitRequest) { r.Compression = c }))
			mine := claim(t, s, refs[0])
			f := file(mine)
			f.ObjectKey = mine.ObjectKey
			if want := export.ObjectKey("b", "K", refs[0].Date, c); f.ObjectKey != want || mine.Recorded != nil && !careful {
				t.Fatalf("%+v, want the key %s, and nothing recorded of other compressions", mine, want)
			}
			must(t, s.Done(t.Context(), mine, f, false))
			if got := recorded(t, s, refs[0], c); got == nil || got.ObjectKey != f.ObjectKey || got.Facts != f.Facts || got.ETag != f.ETag || got.ClaimID != mine.ID || !got.ClaimStartedAt.Equal(mine.StartedAt) {
				t.Errorf("recorded %+v, want %+v", got, f)
			}
		}
	}
}

// recorded is what the claim of another job's chunk of the same key and date is told.
func recorded(t *testing.T, s *db.Store, of export.Ref, c export.Compression) *export.File {
	t.Helper()
	_, refs := submit(t, s, submission(0, func(r *export.SubmitRequest) {
		r.Compression, r.Items = c, []export.Item{{Key: of.Key, Dates: []export.Date{of.Date}}}
	}))
	return claim(t, s, refs[0]).Recorded
}

func TestAFailureWaitsAndThenIsOwedAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	ctx := t.Context()
	id, refs := submit(t, s, submission(1))
	c := claim(t, s, refs[0])
	why := &export.Failure{Code: "X", Err: errors.New("bro\x00ken \xff")}
	must(t, s.Retry(ctx, c, why, time.Hour))
	must(t, s.Retry(ctx, c, why, time.Hour))
	if j := job(t, s, id); j.Retrying != 1 {
		t.Fatalf("job %+v", j)
	}
	if _, refusal, err := s.Claim(ctx, refs[0], uuid.NewString()); err != nil || refusal != export.RefusedWaiting {
		t.Fatalf("claimed before it was due: %v %v", refusal, err)
	}
	if n := len(lease(t, s, 10)); n != 0 {
		t.Fatalf("leased %d debts before they were due", n)
	}
	exec(t, pool, `update job_chunk set next_retry_at = now()`)
	exec(t, pool, `update dispatch set due_at = now()`)
	debt := lease(t, s, 10)[0]
	if debt.Attempt != 2 {
		t.Fatalf("debt %+v", debt)
	}
	if err := s.Done(ctx, c, file(c), false); !errors.Is(err, export.ErrStale) {
		t.Fatalf("a settled claim was settled otherwise: %v", err)
	}
	c = claim(t, s, refs[0])
	if c.Attempt != 2 {
		t.Fatalf("claim %+v", c)
	}
	must(t, s.GiveBack(ctx, c, why, 0))
	if c = claim(t, s, refs[0]); c.Attempt != 2 {
		t.Fatalf("giving back spent an attempt: %+v", c)
	}
}

func TestADeadLetterFailsItsJobFast(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := t.Context()
	id, refs := submit(t, s, submission(4))
	c, other := claim(t, s, refs[1]), claim(t, s, refs[2])
	why := &export.Failure{Class: export.Permanent, Code: "SQL_42883", Err: errors.New("no such function")}
	must(t, s.DeadLetter(ctx, c, why))
	must(t, s.DeadLetter(ctx, c, why))
	ending, err := s.EndingJobs(ctx, []string{id})
	must(t, err)
	if len(ending) != 1 || end(t, s, id) != nil {
		t.Fatal("the job must be ending, and must not end while a chunk runs")
	}
	must(t, s.Retry(ctx, other, why, 0))
	if e := end(t, s, id); e == nil || e.Outcome != export.Failed {
		t.Fatalf("ending %+v", e)
	}
	j := job(t, s, id)
	if j.Status != export.Failed || j.Failed != 1 || j.Cancelled != 3 || j.ErrorMessage != "Chunk failed after 1 attempt: key=K date=2020-01-02: no such function" {
		t.Fatalf("job %+v", j)
	}
	parked, err := s.LeaseOutbox(ctx, export.OutboxParking, 10)
	must(t, err)
	if len(parked) != 1 || parked[0].Headers["chunkKey"] != refs[1].ChunkKey() {
		t.Fatalf("parked %+v", parked)
	}
	if debts, err := s.LeaseDebts(ctx, 10); err != nil || len(debts) != 0 {
		t.Fatalf("debts of a failed job: %v %v", debts, err)
	}
	n, err := s.Redrive(ctx, "t", id)
	if err != nil || n != 4 {
		t.Fatalf("re-drive: %d %v", n, err)
	}
	if c = claim(t, s, refs[1]); c.Attempt != 1 {
		t.Fatalf("claim after re-drive %+v", c)
	}
}

func eventually[T any](t *testing.T, try func() *T) *T {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if v := try(); v != nil {
			return v
		}
	}
	t.Fatal("did not happen within 20 s")
	return nil
}

func TestADebtThatReachedNoBrokerIsInLineAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	_, refs := submit(t, s, submission(2))
	first, err := s.LeaseDebts(t.Context(), 10)
	must(t, err)
	claim(t, s, refs[0]) // whose debt goes with it, and must not come back
	must(t, s.ReturnDebts(t.Context(), first))
	again, err := s.LeaseDebts(t.Context(), 10)
	must(t, err)
	if len(again) != 1 || again[0].Ref != refs[1] || again[0].Sends != 0 {
		t.Fatalf("leased again: %+v", again)
	}
}
