package e2e

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exportd/api/apitest"
	"exportd/e2e/stack"
)

// tokensFile lets in the submitters victim and attacker and the operator boss, whose tokens are their names.
func tokensFile(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for _, who := range []string{"victim:submitter", "attacker:submitter", "boss:operator"} {
		token, _, _ := strings.Cut(who, ":")
		fmt.Fprintf(&lines, "%s:%x\n", who, sha256.Sum256([]byte(token)))
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// contents are all rows of the tables that a request may write, in a form that can be compared.
func (w *world) contents() map[string]string {
	w.t.Helper()
	contents := map[string]string{}
	for _, table := range []string{"job", "job_chunk", "dispatch", "outbox", "chunk_attempt", "file_cache"} {
		var rows string
		if err := w.conn().QueryRow(w.t.Context(), `select coalesce(string_agg(t::text, E'\n' order by t::text), '') from `+table+` t`).Scan(&rows); err != nil {
			w.t.Fatal(err)
		}
		contents[table] = rows
	}
	return contents
}

func TestHostileRequestsStoreNothingAndSeeNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI("EXPORTD_TOKENS_FILE="+tokensFile(t), webhookSecret) // callbacks are taken, as everything else
	as := func(token string) *world {
		other := *w
		other.client.Token = token
		return &other
	}
	victim, attacker := as("victim"), as("attacker")
	consumer := w.startConsumer()
	const secret = "OF_THE_VICTIM"
	theirs := victim.ended(victim.submit(stack.Submission{OnFailure: "CONTINUE", Items: items("ROWS_1 "+secret, "DIV_1 "+secret)}), "FAILED")
	victim.completed(stack.Submission{Items: items("ROWS_2 " + secret)})
	mine := attacker.completed(stack.Submission{Items: items("ROWS_1")})
	attacker.completed(stack.Submission{Items: items("ROWS_2")})
	w.eventually("notices are sent", func() bool { return w.number(`select count(*) from outbox`) == 0 })
	w.kill(consumer)
	before := w.contents()
	if !strings.Contains(before["job"], mine.JobID) || before["job_chunk"] == "" {
		t.Fatalf("nothing to compare: %v", before)
	}

	attacks := w.contract.Attacks(map[string]string{"jobId": mine.JobID, "chunkKey": "key=ROWS_1:date=20200131"})
	foreign := w.foreign(map[string]string{"jobId": theirs.JobID, "chunkKey": "key=ROWS_1 " + secret + ":date=20200131"})
	if len(attacks) < 2500 || len(foreign) < 8 {
		t.Errorf("%d attacks, %d of them on the victim", len(attacks), len(foreign))
	}
	attacks = append(attacks, foreign...)
	for _, cursor := range victim.cursors(theirs) {
		for _, path := range []string{"/jobs", "/jobs/" + mine.JobID + "/chunks", "/jobs/" + theirs.JobID + "/chunks"} {
			attacks = append(attacks, apitest.Attack{Method: http.MethodGet, Target: path + "?cursor=" + cursor})
		}
	}
	addr := strings.TrimPrefix(api.URL, "http://")
	faults := w.contract.Storm(attacks, addr, func(a apitest.Attack, body []byte) error {
		for _, word := range []string{secret, theirs.JobID} {
			if strings.Contains(string(body), word) {
				return fmt.Errorf("%s: %s is seen: %.500s", a, word, body)
			}
		}
		return nil
	}, "Authorization: Bearer attacker")
	faults = append(faults, w.contract.Storm(w.contract.Attacks(map[string]string{"jobId": mine.JobID, "chunkKey": "key=ROWS_1:date=20200131"}), addr, nil, "Authorization: Bearer boss")...)
	for _, fault := range faults {
		t.Error(fault)
	}
	after := w.contents()
	for _, table := range slices.Sorted(maps.Keys(before)) {
		if before[table] != after[table] {
			t.Errorf("%s was\n%s\nand is\n%s", table, before[table], after[table])
		}
	}
	w.ready(api)
}

// foreign are the calls that name something of a job, on one of another tenant.
func (w *world) foreign(of map[string]string) (attacks []apitest.Attack) {
	for _, op := range w.contract.Operations {
		if target := op.At(of); target != op.Path {
			attacks = append(attacks, apitest.Attack{Method: op.Method, Target: target, Body: string(op.Example), Refused: true})
		}
	}
	return attacks
}

// cursors are those that its lists gave a tenant, and broken ones.
func (w *world) cursors(job stack.Job) (cursors []string) {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	for _, list := range []string{"/jobs?limit=1", "/jobs/" + job.JobID + "/chunks?limit=1"} {
		page, err := w.client.List(ctx, list)
		if err != nil || page.NextCursor == "" {
			w.t.Fatalf("%s: %+v %v", list, page, err)
		}
		cursors = append(cursors, page.NextCursor, page.NextCursor+"A", page.NextCursor[1:])
	}
	return cursors
}
