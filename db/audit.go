package db

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"exportd/export"
)

const auditSQL = `
	insert into audit (action, tenant, role, token, address, forwarded, user_agent, via, request_id, trace_id, job_id, job_tenant, filter, chunks, status, problem)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, nullif($11, ''), nullif($12, ''), nullif($13, '')::jsonb, $14, nullif($15::int, 0), nullif($16, ''))`

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func writeLine(ctx context.Context, on execer, l export.AuditLine) error {
	_, err := on.Exec(ctx, auditSQL, l.Action, l.Tenant, l.Role, l.Token, l.Address, l.Forwarded, l.UserAgent, l.Via, l.RequestID, l.TraceID,
		l.JobID, l.JobTenant, string(l.Filter), l.Chunks, l.Status, l.Problem)
	if err != nil {
		return fmt.Errorf("write the audit line: %w", err)
	}
	return nil
}

// deed is the line of an order that is being done to a job.
func deed(ctx context.Context, jobID, jobTenant string, chunks int) *export.AuditLine {
	return &export.AuditLine{Order: export.OrderOf(ctx), JobID: jobID, JobTenant: jobTenant, Chunks: &chunks}
}

// Record writes the line of what changed nothing in the database. Orders write theirs themselves.
func (s *Store) Record(ctx context.Context, l export.AuditLine) error {
	if err := again(ctx, func(ctx context.Context) error { return writeLine(ctx, s.pool, l) }); err != nil {
		return away(err)
	}
	s.tell(ctx, l)
	return nil
}

// tell logs a line that has been committed.
func (s *Store) tell(ctx context.Context, l export.AuditLine) {
	if s.Log == nil {
		return
	}
	var attrs []slog.Attr
	for _, a := range [][2]string{
		{"action", l.Action}, {"tenant", l.Tenant}, {"role", l.Role}, {"token", l.Token}, {"address", l.Address}, {"forwarded", l.Forwarded}, {"userAgent", l.UserAgent},
		{"via", l.Via}, {"jobId", l.JobID}, {"jobTenant", l.JobTenant}, {"filter", string(l.Filter)}, {"problem", l.Problem}, {"requestId", l.RequestID}, {"traceId", l.TraceID},
	} {
		if a[1] != "" {
			attrs = append(attrs, slog.String(a[0], a[1]))
		}
	}
	if l.Chunks != nil {
		attrs = append(attrs, slog.Int("chunks", *l.Chunks))
	}
	if l.Status != 0 {
		attrs = append(attrs, slog.Int("status", l.Status))
	}
	s.Log.LogAttrs(ctx, slog.LevelInfo, "audit", attrs...)
}

// Audit lists lines from the newest on, behind after if that is not nil, and says where the list goes on; nil at its end.
func (s *Store) Audit(ctx context.Context, f export.AuditFilter, after *export.AuditPlace, limit int) (lines []export.AuditLine, next *export.AuditPlace, err error) {
	w := &where{}
	for _, c := range []struct{ column, value string }{{"tenant", f.Tenant}, {"token", f.Token}, {"action", f.Action}, {"job_id", f.JobID}} {
		if c.value != "" {
			w.and(c.column+" = $%d", c.value)
		}
	}
	if !f.From.IsZero() {
		w.and("at >= $%d", f.From)
	}
	if !f.To.IsZero() {
		w.and("at < $%d", f.To)
	}
	if after != nil {
		w.args = append(w.args, after.At, after.ID)
		w.conditions = append(w.conditions, fmt.Sprintf("(at, audit_id) < ($%d, $%d)", len(w.args)-1, len(w.args)))
	}
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(fmt.Sprintf(`
		select audit_id, at, action, tenant, role, token, address, forwarded, user_agent, via, request_id, trace_id, coalesce(job_id, ''), coalesce(job_tenant, ''),
		       coalesce(filter::text, ''), chunks, coalesce(status, 0), coalesce(problem, '')
		from audit where %s order by at desc, audit_id desc limit %d`, w, limit+1), w.args...).Query(func(rows pgx.Rows) (err error) {
		lines, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l export.AuditLine, err error) {
			var filter string
			err = row.Scan(&l.ID, &l.At, &l.Action, &l.Tenant, &l.Role, &l.Token, &l.Address, &l.Forwarded, &l.UserAgent, &l.Via, &l.RequestID, &l.TraceID,
				&l.JobID, &l.JobTenant, &filter, &l.Chunks, &l.Status, &l.Problem)
			if filter != "" {
				l.Filter = json.RawMessage(filter)
			}
			return l, err
		})
		return err
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, away(fmt.Errorf("list the audit: %w", err))
	}
	if len(lines) > limit {
		lines = lines[:limit]
		next = &export.AuditPlace{At: lines[limit-1].At, ID: lines[limit-1].ID}
	}
	return lines, next, nil
}
