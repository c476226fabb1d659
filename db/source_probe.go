package db

import (
	"context"

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
