package db

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// Bounds of what the console asks for: its pages are to come at once, whatever the tables hold.
const (
	mostCells    = 10_000
	mostFailures = 3_000
	mostDead     = 3_000  // newest dead letters looked at
	mostCounted  = 60_000 // chunks looked at for the activity
	mostOpen     = 2_000  // jobs
	mostEnded    = 5_000
	errorPreview = 200 // characters
)

// Cells are the chunks of a job by chunk key, at most 10 000.
func (s *Store) Cells(ctx context.Context, tenant, jobID string) ([]export.Cell, error) {
	if err := s.visible(ctx, tenant, jobID); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`select key, effective_date, status from job_chunk where job_id = $1 order by chunk_key limit %d`, mostCells), jobID)
	if err != nil {
		return nil, away(fmt.Errorf("read the cells: %w", err))
	}
	cells, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c export.Cell, err error) {
		var date time.Time
		err = row.Scan(&c.Key, &date, &c.Status)
		c.Date = export.DateOf(date)
		return c, err
	})
	return cells, away(err)
}

// Tenants says whose the jobs are.
func (s *Store) Tenants(ctx context.Context, jobIDs []string) (map[string]string, error) {
	rows, err := s.pool.Query(ctx, `select job_id, tenant from unnest((select $1::text[])) w(id) cross join lateral (select job_id, tenant from job where job_id = w.id offset 0) j`, jobIDs)
	if err != nil {
		return nil, away(fmt.Errorf("find the tenants: %w", err))
	}
	tenants := map[string]string{}
	var id, tenant string
	_, err = pgx.ForEachRow(rows, []any{&id, &tenant}, func() error { tenants[id] = tenant; return nil })
	return tenants, away(err)
}

const failedColumns = `c.job_id, c.key, c.effective_date, j.tenant, j.status, c.status, c.attempts, c.completed_at, coalesce(c.error_code, ''), coalesce(c.error_message, '')`

func scanFailed(row pgx.CollectableRow) (f export.FailedChunk, err error) {
	var date time.Time
	err = row.Scan(&f.JobID, &f.Key, &date, &f.Tenant, &f.JobStatus, &f.Status, &f.Attempts, &f.FailedAt, &f.ErrorCode, &f.Error)
	f.Date = export.DateOf(date)
	if utf8.RuneCountInString(f.Error) == errorPreview {
		f.Error += "…"
	}
	return f, err
}

// Failures are the chunks of a job that are dead-lettered or wait to be tried again, by chunk key, at most 3000.
func (s *Store) Failures(ctx context.Context, tenant, jobID string) ([]export.FailedChunk, error) {
	if err := s.visible(ctx, tenant, jobID); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`
		select %s from (select job_id, chunk_key, key, effective_date, status, attempts, completed_at, error_code, left(error_message, %d) as error_message from job_chunk
			where job_id = $1 and status in ('DLQ', 'RETRY_WAIT') order by chunk_key limit %d) c
		join job j on j.job_id = $1 order by c.chunk_key`, failedColumns, errorPreview, mostFailures), jobID)
	if err != nil {
		return nil, away(fmt.Errorf("read the failures: %w", err))
	}
	list, err := pgx.CollectRows(rows, scanFailed)
	return list, away(err)
}

// DeadLetters lists dead letters, newest first. The newest 3000 of the installation with that code and key are looked at; more says that there may be others.
// Unlike in a re-drive the key is that of the dead letter itself.
func (s *Store) DeadLetters(ctx context.Context, f export.RedriveFilter) (list []export.FailedChunk, more bool, err error) {
	job := jobsWhere(f.JobFilter)
	chunk := &where{args: job.args}
	if f.ErrorCode != "" {
		chunk.and("error_code = $%d", f.ErrorCode)
	}
	if f.Key != "" {
		chunk.and("key = $%d", f.Key)
	}
	var b pgx.Batch
	b.Queue(fmt.Sprintf(`
		select %s from (select job_id, chunk_key, key, effective_date, status, attempts, completed_at, error_code, left(error_message, %d) as error_message from job_chunk
			where status = 'DLQ' and %s order by completed_at desc, job_id desc, chunk_key desc limit %d) c
		cross join lateral (select j.tenant, j.status from job j where j.job_id = c.job_id and %s offset 0) j
		order by c.completed_at desc, c.job_id desc, c.chunk_key desc`, failedColumns, errorPreview, chunk, mostDead, job), chunk.args...).Query(func(rows pgx.Rows) (err error) {
		list, err = pgx.CollectRows(rows, scanFailed)
		return err
	})
	b.Queue(fmt.Sprintf(`select count(*) > %[1]d from (select from job_chunk where status = 'DLQ' limit %[1]d + 1) d`, mostDead)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&more) })
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, false, away(fmt.Errorf("list the dead letters: %w", err))
	}
	return list, more, nil
}
