package e2e

import (
	"strings"
	"testing"

	"exportd/db/dbtest"
	"exportd/e2e/stack"
)

// Everything, from the first migration on, with PgBouncer in transaction mode before the truth and nothing said about it: two server sessions for an api and two consumers.
func TestTheWholeSystemWorksThroughATransactionModePooler(t *testing.T) {
	t.Parallel()
	w := setup(t, own{empty: true})
	direct := w.Database
	w.Settings = append(w.Settings, "EXPORTD_SOURCE_URL="+direct, "EXPORTD_DATABASE_URL="+dbtest.Pooler(t, direct))
	for range 2 {
		if code, output := w.run(nil, "migrate"); code != 0 {
			t.Fatalf("code %d: %s", code, output)
		}
	}
	if err := stack.CreateSource(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	if code, output := w.run(nil, "doctor"); code != 0 || !strings.Contains(output, "a pooler is in front of the database") {
		t.Errorf("doctor: code %d, %s", code, output)
	}
	w.startAPI()
	w.startConsumer()
	victim := w.startConsumer()
	var keys []string
	for _, n := range []string{"ROWS_1", "ROWS_10", "EMPTY", "ROWS_1000"} {
		for _, tail := range []string{" a", " b", " c", " d", " e"} {
			keys = append(keys, n+tail)
		}
	}
	job := w.completed(stack.Submission{Items: items(keys...)})
	if job.Done != len(keys) {
		t.Errorf("%+v", job)
	}
	failing := w.ended(w.submit(stack.Submission{OnFailure: "CONTINUE", Items: items("DIV_1", "ROWS_1")}), "FAILED")
	w.closeGate(1)
	held := w.submit(stack.Submission{Items: items("GATE_1", "GATE_1 b", "GATE_1 c", "GATE_1 d")})
	w.waitFor(held, func(j stack.Job) bool { return j.Running == j.Total })
	w.kill(victim)
	if code, output := w.run([]string{"EXPORTD_URL=" + w.api.URL}, "cancel", held.JobID); code != 0 {
		t.Errorf("code %d: %s", code, output)
	}
	w.ended(held, "CANCELLED")
	if code, output := w.run([]string{"EXPORTD_URL=" + w.api.URL}, "redrive", failing.JobID); code != 0 {
		t.Errorf("code %d: %s", code, output)
	}
	w.ended(failing, "FAILED")
	for _, p := range w.Processes() {
		for _, sign := range []string{"prepared statement", "SQLSTATE 26000", "SQLSTATE 42P05"} {
			if strings.Contains(p.Log(), sign) {
				t.Errorf("%s has met %q", p.Name, sign)
			}
		}
	}
	w.checkInvariants()
}
