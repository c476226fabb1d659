package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/db"
	"exportd/export"
)

// fleet is several stores on one database, as processes of a fleet have.
func fleet(t testing.TB, n int, change ...func(*db.Config)) []*db.Store {
	t.Helper()
	stores := []*db.Store{setup(t, change...)}
	for i := 1; i < n; i++ {
		cfg := stores[0].Config
		cfg.Worker = fmt.Sprint("w", i)
		s, err := db.Open(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		s.Careful(i%2 == 1) // both kinds of statements meet
		stores = append(stores, s)
	}
	return stores
}

// together runs all at once, from one barrier on.
func together(t *testing.T, all ...func() error) {
	t.Helper()
	barrier := make(chan struct{})
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, do := range all {
		wg.Go(func() {
			<-barrier
			errs[i] = do()
		})
	}
	close(barrier)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestOfFiftyClaimsOfAChunkOneWins(t *testing.T) {
	t.Parallel()
	stores := fleet(t, 2)
	for range 10 {
		_, refs := submit(t, stores[0], submission(1))
		var won atomic.Int32
		claims := make([]func() error, 50)
		for i := range claims {
			claims[i] = func() error {
				c, refusal, err := stores[i%2].Claim(context.Background(), refs[0], uuid.NewString())
				if c != nil {
					won.Add(1)
				} else if err == nil && refusal != export.RefusedRunning {
					return fmt.Errorf("refused: %s", refusal)
				}
				return err
			}
		}
		together(t, claims...)
		if won.Load() != 1 {
			t.Fatalf("%d claims won", won.Load())
		}
	}
	checkInvariants(t, sessions(t, stores[0]))
}

// A caller whose answer was late asks again while its first request still waits in line: both then meet in one group.
func TestWhatIsAskedForTwiceAtOnceIsDoneOnceAndAnsweredTwice(t *testing.T) {
	t.Parallel()
	stores := fleet(t, 2)
	ctx := context.Background()
	steps := map[string]func(*db.Store, *export.Claim) error{
		"announce":    func(s *db.Store, c *export.Claim) error { return s.Announce(ctx, c, file(c).ObjectKey, facts) },
		"done":        func(s *db.Store, c *export.Claim) error { return s.Done(ctx, c, file(c), false) },
		"retry":       func(s *db.Store, c *export.Claim) error { return s.Retry(ctx, c, broken, time.Hour) },
		"give back":   func(s *db.Store, c *export.Claim) error { return s.GiveBack(ctx, c, broken, 0) },
		"dead-letter": func(s *db.Store, c *export.Claim) error { return s.DeadLetter(ctx, c, broken) },
	}
	for name, do := range steps {
		_, refs := submit(t, stores[0], submission(1, func(r *export.SubmitRequest) { r.OnFailure = export.Continue }))
		id := uuid.NewString()
		var claimed atomic.Pointer[export.Claim]
		repeat := func(do func(*db.Store) error) {
			t.Helper()
			asks := make([]func() error, 20)
			for i := range asks {
				asks[i] = func() error { return do(stores[i%2]) }
			}
			together(t, asks...)
		}
		repeat(func(s *db.Store) error {
			c, refusal, err := s.Claim(ctx, refs[0], id)
			if err == nil && (c == nil || c.Attempt != 1) {
				return fmt.Errorf("claim: got %+v, refused %q", c, refusal)
			}
			claimed.Store(c)
			return err
		})
		repeat(func(s *db.Store) error {
			if err := do(s, claimed.Load()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	checkInvariants(t, sessions(t, stores[0]))
}

// finish is what a worker does after each settlement.
func finish(s *db.Store, id string, ends *atomic.Int32) error {
	e, err := s.Pin(context.Background(), id)
	if err != nil || e == nil {
		return err
	}
	ends.Add(1)
	return s.End(context.Background(), *e)
}

func TestAJobWhoseLastTwoChunksEndAtOnceEndsOnce(t *testing.T) {
	t.Parallel()
	stores := fleet(t, 2)
	for round := range 300 {
		id, refs := submit(t, stores[0], submission(2, func(r *export.SubmitRequest) { r.OnFailure = export.Continue }))
		a, b := claim(t, stores[0], refs[0]), claim(t, stores[1], refs[1])
		want := export.Completed
		var ends atomic.Int32
		together(t,
			func() error {
				return errors.Join(stores[0].Done(context.Background(), a, file(a), false), finish(stores[0], id, &ends))
			},
			func() (err error) {
				if round%3 == 0 {
					want = export.Failed
					err = stores[1].DeadLetter(context.Background(), b, broken)
				} else {
					err = stores[1].Done(context.Background(), b, file(b), false)
				}
				return errors.Join(err, finish(stores[1], id, &ends))
			})
		if j := job(t, stores[0], id); ends.Load() != 1 || j.Status != want {
			t.Fatalf("round %d: ended %d times, job %+v", round, ends.Load(), j)
		}
	}
	checkInvariants(t, sessions(t, stores[0]))
}

func TestTwoSubmissionsAtOnceUnderOneKeyMakeOneJob(t *testing.T) {
	t.Parallel()
	stores := fleet(t, 2)
	pool := sessions(t, stores[0])
	for round := range 40 {
		key := fmt.Sprint("k", round)
		ids, mismatches := sync.Map{}, atomic.Int32{}
		all := make([]func() error, 8)
		for i := range all {
			r := submission(5, func(r *export.SubmitRequest) { r.IdempotencyKey = key })
			if round%2 == 1 && i%2 == 1 {
				r.Priority = 9
			}
			all[i] = func() error {
				job, _, err := stores[i%2].Submit(context.Background(), r)
				if errors.Is(err, export.ErrIdempotencyMismatch) {
					mismatches.Add(1)
					return nil
				}
				if err == nil {
					ids.Store(job.ID, true)
				}
				return err
			}
		}
		together(t, all...)
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		if want := int32(round % 2 * 4); n != 1 || mismatches.Load() != want {
			t.Fatalf("%d jobs, %d mismatches of %d", n, mismatches.Load(), want)
		}
	}
	var chunks int
	must(t, pool.QueryRow(t.Context(), `select count(*) from job_chunk`).Scan(&chunks))
	if chunks != 40*5 {
		t.Fatalf("%d chunks", chunks)
	}
	checkInvariants(t, pool)
}

// storm is everybody at once on a few jobs, in two processes.
type storm struct {
	stores []*db.Store
	pool   *pgxpool.Pool
	jobs   []string
	refs   []export.Ref
	ends   atomic.Int32
}

func TestNothingIsLostWhenEverybodyActsAtOnce(t *testing.T) {
	t.Parallel()
	w := storm{stores: fleet(t, 2, func(c *db.Config) { c.Lease, c.Pool, c.Backlog = 150*time.Millisecond, 12, 40 })}
	w.pool = sessions(t, w.stores[0])
	for i := range 6 {
		id, refs := submit(t, w.stores[0], submission(40, func(r *export.SubmitRequest) {
			r.Items[0].Key, r.OnFailure = fmt.Sprint("K", i), []export.OnFailure{export.FailFast, export.Continue}[i%2]
		}))
		w.jobs, w.refs = append(w.jobs, id), append(w.refs, refs...)
	}
	ctx, stop := context.WithTimeout(t.Context(), 12*time.Second)
	defer stop()
	fail := make(chan error, 100)
	var wg sync.WaitGroup
	actor := func(n int, act func(*db.Store) error) {
		for i := range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := act(w.stores[i%2]); err != nil && !errors.Is(err, export.ErrStale) && !errors.Is(err, export.ErrEnded) {
						select {
						case fail <- err:
						default:
						}
						stop()
						return
					}
				}
			})
		}
	}
	actor(8, w.work)
	actor(2, w.relay)
	actor(2, w.sweep)
	actor(2, func(s *db.Store) error { return finish(s, w.jobs[rand.N(len(w.jobs))], &w.ends) })
	actor(2, func(s *db.Store) error {
		if rand.N(10) > 0 {
			_, err := s.Redrive(context.Background(), "", w.jobs[rand.N(len(w.jobs))])
			return err
		}
		return s.Cancel(context.Background(), "", w.jobs[rand.N(len(w.jobs))])
	})
	looks := 0
	for ctx.Err() == nil { // each look is one snapshot, and no snapshot may show a breach
		checkInvariants(t, w.pool)
		looks++
	}
	wg.Wait()
	select {
	case err := <-fail:
		t.Fatal(err)
	default:
	}
	w.settle(t)
	t.Logf("%d looks, %d ends", looks, w.ends.Load())
	if w.ends.Load() < 6 {
		t.Fatalf("only %d ends: the storm was none", w.ends.Load())
	}
}

// work claims a chunk by chance, as a stray message makes a worker do, and ends the claim in some way, or dies.
func (w *storm) work(s *db.Store) error {
	ctx := context.Background()
	c, _, err := s.Claim(ctx, w.refs[rand.N(len(w.refs))], uuid.NewString())
	if err != nil || c == nil {
		return err
	}
	if rand.N(4) == 0 {
		if _, err := s.Renew(ctx, []*export.Claim{c}); err != nil {
			return err
		}
	}
	switch rand.N(12) {
	case 0:
		return nil // dies
	case 1, 2:
		return s.Retry(ctx, c, broken, time.Duration(rand.N(20))*time.Millisecond)
	case 3:
		return s.GiveBack(ctx, c, broken, 0)
	case 4:
		return s.DeadLetter(ctx, c, broken)
	case 5: // late: others may have taken over
		time.Sleep(200 * time.Millisecond)
	}
	if err := s.Announce(ctx, c, file(c).ObjectKey, facts); err != nil {
		return err
	}
	return s.Done(ctx, c, file(c), false)
}

func (w *storm) relay(s *db.Store) error {
	debts, err := s.LeaseDebts(context.Background(), 1+rand.N(20))
	if err != nil || rand.N(5) == 0 {
		return err
	}
	return s.ConfirmSent(context.Background(), debts)
}

func (w *storm) sweep(s *db.Store) error {
	ctx := context.Background()
	if _, err := s.OweExpired(ctx); err != nil {
		return err
	}
	if _, err := s.CancelLeftovers(ctx); err != nil {
		return err
	}
	list, err := s.Expired(ctx)
	if err != nil {
		return err
	}
	for _, e := range list {
		if rand.N(2) == 0 {
			c := &export.Claim{ID: e.ClaimID, Ref: e.Ref, StartedAt: time.Now()}
			err = s.DoneExpired(ctx, e, file(c))
		} else {
			err = s.EndExpired(ctx, e)
		}
		if err != nil && !errors.Is(err, export.ErrStale) {
			return err
		}
	}
	jobs, err := s.Unfinished(ctx, 0)
	for _, id := range jobs {
		err = errors.Join(err, finish(s, id, &w.ends))
	}
	return err
}

// settle ends all jobs from the debts alone, as a fleet that is healthy again would.
func (w *storm) settle(t *testing.T) {
	t.Helper()
	s := w.stores[0]
	deadline := time.Now().Add(30 * time.Second)
	for {
		exec(t, w.pool, `update dispatch set due_at = now() where state <> 'READY'`)
		exec(t, w.pool, `update job_chunk set next_retry_at = now() where status = 'RETRY_WAIT'`)
		must(t, w.sweep(s))
		debts, err := s.LeaseDebts(t.Context(), 1000)
		must(t, err)
		for _, d := range debts {
			c, _, err := s.Claim(t.Context(), d.Ref, uuid.NewString())
			must(t, err)
			if c != nil {
				must(t, s.Done(t.Context(), c, file(c), false))
			}
		}
		for _, id := range w.jobs {
			must(t, finish(s, id, &w.ends))
			if e, err := s.Repin(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			} else if e != nil {
				must(t, s.End(t.Context(), *e))
			}
		}
		checkInvariants(t, w.pool)
		if !slices.ContainsFunc(w.jobs, func(id string) bool { return !job(t, s, id).Status.Ended() }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("jobs hang")
		}
	}
	var debts int
	must(t, w.pool.QueryRow(t.Context(), `select count(*) from dispatch`).Scan(&debts))
	if debts > 0 {
		t.Fatalf("%d debts are left", debts)
	}
}
