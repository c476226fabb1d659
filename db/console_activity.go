package db

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// Counts are the jobs that are open and those that ended within a day, and the dead letters.
func (s *Store) Counts(ctx context.Context, tenant string) (c export.Counts, err error) {
	c.Jobs = map[export.JobStatus]int{}
	var b pgx.Batch
	b.Queue(`
		select status, count(*) from (
			(select status from job where completed_at is null and ($1 = '' or tenant = $1) limit 100000)
			union all
			(select status from job where completed_at > now() - interval '1 day' and ($1 = '' or tenant = $1) order by completed_at desc limit 100000)) j
		group by status`, tenant).Query(func(rows pgx.Rows) error {
		var status export.JobStatus
		var n int
		_, err := pgx.ForEachRow(rows, []any{&status, &n}, func() error { c.Jobs[status] = n; return nil })
		return err
	})
	b.Queue(fmt.Sprintf(`
		select count(*) filter (where $1 = '' or (select tenant from job j where j.job_id = d.job_id) = $1), count(*) = %[1]d
		from (select job_id from job_chunk where status = 'DLQ' order by completed_at desc limit %[1]d) d`, mostDead), tenant).
		QueryRow(func(row pgx.Row) error { return row.Scan(&c.Dead, &c.More) })
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return c, away(fmt.Errorf("count the jobs: %w", err))
	}
	return c, nil
}

// busyJob is a job with chunks that may have ended within the hour.
type busyJob struct {
	id                  string
	total, done, failed int
	started             time.Time
	completed           *time.Time
}

// Activity counts what ended in each minute of the last hour. There is no index by time, which every settlement would pay for: the chunks of the newest jobs
// are looked at, and those of further ended jobs are spread evenly over the time that their job took.
func (s *Store) Activity(ctx context.Context, tenant string) (a export.Activity, err error) {
	var now time.Time
	var jobs []busyJob
	var b pgx.Batch
	b.Queue(`select now()`).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	b.Queue(fmt.Sprintf(`
		(select job_id, total, 0, 0, coalesce(started_at, created_at), completed_at from job where completed_at is null and ($1 = '' or tenant = $1) order by job_id desc limit %d)
		union all
		(select job_id, total, done, failed, coalesce(started_at, created_at), completed_at from job where completed_at > now() - interval '1 hour' and ($1 = '' or tenant = $1)
			order by completed_at desc limit %d)`, mostOpen, mostEnded), tenant).Query(func(rows pgx.Rows) (err error) {
		jobs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (j busyJob, err error) {
			err = row.Scan(&j.id, &j.total, &j.done, &j.failed, &j.started, &j.completed)
			return j, err
		})
		return err
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return a, away(fmt.Errorf("find the jobs of the last hour: %w", err))
	}
	m := minutes{first: now.Truncate(time.Minute).Add(-59 * time.Minute)}
	left, open := s.mostCounted, 0
	var counted []string
	for _, j := range jobs {
		left -= j.total
		if j.completed == nil {
			open++
		}
		switch {
		case left >= 0:
			counted = append(counted, j.id)
		case j.completed != nil:
			m.spread(j)
		default:
			a.Partial = true
		}
	}
	a.Partial = a.Partial || open == mostOpen || len(jobs)-open == mostEnded
	rows, err := s.pool.Query(ctx, `
		select date_trunc('minute', c.completed_at), count(*) filter (where c.status = 'DONE'), count(*) filter (where c.status = 'DLQ')
		from unnest((select $1::text[])) w(job_id)
		cross join lateral (select status, completed_at from job_chunk c where c.job_id = w.job_id and completed_at >= $2 and status in ('DONE', 'DLQ') offset 0) c group by 1`, counted, m.first)
	if err != nil {
		return a, away(fmt.Errorf("count the chunks of the last hour: %w", err))
	}
	var at time.Time
	var done, failed float64
	_, err = pgx.ForEachRow(rows, []any{&at, &done, &failed}, func() error { m.add(at, done, failed); return nil })
	a.Minutes = m.list()
	return a, away(err)
}

// minutes are the sixty that end with the current one.
type minutes struct {
	first        time.Time
	done, failed [60]float64
}

func (m *minutes) add(at time.Time, done, failed float64) {
	if i := int(at.Sub(m.first) / time.Minute); !at.Before(m.first) && i < len(m.done) {
		m.done[i] += done
		m.failed[i] += failed
	}
}

// spread counts an ended job's chunks as if they had ended evenly from its start to its end.
func (m *minutes) spread(j busyJob) {
	from, to := j.started.Truncate(time.Minute), j.completed.Truncate(time.Minute)
	n := float64(to.Sub(from)/time.Minute) + 1
	if from.Before(m.first) {
		from = m.first
	}
	for at := from; !at.After(to); at = at.Add(time.Minute) {
		m.add(at, float64(j.done)/n, float64(j.failed)/n)
	}
}

func (m *minutes) list() []export.Minute {
	list := make([]export.Minute, len(m.done))
	for i := range list {
		list[i] = export.Minute{At: m.first.Add(time.Duration(i) * time.Minute).UTC(), Done: int(math.Round(m.done[i])), Failed: int(math.Round(m.failed[i]))}
	}
	return list
}
