package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// Workers lists the live fleet, with the chunks that each holds a claim of.
func (s *Store) Workers(ctx context.Context) ([]export.Worker, error) {
	var workers []export.Worker
	place := map[string]int{}
	var b pgx.Batch
	b.Queue(`select worker_id, host, version, concurrency, in_flight, started_at, heartbeat_at from worker where heartbeat_at > now() - $1::interval
		order by started_at, worker_id`, heartbeatFresh).Query(func(rows pgx.Rows) error {
		var w export.Worker
		_, err := pgx.ForEachRow(rows, []any{&w.ID, &w.Host, &w.Version, &w.Concurrency, &w.InFlight, &w.StartedAt, &w.HeartbeatAt}, func() error {
			place[w.ID] = len(workers)
			workers = append(workers, w)
			return nil
		})
		return err
	})
	b.Queue(`select lock_owner, job_id, chunk_key, started_at from job_chunk where status = 'RUNNING' and lock_owner is not null order by started_at, job_id, chunk_key`).
		Query(func(rows pgx.Rows) error {
			var owner string
			var c export.WorkerChunk
			_, err := pgx.ForEachRow(rows, []any{&owner, &c.JobID, &c.ChunkKey, &c.StartedAt}, func() error {
				if i, live := place[owner]; live {
					workers[i].Chunks = append(workers[i].Chunks, c)
				}
				return nil
			})
			return err
		})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, away(fmt.Errorf("list the workers: %w", err))
	}
	return workers, nil
}

// Redrivable lists up to limit ended jobs that the filter picks and that have chunks to re-drive, oldest first.
func (s *Store) Redrivable(ctx context.Context, f export.RedriveFilter, limit int) ([]export.Redrivable, error) {
	w := jobsWhere(f.JobFilter)
	w.conditions = append(w.conditions, `j.status in ('FAILED', 'CANCELLED')`, `j.failed + j.cancelled > 0`)
	if f.Key != "" {
		w.args = append(w.args, f.Key)
		w.conditions = append(w.conditions, hasChunk(len(w.args)))
	}
	if f.ErrorCode != "" {
		w.and(`exists (select from job_chunk k where k.job_id = j.job_id and k.status in ('DLQ', 'CANCELLED') and k.error_code = $%d offset 0)`, f.ErrorCode)
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`select j.job_id, j.failed + j.cancelled from job j where %s order by j.created_at, j.job_id limit %d`, w, limit), w.args...)
	if err != nil {
		return nil, away(fmt.Errorf("find the jobs to re-drive: %w", err))
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[export.Redrivable])
	if err != nil {
		return nil, away(fmt.Errorf("find the jobs to re-drive: %w", err))
	}
	return list, nil
}
