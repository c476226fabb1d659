package db_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"exportd/export"
)

func TestEndedJobsAreRemovedAfterTheirRetentionButNotBeforeTheirKey(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	ended := func(change ...func(*export.SubmitRequest)) (string, *export.Claim) {
		id, refs := submit(t, s, submission(2, change...))
		must(t, s.DeadLetter(t.Context(), claim(t, s, refs[0]), broken))
		end(t, s, id)
		return id, &export.Claim{ID: uuid.NewString(), Ref: refs[0]}
	}
	old, _ := ended()
	keyed, _ := ended(func(r *export.SubmitRequest) { r.IdempotencyKey = "young" })
	expired, _ := ended(func(r *export.SubmitRequest) { r.IdempotencyKey = "old" })
	open, _ := submit(t, s, submission(1))
	exec(t, pool, `update job set completed_at = completed_at - interval '8 days', created_at = created_at - case when job_id = $1 then interval '6 days' else interval '8 days' end`, keyed)
	fresh, late := ended()

	if more, err := s.Expire(t.Context(), 0); err != nil || more {
		t.Fatalf("expire without a retention: %v %v", more, err)
	}
	list := func() map[string]bool {
		rows, err := pool.Query(t.Context(), `select job_id from job`)
		must(t, err)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		left := map[string]bool{}
		for _, id := range ids {
			left[id] = true
		}
		return left
	}
	if left := list(); len(left) != 5 {
		t.Fatalf("without a retention jobs were removed; left %v", left)
	}
	if more, err := s.Expire(t.Context(), 24*time.Hour); err != nil || more {
		t.Fatalf("expire: %v %v", more, err)
	}
	if left := list(); left[old] || left[expired] || !left[keyed] || !left[open] || !left[fresh] {
		t.Fatalf("left %v", left)
	}
	checkInvariants(t, pool)
	if _, refusal, err := s.Claim(t.Context(), export.Ref{JobID: old, Key: "K", Date: 20200101}, uuid.NewString()); err != nil || refusal != export.RefusedUnknown {
		t.Fatalf("claim of a removed chunk: %q %v", refusal, err)
	}
	late.JobID = old
	for what, err := range map[string]error{
		"dead-letter": s.DeadLetter(t.Context(), late, broken), "done": s.Done(t.Context(), late, file(late), false), "retry": s.Retry(t.Context(), late, broken, 0),
	} {
		if err != export.ErrStale {
			t.Errorf("%s of a removed chunk: %v", what, err)
		}
	}
}

// With an index on a column that renewals and announcements change, none of them would be a HOT update.
func TestRenewalsTouchNoIndex(t *testing.T) {
	t.Parallel()
	rows, err := sessions(t, setup(t)).Query(t.Context(), `
		select indexdef from pg_indexes where tablename = 'job_chunk' and indexdef ~ 'lease_until|upload_id|s3_object_key|row_count|byte_count|sha256'`)
	must(t, err)
	if defs, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(defs) > 0 {
		t.Fatal(defs, err)
	}
}
