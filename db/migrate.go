package db

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"exportd/migrations"
)

// Migrate applies the migrations that are missing, one process of a fleet at a time.
func Migrate(ctx context.Context, url string) error {
	return withMigrations(url, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Migration is one migration and whether it was applied.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}

// Migrations lists the migrations of this binary.
func Migrations(ctx context.Context, url string) (list []Migration, err error) {
	err = withMigrations(url, func(p *goose.Provider) error {
		status, err := p.Status(ctx)
		for _, m := range status {
			list = append(list, Migration{m.Source.Version, m.Source.Path, m.State == goose.StateApplied, m.AppliedAt})
		}
		return err
	})
	return list, err
}

func withMigrations(url string, do func(*goose.Provider) error) error {
	cc, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	// Nothing is kept in the session, so that a pooler may stand between; times come as text.
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.RuntimeParams["datestyle"], cc.RuntimeParams["timezone"] = "ISO", "UTC"
	var conn *sql.DB = stdlib.OpenDB(*cc)
	defer conn.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, conn, migrations.FS, goose.WithLocker(&oneAtATime{}))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return do(p)
}

// patience is how long to wait for another process that migrates.
const patience = 5 * time.Minute

// oneAtATime is goose's advisory lock, which binaries before this one take for their session. Here a transaction holds it: behind a pooler a session is somebody else's after
// each statement, and its lock would be left there.
type oneAtATime struct{ tx *sql.Tx }

func (l *oneAtATime) Lock(ctx context.Context, conn *sql.DB) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("another process has been migrating for %s", patience))
	defer cancel()
	for {
		locked, err := l.try(ctx, conn)
		if err != nil || locked {
			return err
		}
		select { // without a session, which the other may need
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second / 4):
		}
	}
}

func (l *oneAtATime) try(ctx context.Context, conn *sql.DB) (locked bool, err error) {
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return false, err
	}
	// It sits idle while the migrations run beside it.
	err = tx.QueryRowContext(ctx, `select pg_try_advisory_xact_lock($1) from set_config('idle_in_transaction_session_timeout', '0', true)`, lock.DefaultLockID).Scan(&locked)
	if err != nil || !locked {
		_ = tx.Rollback() // there is nothing in it
		return false, err
	}
	l.tx = tx
	return true, nil
}

func (l *oneAtATime) Unlock(context.Context, *sql.DB) error { return l.tx.Rollback() }
