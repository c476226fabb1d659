package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/export"
)

// State is the whole installation at a glance, for metrics.
type State struct {
	Jobs    map[export.JobStatus]int64 // that have not ended
	Running int64                      // chunks
	Debts   map[string]Waiting         // by their state: READY, SENDING, SENT, WAIT
	Outbox  map[string]Waiting         // by export.OutboxParking, or "webhook" for all others
	// The live fleet.
	Workers, Concurrency int64
}

// Waiting are things that wait, and how long the oldest has. Of the debts in line only those at its front are looked at, and of published ones the time since
// they were sent last.
type Waiting struct {
	Count  int64
	Oldest time.Duration
}

// stateTimeout is also the server's: a count that nobody waits for any more must not go on.
const stateTimeout = 4 * time.Second

// State counts what is open. No statement reads what has ended: each goes through a partial index, or a table that holds open things only. What it costs
// grows with the number of chunks that are owed a run.
func (s *Store) State(ctx context.Context) (State, error) {
	st := State{Jobs: map[export.JobStatus]int64{}, Debts: map[string]Waiting{}, Outbox: map[string]Waiting{}}
	var b pgx.Batch
	b.Queue(`select set_config('statement_timeout', $1, true)`, fmt.Sprint(stateTimeout.Milliseconds()))
	b.Queue(`select status, count(*) from job where completed_at is null group by status`).Query(func(rows pgx.Rows) error {
		var status export.JobStatus
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&status, &n}, func() error { st.Jobs[status] = n; return nil })
		return err
	})
	b.Queue(`select count(*) from job_chunk where status = 'RUNNING'`).QueryRow(func(row pgx.Row) error { return row.Scan(&st.Running) })
	b.Queue(`select 'READY', (select count(*) from dispatch where state = 'READY'),
		(select extract(epoch from now() - min(owed_at)) from (select owed_at from dispatch where state = 'READY' order by rank limit 1000) front)
		union all
		select state, count(*), max(extract(epoch from now() - coalesce(sent_at, owed_at))) from dispatch where state <> 'READY' group by state`).Query(waiting(st.Debts))
	b.Queue(`select case destination when $1 then $1 else 'webhook' end as kind, count(*), max(extract(epoch from now() - created_at)) from outbox group by kind`, export.OutboxParking).
		Query(waiting(st.Outbox))
	b.Queue(`select count(*), coalesce(sum(concurrency), 0) from worker where heartbeat_at > now() - $1::interval`, heartbeatFresh).
		QueryRow(func(row pgx.Row) error { return row.Scan(&st.Workers, &st.Concurrency) })
	ctx, cancel := context.WithTimeout(ctx, stateTimeout+time.Second)
	defer cancel()
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return State{}, fmt.Errorf("read the state: %w", err)
	}
	return st, nil
}

func waiting(into map[string]Waiting) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var name string
		var n int64
		var seconds *float64
		_, err := pgx.ForEachRow(rows, []any{&name, &n, &seconds}, func() error {
			w := Waiting{Count: n}
			if seconds != nil {
				w.Oldest = max(0, time.Duration(*seconds*float64(time.Second)))
			}
			into[name] = w
			return nil
		})
		return err
	}
}

// PoolStats is the state of a connection pool, for metrics.
type PoolStats struct {
	Most, Open, InUse int
	Waits             int64         // how often somebody waited for a connection
	Waited            time.Duration // and how long in all
}

func poolStats(p *pgxpool.Pool) PoolStats {
	st := p.Stat()
	return PoolStats{
		Most: int(st.MaxConns()), Open: int(st.TotalConns()), InUse: int(st.AcquiredConns()),
		Waits: st.EmptyAcquireCount(), Waited: st.EmptyAcquireWaitTime(),
	}
}

// Stats of the connections to the truth.
func (s *Store) Stats() PoolStats { return poolStats(s.pool) }

// Stats of the connections to the source.
func (s *Source) Stats() PoolStats { return poolStats(s.pool) }
