package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

type conn = *pgx.Conn

//go:embed audit.sql
var auditSQL string

// watchTransitions has the database note every change of a status.
func (w *world) watchTransitions(ctx context.Context) error {
	return w.query(ctx, func(c conn) error {
		_, err := c.Exec(ctx, auditSQL)
		return err
	})
}

// transitions are the rules that the noted changes must keep: each query yields what breaks one.
var transitions = []struct{ rule, sql string }{
	{"changes that are not legal", `
		select format('%s/%s %s > %s, attempts %s', job_id, chunk_key, was, becomes, attempts) from chaos_audit where chunk_key is not null and (was, becomes, attempts) not in (
			('PENDING', 'RUNNING', 1), ('RETRY_WAIT', 'RUNNING', 1), ('RUNNING', 'RUNNING', 1), ('RUNNING', 'DONE', 0), ('RUNNING', 'RETRY_WAIT', 0),
			('RUNNING', 'PENDING', -1), ('RUNNING', 'DLQ', 0), ('PENDING', 'CANCELLED', 0), ('RETRY_WAIT', 'CANCELLED', 0), ('RUNNING', 'CANCELLED', 0), ('RUNNING', 'CANCELLED', -1))
			and not (was in ('DLQ', 'CANCELLED') and becomes = 'PENDING' and attempts <= 0)`},
	{"claims taken from an owner whose lease was not over", `
		select format('%s/%s', job_id, chunk_key) from chaos_audit where was = 'RUNNING' and becomes = 'RUNNING' and lease_until >= at`},
	{"claim IDs used twice", `
		select claim_id::text from chaos_audit where becomes = 'RUNNING' group by claim_id having count(*) > 1`},
	{"chunks that ended more than once in a run, or never", `
		select format('%s/%s run %s: %s ends', c.job_id, c.chunk_key, r.run, count(a.n)) from job_chunk c join job j using (job_id) cross join lateral generate_series(1, j.run) r(run)
		left join chaos_audit a on a.job_id = c.job_id and a.chunk_key = c.chunk_key and a.run = r.run and a.becomes in ('DONE', 'DLQ', 'CANCELLED')
		group by c.job_id, c.chunk_key, r.run
		having count(a.n) > 1 or count(a.n) = 0 and not exists (select from chaos_audit b where b.job_id = c.job_id and b.chunk_key = c.chunk_key and b.run < r.run and b.becomes = 'DONE')`},
	{"jobs that ended more than once in a run, or never", `
		select format('%s run %s: %s ends', j.job_id, r.run, count(a.n)) from job j cross join lateral generate_series(1, j.run) r(run)
		left join chaos_audit a on a.job_id = j.job_id and a.chunk_key is null and a.run = r.run and a.becomes in ('COMPLETED', 'FAILED', 'CANCELLED')
		group by j.job_id, r.run having count(a.n) <> 1`},
	{"changes of chunks after the end of their job's run", `
		select format('%s/%s %s > %s', a.job_id, a.chunk_key, a.was, a.becomes) from chaos_audit a join chaos_audit e on e.job_id = a.job_id and e.run = a.run and e.n < a.n
		where a.chunk_key is not null and e.chunk_key is null and e.becomes in ('COMPLETED', 'FAILED', 'CANCELLED')`},
	{"orders with no job, or several", `
		select k || ': ' || count(j.job_id) from unnest($1::text[]) k left join job j on j.idempotency_key = k group by k having count(j.job_id) <> 1`},
	{"jobs that nobody ordered", `
		select job_id from job where not (idempotency_key = any($1))`},
	{"chunks dead-lettered that fail by no design", `
		select format('%s/%s after %s attempts: %s %s', job_id, chunk_key, attempt, error_code, left(error_message, 200)) from chunk_attempt
		where outcome = 'DLQ' and chunk_key not like 'key=DIV%' and chunk_key not like 'key=ERR%' and $1::text[] is not null`},
	{"chunks that lost half of their attempts to faults", `
		select format('%s/%s %s', job_id, chunk_key, count(*)) from chunk_attempt where outcome in ('LOST', 'RETRY') and error_code <> 'SQL_P0001'
		group by job_id, chunk_key, run having count(*) > 10`},
	{"permanent failures that were tried again", `
		select format('%s/%s %s', job_id, chunk_key, error_message) from chunk_attempt where outcome = 'RETRY' and error_code = 'SQL_22012'`},
	{"sessions of ended processes", `
		select application_name || ' ' || state || ' ' || left(query, 60) from pg_stat_activity where application_name like 'exportd%'`},
}

// checkTransitions reports what broke a rule. Processes have ended.
func (w *world) checkTransitions(ctx context.Context) error {
	return w.query(ctx, func(c conn) error {
		for _, t := range transitions {
			var args []any
			if strings.Contains(t.sql, "$1") {
				args = append(args, w.ordered)
			}
			rows, err := c.Query(ctx, t.sql, args...)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return fmt.Errorf("%s: %w", t.rule, err)
			}
			if len(lines) > 0 {
				w.report.breach("%s: %d, such as %s", t.rule, len(lines), strings.Join(lines[:min(5, len(lines))], " | "))
			}
		}
		return nil
	})
}

// tell writes rows of text, for a progress line or the state of what hangs.
func (w *world) tell(ctx context.Context, sql string, args ...any) (lines []string) {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(bounded, w.Database)
	if err != nil {
		return []string{"the database does not answer"}
	}
	defer c.Close(context.WithoutCancel(ctx))
	var rows pgx.Rows
	rows, err = c.Query(bounded, sql, args...)
	if err == nil {
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return []string{err.Error()}
	}
	return lines
}

const progressSQL = `select format('jobs %s open, %s ended; chunks %s; %s debts, %s notices; most attempts %s',
	(select count(*) from job where completed_at is null), (select count(*) from job where completed_at is not null),
	(select string_agg(n || ' ' || status, ', ' order by status) from (select status, count(*) n from job_chunk group by status) s),
	(select count(*) from dispatch), (select count(*) from outbox), (select max(attempts) from job_chunk where key !~ '^ERR'))`

const hangingSQL = `
	select format('job %s %s ending %s outcome %s pinned %s', job_id, status, ending, outcome, pinned_at) from job where completed_at is null
	union all select format('chunk %s/%s %s attempts %s claim %s by %s lease %s retry %s: %s %s', job_id, chunk_key, status, attempts, claim_id, lock_owner, lease_until - now(), next_retry_at - now(), error_code, error_message)
	from job_chunk where status in ('PENDING', 'RUNNING', 'RETRY_WAIT')
	union all select format('debt %s/%s %s due in %s sent %s times %s', job_id, chunk_key, state, due_at - now(), sends, error) from dispatch
	union all select format('notice %s due in %s: %s', id, due_at - now(), error) from outbox`

const outcomesSQL = `
	select format('%s chunks %s%s', count(*), status, case when reused then ' (reused)' end) from job_chunk group by status, reused
	union all select format('%s attempts %s %s', count(*), outcome, error_code) from chunk_attempt group by outcome, error_code
	union all select format('%s jobs %s', count(*), status) from job group by status
	union all select format('%s chunks spent %s attempts', count(*), attempts) from job_chunk where key !~ '^(ERR|FLAKY)' and attempts > 1 group by attempts`
