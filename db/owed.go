package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// owedChannel is where consumers that work from the database hear of new debts. It only saves them waiting for their next look: notifications may be lost, as
// through a pooler in transaction mode they all are.
const owedChannel = "exportd_owed"

// NotifyOwed tells consumers of new debts, once for each time that owed delivers, until ctx ends. It is no part of the transactions that write debts:
// PostgreSQL commits those that notify one after the other.
func (s *Store) NotifyOwed(ctx context.Context, owed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-owed:
		}
		bounded, cancel := context.WithTimeout(ctx, statementTimeout)
		if _, err := s.pool.Exec(bounded, "notify "+owedChannel); err != nil && ctx.Err() == nil {
			s.Log.Debug("tell of new debts", "error", err)
		}
		cancel()
	}
}

// ListenOwed calls heard for every notification, on a connection of its own, until ctx ends.
func (s *Store) ListenOwed(ctx context.Context, heard func()) {
	for n := 1; ctx.Err() == nil; n++ {
		began := time.Now()
		err := s.listenOwed(ctx, heard)
		if ctx.Err() != nil {
			return
		}
		s.Log.Debug("listen for new debts", "error", err)
		if time.Since(began) > time.Minute {
			n = 1
		}
		wait := time.NewTimer(export.Backoff(n, 100*time.Millisecond, 10*time.Second))
		select {
		case <-ctx.Done():
			wait.Stop()
		case <-wait.C:
		}
	}
}

func (s *Store) listenOwed(ctx context.Context, heard func()) error {
	c, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(brief) // nothing depends on how it ends
	}()
	if _, err := c.Exec(ctx, "listen "+owedChannel); err != nil {
		return err
	}
	for {
		if _, err := c.WaitForNotification(ctx); err != nil {
			return err
		}
		heard()
	}
}
