package db_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"exportd/export"
)

// The steps of the machine that time, sweepers and orders take: see property_test.go.

// time passes: the tables' times move into the past. The steps are such that no time comes to lie within seconds of a limit.
func (m *machine) time(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{40 * time.Second, 120 * time.Second, 1000 * time.Second}).Draw(t, "passed")
	m.clock += d
	exec(t, m.pool, `update job_chunk set lease_until = lease_until - $1::interval, next_retry_at = next_retry_at - $1::interval`, d)
	exec(t, m.pool, `update dispatch set due_at = due_at - $1::interval, sent_at = sent_at - $1::interval, owed_at = owed_at - $1::interval`, d)
	exec(t, m.pool, `update job set pinned_at = pinned_at - $1::interval`, d)
}

func (m *machine) oweExpired(t *rapid.T) {
	want := 0
	for _, c := range m.chunks {
		if !c.expired(m.model) || c.Attempts >= modelAttempts || c.job.Ending != "" {
			continue
		}
		if d := c.Debt; d == nil {
			c.owe(m.model, "WAIT", 0)
			want++
		} else if d.State == "SENT" && d.sentAt < c.lease {
			d.State, d.due = "WAIT", m.clock
			want++
		}
	}
	n, err := m.store(t).OweExpired(context.Background())
	answer(t, "owe expired", err, nil)
	if int(n) != want {
		t.Fatalf("owed %d runs, want %d", n, want)
	}
}

func (m *machine) listExpired(t *rapid.T) {
	list, err := m.store(t).Expired(context.Background())
	answer(t, "expired", err, nil)
	want := m.count(func(c *modelChunk) bool {
		return c.expired(m.model) && (c.Attempts >= modelAttempts || c.job.Ending != "")
	})
	if len(list) != want {
		t.Fatalf("%d expired claims, want %d", len(list), want)
	}
	for _, e := range list {
		if c := m.find(e.Ref); !c.expired(m.model) || !c.left(e.Overtaken) {
			t.Fatalf("listed %+v, the chunk is %+v", e, c)
		}
	}
	m.lists = append(m.lists, list...)
}

func (m *machine) endExpired(t *rapid.T) {
	e := drawn(t, m.lists)[0]
	m.endExpiredBy(t, e)
}

func (m *machine) endExpiredBy(t *rapid.T, e export.ExpiredClaim) {
	c := m.find(e.Ref)
	want := export.ErrStale
	if c.Claim == e.ClaimID && c.Status != export.Done && c.Status != export.Pending && (c.Status != export.Running || c.expired(m.model)) {
		want = nil
	}
	answer(t, "end expired", m.store(t).EndExpired(context.Background(), e), want)
	if c.Claim == e.ClaimID && c.expired(m.model) {
		m.deadLettered(c)
	}
}

func (m *machine) doneExpired(t *rapid.T) {
	e := drawn(t, m.lists)[0]
	m.doneBy(t, m.find(e.Ref), m.byID(e.ClaimID), func(f export.File, _ bool) error { return m.store(t).DoneExpired(context.Background(), e, f) })
}

// halfCancel is what the settlements see that began before an order to cancel and end after it.
func (m *machine) halfCancel(t *rapid.T) {
	j := m.job(t)
	if j.ended() || j.Outcome != "" {
		t.Skip("ended")
	}
	j.Ending, j.Status = "CANCEL", export.Cancelling
	exec(t, m.pool, `update job set ending = 'CANCEL', status = 'CANCELLING' where job_id = $1`, j.ID)
}

func (m *machine) cancelLeftovers(t *rapid.T) {
	want := 0
	for _, j := range m.jobs {
		if !j.ended() && j.Ending != "" && slices.ContainsFunc(j.chunks, func(c *modelChunk) bool { return c.Status == export.Pending || c.Status == export.RetryWait }) {
			want += j.cancelWaiting()
		}
	}
	n, err := m.store(t).CancelLeftovers(context.Background())
	answer(t, "cancel leftovers", err, nil)
	if int(n) != want {
		t.Fatalf("cancelled %d leftovers, want %d", n, want)
	}
}

func (m *machine) pin(t *rapid.T) { m.pinBy(t, m.job(t)) }

func (m *machine) pinBy(t *rapid.T, j *modelJob) {
	e, err := m.store(t).Pin(context.Background(), j.ID)
	answer(t, "pin", err, nil)
	if j.ended() || j.Outcome != "" || j.open() {
		if e != nil {
			t.Fatalf("pinned %+v: %+v", j, e)
		}
		return
	}
	j.pinnedAt, j.Outcome = m.clock, string(export.Completed)
	if j.Ending == "CANCEL" {
		j.Outcome = string(export.Cancelled)
	} else if j.Ending == "FAIL" || slices.ContainsFunc(j.chunks, func(c *modelChunk) bool { return c.Status == export.DeadLetter }) {
		j.Outcome = string(export.Failed)
	}
	if e == nil || string(e.Outcome) != j.Outcome || e.Run != j.Run {
		t.Fatalf("pin of %+v: %+v", j, e)
	}
	m.pins = append(m.pins, *e)
}

func (m *machine) repin(t *rapid.T) {
	j := m.job(t)
	e, err := m.store(t).Repin(context.Background(), j.ID, 30*time.Second)
	answer(t, "repin", err, nil)
	want := !j.ended() && j.Outcome != "" && j.pinnedAt <= m.clock-30*time.Second
	if (e != nil) != want {
		t.Fatalf("repin of %+v: %+v", j, e)
	}
	if want {
		j.pinnedAt = m.clock
	}
}

func (m *machine) end(t *rapid.T) { m.endBy(t, drawn(t, m.pins)[0]) }

func (m *machine) endBy(t *rapid.T, e export.Ending) {
	answer(t, "end", m.store(t).End(context.Background(), e), nil)
	for _, j := range m.jobs {
		if j.ID == e.JobID && j.Run == e.Run && j.Outcome == string(e.Outcome) {
			j.Status = e.Outcome
		}
	}
}

func (m *machine) unfinished(t *rapid.T) {
	got, err := m.store(t).Unfinished(context.Background(), 30*time.Second)
	answer(t, "unfinished", err, nil)
	var want []string
	for _, j := range m.jobs {
		if !j.ended() && (j.Outcome == "" && !j.open() || j.Outcome != "" && j.pinnedAt <= m.clock-30*time.Second) {
			want = append(want, j.ID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("unfinished %v, want %v", got, want)
	}
}

func (m *machine) cancel(t *rapid.T) {
	j := m.job(t)
	var want error
	if j.Outcome != "" && j.Outcome != string(export.Cancelled) {
		want = export.ErrEnded
	}
	answer(t, "cancel", m.store(t).Cancel(context.Background(), "", j.ID), want)
	if j.Outcome == "" {
		j.Ending, j.Status = "CANCEL", export.Cancelling
		j.cancelWaiting()
	}
}

func (m *machine) redrive(t *rapid.T) {
	j := m.job(t)
	n, err := m.store(t).Redrive(context.Background(), "", j.ID)
	if j.Status != export.Failed && j.Status != export.Cancelled {
		answer(t, "re-drive", err, export.ErrEnded)
		return
	}
	answer(t, "re-drive", err, nil)
	want := 0
	for _, c := range j.chunks {
		if c.Status == export.DeadLetter || c.Status == export.ChunkCancelled {
			c.Status, c.Attempts = export.Pending, 0
			c.owe(m.model, "READY", 0)
			want++
		}
	}
	if n != want {
		t.Fatalf("re-drove %d, want %d", n, want)
	}
	if n > 0 {
		j.Status, j.Ending, j.Outcome = export.InProgress, "", ""
		j.Run++
	}
}

// finish drives everything to its end: no job may hang.
func (m *machine) finish(t *rapid.T) {
	for range 60 {
		m.clock += 2000 * time.Second
		exec(t, m.pool, `update job_chunk set lease_until = lease_until - interval '2000 s', next_retry_at = next_retry_at - interval '2000 s'`)
		exec(t, m.pool, `update dispatch set due_at = due_at - interval '2000 s', sent_at = sent_at - interval '2000 s', owed_at = owed_at - interval '2000 s'`)
		exec(t, m.pool, `update job set pinned_at = pinned_at - interval '2000 s'`)
		m.oweExpired(t)
		m.cancelLeftovers(t)
		m.lists = nil
		m.listExpired(t)
		for _, e := range m.lists {
			m.endExpiredBy(t, e)
		}
		before := len(m.leased)
		m.lease(t)
		for _, d := range m.leased[before:] {
			c := m.find(d.Ref)
			if m.claimAs(t, c, uuid.NewString()); c.Status == export.Running {
				m.doneBy(t, c, c.claimObject, func(f export.File, r bool) error { return m.store(t).Done(context.Background(), c.claimObject, f, r) })
			}
		}
		for _, j := range m.jobs {
			if m.pinBy(t, j); j.Outcome != "" {
				m.endBy(t, export.Ending{JobID: j.ID, Run: j.Run, Outcome: export.JobStatus(j.Outcome)})
			}
		}
		m.check(t, m.pool)
		if !slices.ContainsFunc(m.jobs, func(j *modelJob) bool { return !j.ended() }) {
			if n := m.count(func(c *modelChunk) bool { return c.Debt != nil }); n > 0 {
				t.Fatalf("%d debts are left", n)
			}
			return
		}
	}
	t.Fatalf("jobs hang:\n%s", fmt.Sprint(m.text()))
}
