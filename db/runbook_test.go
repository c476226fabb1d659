package db_test

import (
	"os"
	"regexp"
	"testing"
)

// Whoever follows a runbook at night does not want to repair its SQL first.
func TestTheQueriesOfTheRunbooksRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	conn := session(t, setup(t).URL)
	queries := regexp.MustCompile(`psql \$\w+ -c (?:"([^"]+)"|'([^']+)')`).FindAllStringSubmatch(string(text), -1)
	if len(queries) < 10 {
		t.Fatalf("only %d queries", len(queries))
	}
	for _, q := range queries {
		if _, err := conn.Exec(t.Context(), q[1]+q[2]); err != nil {
			t.Errorf("%s: %v", q[1]+q[2], err)
		}
	}
}
