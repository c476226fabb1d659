package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Probe asks, without a chunk, whether the source answers. It uses a connection of its own: the pool may be full of queries that hang.
func (s *Source) Probe(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := pgconn.ConnectConfig(limited, &s.pool.Config().ConnConfig.Config)
	if err == nil {
		defer conn.Close(limited)
		_, err = conn.Exec(limited, "SELECT 1").ReadAll()
	}
	if err != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	return sourceFailure(err)
}

// Close ends the pool, waiting for the exports that run.
func (s *Source) Close() { s.pool.Close() }

// SourceStats is the state of the pool.
type SourceStats struct {
	Most, Open, InUse int
	Waits             int64         // how often an export waited for a connection
	Waited            time.Duration // and how long in all
}

// Stats is for metrics.
func (s *Source) Stats() SourceStats {
	st := s.pool.Stat()
	return SourceStats{
		Most: int(st.MaxConns()), Open: int(st.TotalConns()), InUse: int(st.AcquiredConns()),
		Waits: st.EmptyAcquireCount(), Waited: st.EmptyAcquireWaitTime(),
	}
}
