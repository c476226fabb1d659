package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

func (s *Store) InTx(ctx context.Context, do func(pgx.Tx) error) error { return s.inTx(ctx, do) }
