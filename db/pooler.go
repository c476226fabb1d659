package db

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sessionKeeping finds out whether sessions are a connection's own. A pooler in transaction mode (PgBouncer and its like) hands out another one for each transaction: what was
// prepared in one is not there in the next. The zero value does not know yet.
type sessionKeeping struct {
	chosen bool // by the URL, which then counts
	known  atomic.Pointer[bool]
}

// beforeConnect has connections through a pooler prepare nothing.
func (k *sessionKeeping) beforeConnect(ctx context.Context, cc *pgx.ConnConfig) error {
	if k.chosen {
		return nil
	}
	if k.known.Load() == nil {
		pooled, err := throughPooler(ctx, &cc.Config)
		if err != nil {
			return err
		}
		k.known.Store(&pooled)
	}
	if *k.known.Load() {
		cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return nil
}

// throughPooler makes a connection to see.
func throughPooler(ctx context.Context, cfg *pgconn.Config) (bool, error) {
	c, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer c.Close(ctx)
	return pooled(ctx, c)
}

// pooled says whether somebody stands between: else the process that greeted is the one that works.
func pooled(ctx context.Context, c *pgconn.PgConn) (bool, error) {
	results, err := c.Exec(ctx, `select pg_backend_pid()`).ReadAll()
	if err != nil {
		return false, err
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	if err != nil {
		return false, fmt.Errorf("ask for the backend's process: %w", err)
	}
	return uint32(pid) != c.PID(), nil
}
