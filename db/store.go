package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sethvargo/go-retry"

	"exportd/export"
)

// Config of a Store.
type Config struct {
	URL  string // of the truth database
	Pool int    // most connections; 0 lets pgx decide
	// Worker is the name under which this process claims, unique per process start.
	Worker      string
	Lease       time.Duration // of a claim
	MaxAttempts int
	// RepublishAfter is how long a published debt may stay unclaimed before it is published again; doubled with every time.
	RepublishAfter time.Duration
	// Backlog is the most messages kept in the work queue; 0 is max(64, 2 × the fleet's concurrency).
	Backlog int
	// Parking says whether dead letters are announced on the parking queue. Without a broker there is none.
	Parking bool
	// BasePath is where object keys begin. Bucket and Function are part of a file's identity in file_cache.
	BasePath string
	Bucket   string
	Function string
	Log      *slog.Logger
}

// Store is the truth. It is safe for concurrent use.
type Store struct {
	Config
	pool      *pgxpool.Pool
	sessions  *sessionKeeping
	mostLooks int // of a page that is searched for a key
	// mostCounted is how many chunks are looked at for the activity.
	mostCounted int
	careful     bool // leave every claim and settlement to the statements that look closer

	front     front
	turns     group[turnAsk, turnAnswer]
	announces group[announceAsk, bool]
	releases  group[releaseAsk, bool]
}

// statementTimeout bounds every statement of the store: the longest is the submission of the largest job.
const statementTimeout = 30 * time.Second

// Open makes a Store. It does not connect: a database that is away at start is met by the first call.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	if cfg.Pool > 0 {
		pc.MaxConns = int32(cfg.Pool)
	}
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	// The last two for exec modes that read times as text. Poolers pass these three on.
	for name, value := range map[string]string{"application_name": "exportd", "datestyle": "ISO", "timezone": "UTC"} {
		if pc.ConnConfig.RuntimeParams[name] == "" {
			pc.ConnConfig.RuntimeParams[name] = value
		}
	}
	sessions := &sessionKeeping{chosen: strings.Contains(cfg.URL, "default_query_exec_mode")}
	pc.BeforeConnect, pc.AfterConnect, pc.PrepareConn = sessions.beforeConnect, planner, alive
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	s := &Store{Config: cfg, pool: pool, sessions: sessions, front: front{slow: slowLook}, mostLooks: mostLooks, mostCounted: mostCounted}
	s.turns.run, s.announces.run, s.releases.run = s.turnAll, s.announceAll, s.releaseAll
	return s, nil
}

// planner keeps to the indexes, and plans a statement once: a session would plan it anew five times before, and often while the tables are empty, when reading all
// of one looks cheapest; that plan it keeps until they are next analyzed. By statement, since poolers refuse these at start.
func planner(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, `set enable_seqscan = off; set plan_cache_mode = force_generic_plan; set jit = off`)
	return err
}

// Close closes all connections, waiting for those in use.
func (s *Store) Close() { s.pool.Close() }

// Ping says whether the database answers, has the tables, can be written to, and isolates transactions as the store needs it.
func (s *Store) Ping(ctx context.Context) error {
	var readOnly, migrated bool
	var isolation string
	err := s.pool.QueryRow(ctx, `select pg_is_in_recovery() or current_setting('transaction_read_only')::bool, to_regclass('worker') is not null and to_regclass('audit') is not null,
		current_setting('transaction_isolation')`).Scan(&readOnly, &migrated, &isolation)
	switch {
	case err != nil:
		return err
	case readOnly:
		return errors.New("the database is read-only: it is a replica, or a failover is under way")
	case isolation != "read committed": // statements that waited for a lock rely on seeing what was committed meanwhile
		return fmt.Errorf("default_transaction_isolation is %q for this role or database; it must be read committed", isolation)
	case !migrated:
		return errors.New("the database lacks tables of this version of exportd: run exportd migrate")
	}
	return nil
}

// again runs do, and runs it again when Postgres undid it for the sake of others: a deadlock or a serialization failure.
func again(ctx context.Context, do func(context.Context) error) error {
	backoff := retry.WithMaxRetries(5, retry.WithJitterPercent(50, retry.NewExponential(5*time.Millisecond)))
	return retry.Do(ctx, backoff, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		err := do(ctx)
		if code := sqlState(err); code == "40P01" || code == "40001" {
			return retry.RetryableError(err)
		}
		return err
	})
}

// begin makes the server end a transaction whose client has vanished without a word: its locks would hold up the job for hours, until TCP
// gives the peer up. A live client gives up before.
var begin = pgx.TxOptions{BeginQuery: fmt.Sprintf("begin; set local idle_in_transaction_session_timeout = %d", (statementTimeout + 10*time.Second).Milliseconds())}

// inTx runs do in one transaction, again when it was undone.
func (s *Store) inTx(ctx context.Context, do func(pgx.Tx) error) error {
	return again(ctx, func(ctx context.Context) error { return pgx.BeginTxFunc(ctx, s.pool, begin, do) })
}

// sqlState is the code that Postgres gave the error, or "".
func sqlState(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// away marks an error that tells of the way to the database, or that the database was told to stop (an administrator, a time limit of the role), as an outage of it, for
// callers who answer to somebody.
func away(err error) error {
	if err == nil || !connectionLost(err) && sqlState(err) != "57014" || errors.Is(err, context.Canceled) {
		return err
	}
	return &export.Failure{Class: export.Outage, Code: "DATABASE_AWAY", Dependency: "database", Err: err}
}

// connectionLost says whether err tells of the way to the database, or of its being a read-only replica for now, and not of the statement.
func connectionLost(err error) bool {
	code := sqlState(err)
	return code == "" || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || code == "53300" || code == "25006"
}
