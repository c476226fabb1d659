package db_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"exportd/db"
)

var (
	scan   = regexp.MustCompile(`.*(?:Seq Scan on|Index Scan on|Index Scan using|Index Only Scan using) (?:job_chunk|dispatch|file_cache)\w*.*(?:\n.*)?`)
	lookUp = regexp.MustCompile(`_pkey.*\n +Index Cond: .*(job_id = .*chunk_key = |bucket = .*object_key = )`)
)

// A session plans each statement once, most often when the tables are empty, and keeps the plan until they are analyzed: it must be good for full ones too.
func TestPlansMadeForEmptyTablesLookChunksUp(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := sessions(t, s)
	for state, prepare := range map[string]func(){
		"new":   func() {},
		"small": func() { through(t, s, 20); exec(t, conn, `analyze`) },
	} {
		prepare()
		for name, sql := range db.ChunkStatements {
			p := plan(t, s, sql)
			for _, found := range scan.FindAllString(p, -1) {
				if !lookUp.MatchString(found) {
					t.Errorf("%s with %s tables:\n%s\nin\n%s", name, state, found, p)
				}
			}
		}
	}
}

// The look for what the broker has had too long goes by the index of what is due, however many debts there are.
func TestTheLookForAgedDebtsReadsNoDebtThatIsInLine(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := sessions(t, s)
	for _, tables := range []string{"empty", "small"} {
		p := plan(t, s, db.AgedStatement+" -- "+tables)
		if !strings.Contains(p, "Tid Scan on dispatch") || !strings.Contains(p, "dispatch_due") || strings.Contains(p, "dispatch_pkey") {
			t.Errorf("%s", p)
		}
		submit(t, s, submission(200))
		exec(t, conn, `analyze`)
	}
}

// plan explains the statement, in a transaction that began with others.
func plan(t *testing.T, s *db.Store, sql string, before ...string) (text string) {
	t.Helper()
	must(t, s.InTx(t.Context(), func(tx pgx.Tx) error {
		for _, b := range before {
			if _, err := tx.Exec(t.Context(), b); err != nil {
				return err
			}
		}
		d, err := tx.Prepare(t.Context(), "planned", sql)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(t.Context(), `set local plan_cache_mode = force_generic_plan`); err != nil {
			return err
		}
		execute := "execute planned"
		if n := len(d.ParamOIDs); n > 0 {
			execute += "(" + strings.Repeat("null,", n-1) + "null)"
		}
		rows, err := tx.Query(t.Context(), "explain "+execute)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		text = strings.Join(lines, "\n")
		_, err = tx.Exec(t.Context(), "deallocate planned")
		return err
	}))
	return text
}
