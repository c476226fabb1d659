package api_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"exportd/export"
)

// memory is a store that keeps jobs in memory by the rules of the real one.
type memory struct {
	mu   sync.Mutex
	jobs map[string]*stored // by job id
	keys map[[2]string]string

	lines []export.AuditLine // oldest first

	// before, if set, runs at the start of each call; its error is the call's.
	before func(context.Context) error
}

type stored struct {
	job      export.Job
	req      export.SubmitRequest
	chunks   []export.ChunkView
	attempts map[string][]export.Attempt // by chunk key
}

func newMemory() *memory { return &memory{jobs: map[string]*stored{}, keys: map[[2]string]string{}} }

var day = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)

func (m *memory) begin(ctx context.Context) error {
	if m.before == nil {
		return nil
	}
	return m.before(ctx)
}

func (m *memory) Submit(ctx context.Context, req export.SubmitRequest) (export.Job, bool, error) {
	if err := m.begin(ctx); err != nil {
		return export.Job{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return export.Job{}, false, ctx.Err()
	}
	name := [2]string{req.Tenant, req.IdempotencyKey}
	if first, ok := m.keys[name]; ok && req.IdempotencyKey != "" {
		s := m.jobs[first]
		if s.req.Hash() != req.Hash() {
			return export.Job{}, false, export.ErrIdempotencyMismatch
		}
		return s.job, true, nil
	}
	at := day.Add(time.Duration(len(m.jobs)) * time.Second)
	job := export.Job{
		ID: fmt.Sprintf("J20260102_%06d", len(m.jobs)+1), Tenant: req.Tenant, Status: export.Submitted, Run: 1,
		Total: req.Total(), Pending: req.Total(), CreatedAt: at, UpdatedAt: at,
	}
	s := &stored{job: job, req: req, attempts: map[string][]export.Attempt{}}
	for _, ref := range req.Refs(job.ID) {
		s.chunks = append(s.chunks, export.ChunkView{Ref: ref, Status: export.Pending})
	}
	m.jobs[job.ID] = s
	if req.IdempotencyKey != "" {
		m.keys[name] = job.ID
	}
	return job, false, nil
}

func (m *memory) Job(ctx context.Context, tenant, id string) (export.Job, error) {
	if err := m.begin(ctx); err != nil {
		return export.Job{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.jobs[id]
	if !ok || tenant != "" && s.job.Tenant != tenant {
		return export.Job{}, export.ErrNotFound
	}
	return s.job, nil
}

func (m *memory) change(id string, change func(*export.Job)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.jobs[id].job)
}

func (m *memory) all() []stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []stored
	for _, s := range m.jobs {
		all = append(all, *s)
	}
	return all
}

func (m *memory) Cancel(ctx context.Context, tenant, id string) error {
	job, err := m.Job(ctx, tenant, id)
	switch {
	case err != nil || job.Status == export.Cancelled:
		return err
	case job.Status.Ended():
		return fmt.Errorf("job %s is %s: %w", id, job.Status, export.ErrEnded)
	}
	if job.Status != export.Cancelling {
		n := job.Pending + job.Retrying
		m.did(ctx, job, n)
	}
	m.change(id, func(j *export.Job) {
		j.Status, j.Pending, j.Retrying, j.Cancelled = export.Cancelling, 0, 0, j.Cancelled+j.Pending+j.Retrying
	})
	return nil
}

// did writes the line of an order.
func (m *memory) did(ctx context.Context, job export.Job, chunks int) {
	m.write(export.AuditLine{Order: export.OrderOf(ctx), JobID: job.ID, JobTenant: job.Tenant, Chunks: &chunks})
}

func (m *memory) write(l export.AuditLine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.ID, l.At = int64(len(m.lines)+1), day
	m.lines = append(m.lines, l)
}

func (m *memory) Record(ctx context.Context, l export.AuditLine) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	m.write(l)
	return nil
}

func (m *memory) Audit(ctx context.Context, f export.AuditFilter, after *export.AuditPlace, limit int) (lines []export.AuditLine, next *export.AuditPlace, err error) {
	if err := m.begin(ctx); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range slices.Backward(m.lines) {
		if f.Tenant != "" && l.Tenant != f.Tenant || f.Token != "" && l.Token != f.Token || f.Action != "" && l.Action != f.Action || f.JobID != "" && l.JobID != f.JobID ||
			l.At.Before(f.From) || !f.To.IsZero() && !l.At.Before(f.To) || after != nil && l.ID >= after.ID {
			continue
		}
		if len(lines) == limit {
			return lines, &export.AuditPlace{At: lines[limit-1].At, ID: lines[limit-1].ID}, nil
		}
		lines = append(lines, l)
	}
	return lines, nil, nil
}

func (m *memory) Redrive(ctx context.Context, tenant, id string) (n int, err error) {
	job, err := m.Job(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	if job.Status != export.Failed && job.Status != export.Cancelled {
		return 0, export.ErrEnded
	}
	m.change(id, func(j *export.Job) {
		n = j.Failed + j.Cancelled
		j.Status, j.Run, j.Pending, j.Failed, j.Cancelled, j.CompletedAt, j.ErrorMessage = export.InProgress, j.Run+1, n, 0, 0, nil, ""
	})
	m.did(ctx, job, n)
	return n, nil
}

func (m *memory) Jobs(ctx context.Context, f export.JobFilter, after *export.Place, limit int) (jobs []export.Job, next *export.Place, err error) {
	if err := m.begin(ctx); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := slices.Sorted(maps.Keys(m.jobs))
	for _, id := range slices.Backward(ids) {
		s := m.jobs[id]
		hasKey := f.Key == "" || slices.ContainsFunc(s.chunks, func(c export.ChunkView) bool { return c.Key == f.Key })
		if f.Tenant != "" && s.job.Tenant != f.Tenant || f.Status != "" && s.job.Status != f.Status || !hasKey ||
			s.job.CreatedAt.Before(f.From) || !f.To.IsZero() && !s.job.CreatedAt.Before(f.To) || after != nil && id >= after.JobID {
			continue
		}
		if len(jobs) == limit {
			return jobs, &export.Place{CreatedAt: jobs[limit-1].CreatedAt, JobID: jobs[limit-1].ID}, nil
		}
		jobs = append(jobs, s.job)
	}
	return jobs, nil, nil
}

func (m *memory) Chunks(ctx context.Context, tenant, id string, f export.ChunkFilter, after string, limit int) (chunks []export.ChunkView, more bool, err error) {
	if _, err := m.Job(ctx, tenant, id); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.jobs[id].chunks {
		if f.Status != "" && c.Status != f.Status || f.Key != "" && c.Key != f.Key || c.ChunkKey() <= after {
			continue
		}
		if len(chunks) == limit {
			return chunks, true, nil
		}
		chunks = append(chunks, c)
	}
	return chunks, false, nil
}

func (m *memory) Files(ctx context.Context, tenant, id string, limit int) (files []export.ChunkFile, err error) {
	chunks, _, err := m.Chunks(ctx, tenant, id, export.ChunkFilter{Status: export.Done}, "", limit)
	for _, c := range chunks {
		files = append(files, export.ChunkFile{Key: c.Key, Date: c.Date, ObjectKey: c.ObjectKey, Facts: c.Facts, Reused: c.Reused})
	}
	return files, err
}

func (m *memory) Chunk(ctx context.Context, tenant, id, chunkKey string) (export.ChunkView, []export.Attempt, error) {
	if _, err := m.Job(ctx, tenant, id); err != nil {
		return export.ChunkView{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.jobs[id].chunks {
		if c.ChunkKey() == chunkKey {
			return c, m.jobs[id].attempts[chunkKey], nil
		}
	}
	return export.ChunkView{}, nil, export.ErrNotFound
}

// changeChunk changes the nth chunk of a job.
func (m *memory) changeChunk(id string, n int, change func(*export.ChunkView)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.jobs[id].chunks[n])
}

func (m *memory) Redrivable(ctx context.Context, f export.RedriveFilter, limit int) (list []export.Redrivable, err error) {
	jobs, _, err := m.Jobs(ctx, f.JobFilter, nil, 1000)
	for _, j := range slices.Backward(jobs) {
		if n := j.Failed + j.Cancelled; (j.Status == export.Failed || j.Status == export.Cancelled) && n > 0 && len(list) < limit && f.ErrorCode != "NONE" {
			list = append(list, export.Redrivable{JobID: j.ID, Chunks: n})
		}
	}
	return list, err
}

func (m *memory) Workers(ctx context.Context) ([]export.Worker, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	return []export.Worker{
		{ID: "h/1/x", Host: "h", Version: "1", Concurrency: 8, InFlight: 1, StartedAt: day, HeartbeatAt: day, Chunks: []export.WorkerChunk{{JobID: "J", ChunkKey: "c", StartedAt: day}}},
		{ID: "idle", StartedAt: day, HeartbeatAt: day},
	}, nil
}
