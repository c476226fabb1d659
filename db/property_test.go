package db_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"exportd/db"
	"exportd/export"
)

// machine drives two stores, as two processes would, and the model beside them.
type machine struct {
	*model
	stores []*db.Store
	pool   *pgxpool.Pool
	claims []*export.Claim // all that were ever given
	leased []export.Debt   // all that were ever leased
	pins   []export.Ending
	lists  []export.ExpiredClaim
}

var broken = &export.Failure{Code: "X", Err: errors.New("broken")}

func TestTheTablesAreAsTheModelSaysAfterEveryStep(t *testing.T) {
	s := setup(t, func(c *db.Config) { c.RepublishAfter, c.Backlog, c.Pool = modelRepublish, modelBacklog, 3 })
	other, err := db.Open(t.Context(), s.Config)
	must(t, err)
	t.Cleanup(other.Close)
	other.Worker = "other"
	other.Careful(true)
	pool := sessions(t, s)
	// Each run is hundreds of statements; -rapid.checks asks for more of them than these.
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		must(t, checks.Value.Set("15"))
	}
	rapid.Check(t, func(t *rapid.T) {
		exec(t, pool, `truncate job, job_chunk, dispatch, outbox, chunk_attempt, file_cache`)
		m := &machine{model: newModel(), stores: []*db.Store{s, other}, pool: pool}
		m.submit(t)
		t.Repeat(map[string]func(*rapid.T){
			"":       func(t *rapid.T) { m.check(t, pool) },
			"submit": m.submit, "submit with a key": m.submitWithKey, "lease": m.lease, "take": m.take, "confirm": m.confirm, "set aside": m.setAside,
			"claim": m.claim, "claim a message": m.claim, "claim again": m.claimAgain, "renew": m.renew, "announce": m.announce, "record an upload": m.recordUpload,
			"done": m.done, "done again": m.done, "retry": m.retry, "give back": m.giveBack, "dead-letter": m.deadLetter,
			"time": m.time, "more time": m.time, "owe expired": m.oweExpired, "list expired": m.listExpired, "end expired": m.endExpired, "done expired": m.doneExpired,
			"half a cancel": m.halfCancel, "cancel leftovers": m.cancelLeftovers, "pin": m.pin, "repin": m.repin, "end": m.end, "unfinished": m.unfinished,
			"cancel": m.cancel, "re-drive": m.redrive,
		})
		m.finish(t)
	})
}

func (m *machine) store(t *rapid.T) *db.Store { return pick(t, "store", m.stores) }

func (m *machine) chunk(t *rapid.T) *modelChunk { return pick(t, "chunk", m.chunks) }

func (m *machine) job(t *rapid.T) *modelJob { return pick(t, "job", m.jobs) }

func pick[T any](t *rapid.T, what string, from []T) T {
	if len(from) == 0 {
		t.Skip("nothing there")
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(t, what)]
}

// given is a claim that was given at some time, rather one of the last; it may be stale.
func (m *machine) given(t *rapid.T) (*export.Claim, *modelChunk) {
	if len(m.claims) == 0 {
		t.Skip("no claim yet")
	}
	last := m.claims[max(0, len(m.claims)-4):]
	c := pick(t, "claim", slices.Concat(m.claims, last, last, last))
	return c, m.find(c.Ref)
}

// drawn draws some elements.
func drawn[T any](t *rapid.T, from []T) []T {
	some := make([]T, rapid.IntRange(1, 4).Draw(t, "number"))
	for i := range some {
		some[i] = pick(t, "one", from)
	}
	return some
}

func answer(t *rapid.T, what string, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func (m *machine) newSubmission(t *rapid.T, key string) export.SubmitRequest {
	return submission(rapid.IntRange(1, 6).Draw(t, "chunks"), func(r *export.SubmitRequest) {
		r.OnFailure = rapid.SampledFrom([]export.OnFailure{export.FailFast, export.Continue}).Draw(t, "on failure")
		r.Priority, r.IdempotencyKey = rapid.IntRange(0, 9).Draw(t, "priority"), key
	})
}

func (m *machine) add(r export.SubmitRequest, id string) *modelJob {
	j := &modelJob{ID: id, onFailure: r.OnFailure, request: r, Status: export.Submitted, Run: 1}
	for _, ref := range r.Refs(id) {
		c := &modelChunk{Ref: ref, job: j, Status: export.Pending}
		c.owe(m.model, "READY", 0)
		j.chunks, m.chunks = append(j.chunks, c), append(m.chunks, c)
	}
	m.jobs = append(m.jobs, j)
	return j
}

func (m *machine) submit(t *rapid.T) {
	if len(m.jobs) >= 6 {
		t.Skip("enough")
	}
	r := m.newSubmission(t, "")
	job, replayed, err := m.store(t).Submit(context.Background(), r)
	if err != nil || replayed {
		t.Fatalf("submit: %v %v", replayed, err)
	}
	m.add(r, job.ID)
}

func (m *machine) submitWithKey(t *rapid.T) {
	key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	first := m.keys[key]
	if first == nil {
		r := m.newSubmission(t, key)
		job, replayed, err := m.store(t).Submit(context.Background(), r)
		if err != nil || replayed {
			t.Fatalf("submit: %v %v", replayed, err)
		}
		first = m.add(r, job.ID)
		m.keys[key] = first
	}
	job, replayed, err := m.store(t).Submit(context.Background(), first.request)
	if err != nil || !replayed || job.ID != first.ID || job.Status != first.Status {
		t.Fatalf("submit again: %+v %v %v", job, replayed, err)
	}
	another := first.request
	another.Compression = export.Gzip
	_, _, err = m.store(t).Submit(context.Background(), another)
	answer(t, "submit another request under the key", err, export.ErrIdempotencyMismatch)
}

func (m *machine) lease(t *rapid.T) {
	limit := rapid.IntRange(1, 8).Draw(t, "limit")
	m.promote()
	inBroker := m.count(func(c *modelChunk) bool {
		return c.Debt != nil && (c.Debt.State == "SENDING" || c.Debt.State == "SENT") && c.Debt.due > m.clock
	})
	ready := m.count(func(c *modelChunk) bool { return c.Debt != nil && c.Debt.State == "READY" })
	debts, err := m.store(t).LeaseDebts(context.Background(), limit)
	answer(t, "lease", err, nil)
	if want := min(limit, ready, max(0, modelBacklog-inBroker)); len(debts) != want {
		t.Fatalf("leased %d debts, want %d", len(debts), want)
	}
	m.leasedNow(t, debts)
}

func (m *machine) take(t *rapid.T) {
	age := rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "age")
	m.promote()
	for _, c := range m.chunks {
		if d := c.Debt; age > 0 && d != nil && (d.State == "SENT" && d.sentAt <= m.clock-age || d.State == "SENDING" && max(d.owed, d.sentAt) <= m.clock-age) {
			d.State = "READY"
			if d.Sends > 0 {
				d.owed = min(d.owed, d.sentAt)
			}
		}
	}
	ready := func(c *modelChunk) bool { return c.Debt != nil && c.Debt.State == "READY" }
	want := m.count(ready)
	if m.count(func(c *modelChunk) bool { return ready(c) && min(c.Debt.due, c.Debt.owed) <= m.clock-age }) == 0 {
		want = 0
	}
	debts, err := m.store(t).TakeDebts(context.Background(), 100, age)
	answer(t, "take", err, nil)
	if len(debts) != want {
		t.Fatalf("took %d debts, want %d", len(debts), want)
	}
	m.leasedNow(t, debts)
	for _, d := range debts {
		m.find(d.Ref).Debt.owed = m.clock
	}
}

func (m *machine) leasedNow(t *rapid.T, debts []export.Debt) {
	for _, d := range debts {
		c := m.find(d.Ref)
		if c.Debt == nil || c.Debt.State != "READY" || d.Attempt != c.Attempts+1 || d.Sends != c.Debt.Sends {
			t.Fatalf("leased %+v while the chunk is %+v with the debt %+v", d, c, c.Debt)
		}
		c.Debt.State, c.Debt.due = "SENDING", m.clock+15*time.Second
	}
	m.leased = append(m.leased, debts...)
}

func (m *machine) confirm(t *rapid.T) {
	debts := drawn(t, m.leased)
	answer(t, "confirm", m.store(t).ConfirmSent(context.Background(), debts), nil)
	for _, d := range debts {
		if c := m.find(d.Ref); c.Debt != nil && c.Debt.id == d.ID && c.Debt.State == "SENDING" {
			m.sent(c.Debt)
		}
	}
}

func (m *machine) setAside(t *rapid.T) {
	d := drawn(t, m.leased)[0]
	answer(t, "set aside", m.store(t).SetAsideDebt(context.Background(), d, "refused"), nil)
	if c := m.find(d.Ref); c.Debt != nil && c.Debt.id == d.ID && c.Debt.State == "SENDING" {
		m.sent(c.Debt)
	}
}

func (m *machine) sent(d *modelDebt) {
	d.State, d.sentAt, d.due = "SENT", m.clock, m.clock+modelRepublish<<d.Sends
	d.Sends++
}

func (m *machine) claim(t *rapid.T) {
	c := m.chunk(t)
	m.claimAs(t, c, uuid.NewString())
}

func (m *machine) claimAs(t *rapid.T, c *modelChunk, id string) {
	s := m.store(t)
	claim, refusal, err := s.Claim(context.Background(), c.Ref, id)
	answer(t, "claim", err, nil)
	if !m.mayClaim(c) {
		if claim != nil || refusal != m.refusal(c) {
			t.Fatalf("claim of %+v: %+v %q", c, claim, refusal)
		}
		return
	}
	if claim == nil {
		t.Fatalf("claim of %+v refused: %s", c, refusal)
	}
	if o := claim.Previous; (o != nil) != (c.Status == export.Running) || o != nil && !c.left(*o) {
		t.Fatalf("claim of %+v: previous %+v", c, o)
	}
	m.claimed(c, id)
	if claim.Attempt != c.Attempts {
		t.Fatalf("attempt %d, want %d", claim.Attempt, c.Attempts)
	}
	c.claimObject = claim
	m.claims = append(m.claims, claim)
}

// claimAgain repeats a claim, as after a lost answer; however late, it never begins a second time.
func (m *machine) claimAgain(t *rapid.T) {
	old, c := m.given(t)
	claim, refusal, err := m.store(t).Claim(context.Background(), old.Ref, old.ID)
	answer(t, "claim again", err, nil)
	if c.Status == export.Running && c.Claim == old.ID {
		if claim == nil || claim.Attempt != old.Attempt || !claim.StartedAt.Equal(old.StartedAt) {
			t.Fatalf("claim again: %+v, was %+v", claim, old)
		}
		c.Debt = nil
	} else if claim != nil || refusal != m.refusal(c) {
		t.Fatalf("claimed %+v twice under one ID: %+v %q", c, claim, refusal)
	}
}

func (m *machine) renew(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("no claim yet")
	}
	claims := drawn(t, m.claims)
	got, err := m.store(t).Renew(context.Background(), claims)
	answer(t, "renew", err, nil)
	for _, cl := range claims {
		c, want := m.find(cl.Ref), export.RenewalLost
		if c.Status == export.Running && c.Claim == cl.ID {
			want, c.lease = export.Renewed, m.clock+modelLease
		}
		if got[cl.ID] != want {
			t.Fatalf("renewal of %+v: %v, want %v", cl, got[cl.ID], want)
		}
	}
}

// current says what an owner's step must answer, and whether it changes the chunk.
func current(c *modelChunk, cl *export.Claim) error {
	if c.Status == export.Running && c.Claim == cl.ID {
		return nil
	}
	return export.ErrStale
}

func (m *machine) announce(t *rapid.T) {
	cl, c := m.given(t)
	want := current(c, cl)
	answer(t, "announce", m.store(t).Announce(context.Background(), cl, file(cl).ObjectKey, facts), want)
	if want == nil {
		c.Announced, c.lease = true, m.clock+modelLease
	}
}

func (m *machine) recordUpload(t *rapid.T) {
	cl, c := m.given(t)
	want := current(c, cl)
	answer(t, "record an upload", m.store(t).RecordUpload(context.Background(), cl, file(cl).ObjectKey, "u-"+cl.ID), want)
	if want == nil {
		c.Upload = true
	}
}

func (m *machine) done(t *rapid.T) {
	cl, c := m.given(t)
	m.doneBy(t, c, cl, func(f export.File, reused bool) error { return m.store(t).Done(context.Background(), cl, f, reused) })
}

func (m *machine) doneBy(t *rapid.T, c *modelChunk, cl *export.Claim, do func(export.File, bool) error) {
	want := current(c, cl)
	if c.Status == export.Done && c.Claim == cl.ID {
		want = nil
	}
	f := file(cl)
	answer(t, "done", do(f, false), want)
	if current(c, cl) == nil {
		c.Status, c.Upload, c.Debt = export.Done, false, nil
		if newest := m.byID(m.cache[f.ObjectKey]); newest == nil || newest.StartedAt.Before(cl.StartedAt) {
			m.cache[f.ObjectKey] = cl.ID
		}
	}
}

func (m *machine) byID(id string) *export.Claim {
	for _, c := range m.claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func (m *machine) retry(t *rapid.T) {
	cl, c := m.given(t)
	m.releaseBy(t, c, cl, false, m.store(t).Retry(context.Background(), cl, broken, modelRetry), modelRetry)
}

func (m *machine) giveBack(t *rapid.T) {
	cl, c := m.given(t)
	delay := rapid.SampledFrom([]time.Duration{0, modelRetry}).Draw(t, "delay")
	m.releaseBy(t, c, cl, true, m.store(t).GiveBack(context.Background(), cl, broken, delay), delay)
}

func (m *machine) releaseBy(t *rapid.T, c *modelChunk, cl *export.Claim, refund bool, got error, delay time.Duration) {
	want := export.ErrStale
	if c.Claim == cl.ID && c.Status != export.Done {
		want = nil
	}
	answer(t, "release", got, want)
	if current(c, cl) == nil {
		m.release(c, refund, delay)
	}
}

func (m *machine) deadLetter(t *rapid.T) {
	cl, c := m.given(t)
	want := export.ErrStale
	if c.Claim == cl.ID && c.Status != export.Done && c.Status != export.Pending {
		want = nil
	}
	answer(t, "dead-letter", m.store(t).DeadLetter(context.Background(), cl, broken), want)
	if current(c, cl) == nil {
		m.deadLettered(c)
	}
}
