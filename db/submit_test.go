package db_test

import (
	"testing"

	"exportd/export"
)

// A statement has at most 65 535 parameters.
func TestAJobOfMoreChunksThanAStatementHasParametersIsStoredWhole(t *testing.T) {
	t.Parallel()
	s := setup(t)
	id, _ := submit(t, s, submission(73_200, func(r *export.SubmitRequest) { r.IdempotencyKey = "k" }))
	var chunks, debts int
	must(t, sessions(t, s).QueryRow(t.Context(), `select (select count(*) from job_chunk where job_id = $1), (select count(*) from dispatch where job_id = $1)`, id).Scan(&chunks, &debts))
	if j := job(t, s, id); chunks != 73_200 || debts != chunks || j.Total != chunks {
		t.Errorf("%d chunks, %d debts; %+v", chunks, debts, j)
	}
}
