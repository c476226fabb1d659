package db_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"exportd/db"
	"exportd/export"
)

// proxy stands between a store and its database. Once armed it loses one answer: the first that the server gives to a request holding the text.
type proxy struct {
	server string
	armed  atomic.Pointer[[]byte]
	lost   atomic.Int32
}

// throughProxy makes a store of its own on s's database, one connection, through a proxy.
func throughProxy(t *testing.T, s *db.Store) (*db.Store, *proxy) {
	t.Helper()
	u, err := url.Parse(s.URL)
	must(t, err)
	p := &proxy{server: u.Host}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	u.Host = l.Addr().String()
	cfg := s.Config
	cfg.URL, cfg.Pool, cfg.Worker = u.String(), 1, "behind the proxy"
	behind, err := db.Open(t.Context(), cfg)
	must(t, err)
	t.Cleanup(behind.Close)
	return behind, p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	var lose atomic.Bool
	both := func() { client.Close(); server.Close() }
	var done sync.WaitGroup
	done.Go(func() {
		defer both()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if text := p.armed.Load(); text != nil && bytes.Contains(buf[:n], *text) && p.armed.CompareAndSwap(text, nil) {
				lose.Store(true)
			}
			if _, werr := server.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	})
	done.Go(func() {
		defer both()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if n > 0 && lose.Load() {
				p.lost.Add(1)
				return
			}
			if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	})
	done.Wait()
}

// withLostAnswer has do lose its answer, and then repeats it until the database answers.
func (p *proxy) withLostAnswer(t *testing.T, text string, do func() error) {
	t.Helper()
	b := []byte(text)
	before := p.lost.Load()
	p.armed.Store(&b)
	if err := do(); err == nil || p.lost.Load() != before+1 {
		t.Fatalf("the answer to %q was to be lost; got %v", text, err)
	}
	eventually(t, func() *bool {
		err := do()
		if errors.Is(err, export.ErrStale) || errors.Is(err, export.ErrEnded) || errors.Is(err, export.ErrIdempotencyMismatch) {
			t.Fatalf("the repeat after a lost answer: %v", err)
		}
		ok := err == nil
		if !ok {
			return nil
		}
		return &ok
	})
}

func TestARepeatAfterALostAnswerAnswersAsTheFirstWould(t *testing.T) {
	t.Parallel()
	direct := setup(t)
	pool := sessions(t, direct)
	s, p := throughProxy(t, direct)
	ctx := context.Background()
	// Statements are prepared once per connection: with a warm connection the first answer is the one that tells of the commit. Every lost answer costs the
	// connection, so each step warms the next one up with a round of its own.
	round := func(lose string) {
		t.Helper()
		run := func(step, text string, do func() error) {
			t.Helper()
			if step == lose {
				p.withLostAnswer(t, text, do)
			} else if err := do(); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
		}
		r := submission(5, func(r *export.SubmitRequest) { r.IdempotencyKey, r.OnFailure = uuid.NewString(), export.Continue })
		var j export.Job
		run("submit", r.IdempotencyKey, func() (err error) { j, _, err = s.Submit(ctx, r); return err })
		refs := r.Refs(j.ID)
		claims := make([]*export.Claim, len(refs))
		for i, ref := range refs {
			id := uuid.NewString()
			run("claim", id, func() (err error) { claims[i], _, err = s.Claim(ctx, ref, id); return err })
			if claims[i] == nil || claims[i].Attempt != 1 {
				t.Fatalf("claim %+v", claims[i])
			}
		}
		run("announce", claims[0].ID, func() error { return s.Announce(ctx, claims[0], file(claims[0]).ObjectKey, facts) })
		run("record an upload", claims[1].ID, func() error { return s.RecordUpload(ctx, claims[1], "o", "u") })
		run("done", claims[0].ID, func() error { return s.Done(ctx, claims[0], file(claims[0]), false) })
		run("retry", claims[1].ID, func() error { return s.Retry(ctx, claims[1], broken, time.Hour) })
		run("give back", claims[2].ID, func() error { return s.GiveBack(ctx, claims[2], broken, 0) })
		run("dead-letter", "commit", func() error { return s.DeadLetter(ctx, claims[3], broken) })
		run("renew", claims[4].ID, func() error { _, err := s.Renew(ctx, claims[4:]); return err })
		run("cancel", "commit", func() error { return s.Cancel(ctx, "", j.ID) })
		run("cancelled", claims[4].ID, func() error { return s.Retry(ctx, claims[4], broken, 0) })
		var e *export.Ending
		run("pin", j.ID, func() (err error) {
			if e, err = s.Pin(ctx, j.ID); e == nil && err == nil { // pinned, but the answer was lost: the repair is a repin
				e, err = s.Repin(ctx, j.ID, 0)
			}
			return err
		})
		if e == nil {
			t.Fatal("not pinned")
		}
		run("end", j.ID, func() error { return s.End(ctx, *e) })
		got := job(t, direct, j.ID)
		if got.Status != export.Cancelled || got.Done != 1 || got.Failed != 1 || got.Cancelled != 3 {
			t.Fatalf("losing the answer of %q: job %+v", lose, got)
		}
		checkInvariants(t, pool)
	}
	for _, lose := range []string{"submit", "claim", "announce", "record an upload", "done", "retry", "give back", "dead-letter", "renew", "cancel", "cancelled", "pin", "end"} {
		round("")
		round(lose)
	}
	var attempts, jobs int
	must(t, pool.QueryRow(ctx, `select (select count(*) from chunk_attempt), (select count(*) from job)`).Scan(&attempts, &jobs))
	if jobs != 26 || attempts != 26*4 {
		t.Fatalf("%d jobs, %d attempts", jobs, attempts)
	}
}

func TestConnectionsThatAreKilledLoseNothing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(60))
	ctx, stop := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	killer.Go(func() {
		for ctx.Err() == nil {
			exec(t, pool, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'exportd' and random() < 0.5`)
			time.Sleep(100 * time.Millisecond)
		}
	})
	// persist is what the consumer does: the same call again until the database answers.
	persist := func(do func() error) error {
		for deadline := time.Now().Add(60 * time.Second); ; {
			err := do()
			if err == nil || errors.Is(err, export.ErrStale) || time.Now().After(deadline) {
				return err
			}
		}
	}
	work := make([]func() error, 16)
	for i := range work {
		work[i] = func() error {
			for n := i; n < len(refs); n += len(work) {
				id := uuid.NewString()
				var c *export.Claim
				err := persist(func() (err error) { c, _, err = s.Claim(context.Background(), refs[n], id); return err })
				if err != nil || c == nil || c.Attempt != 1 {
					return errors.Join(err, errors.New("not claimed at the first attempt"))
				}
				switch n % 3 {
				case 0:
					err = persist(func() error { return s.Done(context.Background(), c, file(c), false) })
				case 1:
					err = persist(func() error { return s.Retry(context.Background(), c, broken, time.Hour) })
				default:
					err = persist(func() error { return s.GiveBack(context.Background(), c, broken, time.Hour) })
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	together(t, work...)
	stop()
	killer.Wait()
	var done, retry, pending, spent int
	must(t, pool.QueryRow(t.Context(), `select count(*) filter (where status = 'DONE'), count(*) filter (where status = 'RETRY_WAIT'),
		count(*) filter (where status = 'PENDING'), sum(attempts) from job_chunk`).Scan(&done, &retry, &pending, &spent))
	if done != 20 || retry != 20 || pending != 20 || spent != 40 {
		t.Fatalf("done %d, retrying %d, pending %d, attempts %d", done, retry, pending, spent)
	}
	checkInvariants(t, pool)
}

// A bad request in a group fails alone. The group is made by holding the lock of a chunk until all requests wait.
func TestABadRequestDoesNotFailItsNeighbours(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	_, refs := submit(t, s, submission(21))
	ctx := context.Background()

	asks := make([]func() error, 0, 22)
	claims := make([]*export.Claim, len(refs))
	for i, ref := range refs {
		asks = append(asks, func() (err error) { claims[i], _, err = s.Claim(ctx, ref, uuid.NewString()); return err })
	}
	var bad error
	asks = append(asks, func() error { _, _, bad = s.Claim(ctx, refs[0], "no UUID"); return nil })
	must(t, meanwhile(t, pool, `select from job_chunk order by chunk_key limit 1 for update`, func() error { together(t, asks...); return nil }))
	if bad == nil {
		t.Fatal("the bad claim succeeded")
	}
	for i, c := range claims {
		if c == nil {
			t.Fatalf("claim %d was refused", i)
		}
	}

	asks = asks[:0]
	for i, c := range claims {
		f := file(c)
		if i == 7 {
			f.Rows = -1 // against a check of the table
		}
		asks = append(asks, func() error {
			err := s.Done(ctx, c, f, false)
			if i == 7 {
				bad, err = err, nil
			}
			return err
		})
	}
	bad = nil
	must(t, meanwhile(t, pool, `select from job_chunk order by chunk_key limit 1 for update`, func() error { together(t, asks...); return nil }))
	if bad == nil || errors.Is(bad, export.ErrStale) {
		t.Fatalf("the bad settlement: %v", bad)
	}
	checkInvariants(t, pool)
	if j := job(t, s, refs[0].JobID); j.Done != 20 || j.Running != 1 {
		t.Fatalf("job %+v", j)
	}
}
