package db_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestATransactionWhoseClientVanishedIsEndedByTheServer(t *testing.T) {
	s := setup(t)
	var limit time.Duration
	must(t, s.InTx(t.Context(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `select current_setting('idle_in_transaction_session_timeout')::interval`).Scan(&limit)
	}))
	// Longer than any statement of a live client takes, and not hours.
	if limit <= 30*time.Second || limit > time.Minute {
		t.Errorf("its locks are held for %s", limit)
	}
}
