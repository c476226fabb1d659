package db

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// owedChannel is where consumers that work from the database hear of new debts. It only saves them waiting for their next look: notifications may be lost.
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

// errPooled: a pooler would leave the session listening to whoever has it next, for whom the notifications would heap up, or keep it for the listener alone.
var errPooled = errors.New("not through a pooler")

// ListenOwed calls heard for every notification, on a connection of its own, until ctx ends. Through a pooler it hears nothing and returns.
func (s *Store) ListenOwed(ctx context.Context, heard func()) {
	for n := 1; ctx.Err() == nil; n++ {
		began := time.Now()
		err := s.listenOwed(ctx, heard)
		if ctx.Err() != nil || errors.Is(err, errPooled) {
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
	cfg := s.pool.Config().ConnConfig
	if pooled, err := throughPooler(ctx, &cfg.Config); err != nil || pooled {
		return cmp.Or(err, errPooled)
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
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
