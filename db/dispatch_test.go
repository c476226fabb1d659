package db_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportd/db"
	"exportd/export"
)

func roomy(c *db.Config) { c.Backlog = 1 << 20 }

func lease(t testing.TB, s *db.Store, limit int) []export.Debt {
	t.Helper()
	debts, err := s.LeaseDebts(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return debts
}

// shares counts the debts of each job.
func shares(debts []export.Debt) map[string]int {
	n := map[string]int{}
	for _, d := range debts {
		n[d.JobID]++
	}
	return n
}

func prioritised(n, priority int) export.SubmitRequest {
	return submission(n, func(r *export.SubmitRequest) { r.Priority = priority })
}

func TestRelaysTogetherRespectTheBacklog(t *testing.T) {
	t.Parallel()
	const bound = 50
	stores := fleet(t, 3, func(c *db.Config) { c.Backlog = bound })
	pool := sessions(t, stores[0])
	submit(t, stores[0], submission(400))
	var leased, over atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			var n int32
			if err := pool.QueryRow(context.Background(), `select count(*) from dispatch where state in ('SENDING', 'SENT')`).Scan(&n); err == nil && n > bound {
				over.Store(n)
			}
		}
	})
	relays := make([]func() error, 12)
	for i := range relays {
		relays[i] = func() error {
			for range 10 {
				debts, err := stores[i%3].LeaseDebts(context.Background(), 1+i)
				if err != nil {
					return err
				}
				leased.Add(int32(len(debts)))
				if err := stores[i%3].ConfirmSent(context.Background(), debts[:len(debts)/2]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	together(t, relays...)
	stop()
	watch.Wait()
	if over.Load() > 0 || leased.Load() != bound {
		t.Fatalf("leased %d, at one time %d were in the broker; the bound is %d", leased.Load(), over.Load(), bound)
	}
}

func TestTheBacklogFollowsTheFleet(t *testing.T) {
	t.Parallel()
	stores := fleet(t, 2)
	submit(t, stores[0], submission(300))
	if n := len(lease(t, stores[0], 1000)); n != 64 {
		t.Fatalf("without workers: %d", n)
	}
	for _, s := range stores {
		must(t, s.Heartbeat(t.Context(), "h", "v", 50, 0))
	}
	if n := len(lease(t, stores[0], 1000)); n != 200-64 {
		t.Fatalf("with 100 places: %d more", n)
	}
	must(t, stores[1].Goodbye(t.Context()))
	if n := len(lease(t, stores[0], 1000)); n != 0 {
		t.Fatalf("with 50 places: %d more", n)
	}
}

func TestASmallJobBehindAGiantOneIsNextInLine(t *testing.T) {
	t.Parallel()
	s := setup(t, roomy)
	submit(t, s, submission(10_000))
	lease(t, s, 500)
	small, _ := submit(t, s, submission(2))
	if n := shares(lease(t, s, 10))[small]; n != 2 {
		t.Fatalf("%d of 2 chunks are among the next ten", n)
	}
}

func TestPrioritiesShareByWeight(t *testing.T) {
	t.Parallel()
	s := setup(t, roomy)
	low, _ := submit(t, s, prioritised(1000, 0))
	high, _ := submit(t, s, prioritised(1000, 9))
	n := shares(lease(t, s, 550))
	if n[low] < 45 || n[low] > 55 {
		t.Fatalf("priority 9 got %d, priority 0 got %d", n[high], n[low])
	}
}

func TestOfManyJobsNobodyStarves(t *testing.T) {
	t.Parallel()
	s := setup(t, roomy)
	giant, _ := submit(t, s, submission(3000))
	for range 200 {
		submit(t, s, submission(5))
	}
	for turn := 1; turn <= 5; turn++ { // each turn gives every job one
		n := shares(lease(t, s, 201))
		if len(n) < 199 || n[giant] > 3 {
			t.Fatalf("turn %d: %d of 201 jobs, the giant %d times", turn, len(n), n[giant])
		}
	}
	// Jobs that keep coming do not starve the giant either.
	got := 0
	for range 50 {
		submit(t, s, submission(1))
		submit(t, s, submission(1))
		got += shares(lease(t, s, 3))[giant]
	}
	if got < 40 {
		t.Fatalf("the giant got %d of 150", got)
	}
}

func TestRetriesTakeTheirTurn(t *testing.T) {
	t.Parallel()
	s := setup(t, roomy)
	pool := sessions(t, s)
	failing, _ := submit(t, s, submission(300))
	for _, d := range lease(t, s, 300) {
		must(t, s.Retry(t.Context(), claim(t, s, d.Ref), broken, time.Hour))
	}
	fresh, _ := submit(t, s, submission(300))
	lease(t, s, 100)
	exec(t, pool, `update dispatch set due_at = now() where state = 'WAIT'`)
	exec(t, pool, `update job_chunk set next_retry_at = now() where status = 'RETRY_WAIT'`)
	n := shares(lease(t, s, 100))
	if n[failing] < 45 || n[fresh] < 45 {
		t.Fatalf("300 retries got %d, 200 fresh chunks got %d", n[failing], n[fresh])
	}
}

func TestAnUnclaimedMessageIsPublishedAgainAfterTwiceAsLong(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *db.Config) { c.RepublishAfter = 5 * time.Minute })
	pool := sessions(t, s)
	submit(t, s, submission(1))
	for sends := range 4 {
		debts := lease(t, s, 10)
		if len(debts) != 1 || debts[0].Sends != sends || debts[0].Attempt != 1 {
			t.Fatalf("after %d sends: %+v", sends, debts)
		}
		must(t, s.ConfirmSent(t.Context(), debts))
		var wait time.Duration
		must(t, pool.QueryRow(t.Context(), `select due_at - sent_at from dispatch`).Scan(&wait))
		if want := 5 * time.Minute << sends; wait != want {
			t.Fatalf("due after %s, want %s", wait, want)
		}
		next, err := s.NextDue(t.Context())
		must(t, err)
		if want := min(wait, time.Hour); next > want || next < want-time.Minute {
			t.Fatalf("next due in %s, want %s", next, want)
		}
		exec(t, pool, `update dispatch set due_at = now() - interval '1 s'`)
		if next, err = s.NextDue(t.Context()); err != nil || next != 0 {
			t.Fatalf("next due in %s: %v", next, err)
		}
	}
}

func TestWhatARelayLeasedAndLostIsLeasedAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	submit(t, s, submission(3))
	lost := lease(t, s, 10)
	if len(lost) != 3 || len(lease(t, s, 10)) != 0 {
		t.Fatal("not leased for a while")
	}
	exec(t, pool, `update dispatch set due_at = now()`)
	if n := len(lease(t, s, 10)); n != 3 {
		t.Fatalf("%d of 3 leased again", n)
	}
}

func TestAConsumerTakesDebtsOnceTheFirstAreOfAnAge(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	submit(t, s, submission(40))
	must(t, s.ConfirmSent(t.Context(), lease(t, s, 20)))
	take := func(limit, want int, what string) (debts []export.Debt) {
		t.Helper()
		debts, err := s.TakeDebts(t.Context(), limit, 30*time.Second)
		if err != nil || len(debts) != want {
			t.Fatalf("%s: took %d, want %d (%v)", what, len(debts), want, err)
		}
		return debts
	}
	take(100, 0, "fresh")
	exec(t, pool, `update dispatch set sent_at = now() - interval '40 s', due_at = now() + interval '1 hour' where ctid in (select ctid from dispatch where state = 'SENT' limit 5)`)
	for _, d := range take(5, 5, "sent and unclaimed") {
		if d.Sends != 1 {
			t.Errorf("%+v went before the old ones", d)
		}
	}
	take(100, 0, "fresh again")
	exec(t, pool, `update dispatch set due_at = now() - interval '40 s' where state = 'READY' and rank = (select max(rank) from dispatch where state = 'READY')`)
	take(3, 3, "in front of an old one")
	take(100, 17, "the rest")
	take(100, 0, "all taken")
	if debts, err := s.TakeDebts(t.Context(), 100, 0); err != nil || len(debts) != 0 {
		t.Fatalf("without an age: took %d (%v)", len(debts), err)
	}
	submit(t, s, submission(3))
	if debts, err := s.TakeDebts(t.Context(), 2, 0); err != nil || len(debts) != 2 {
		t.Fatalf("without an age: took %d (%v)", len(debts), err)
	}
}

// While jobs keep coming, the front of the line is young: here a tenth of the line.
func TestYoungJobsDoNotKeepConsumersFromTheOldOnes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	for range 4 {
		submit(t, s, submission(500))
	}
	exec(t, pool, `update dispatch set owed_at = now() - interval '1 min', due_at = now() - interval '1 min' where rank > (select percentile_cont(0.1) within group (order by rank) from dispatch)`)
	for taken := 0; taken < 2000; {
		debts, err := s.TakeDebts(t.Context(), 100, 30*time.Second)
		must(t, err)
		if len(debts) == 0 {
			t.Fatalf("none after %d", taken)
		}
		taken += len(debts)
	}
}

func TestARefusedDebtIsSetAsideAndComesBack(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	submit(t, s, submission(1))
	d := lease(t, s, 1)[0]
	must(t, s.SetAsideDebt(t.Context(), d, "bad\x00 header"))
	if len(lease(t, s, 1)) != 0 {
		t.Fatal("leased at once")
	}
	exec(t, pool, `update dispatch set due_at = now()`)
	if debts := lease(t, s, 1); len(debts) != 1 || debts[0].Sends != 1 {
		t.Fatalf("%+v", debts)
	}
}

func TestTheOutboxGivesEachMessageUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	for i := range 3 {
		must(t, s.ParkAsItCame(t.Context(), export.Message{Body: []byte{0, 255, byte(i)}, Headers: map[string]string{"k": fmt.Sprint(i)}}))
	}
	first, err := s.LeaseOutbox(t.Context(), export.OutboxParking, 2)
	must(t, err)
	if len(first) != 2 || first[0].Headers["k"] != "0" || first[0].Body[1] != 255 || first[0].Tries != 0 {
		t.Fatalf("%+v", first)
	}
	must(t, s.DeleteOutbox(t.Context(), []int64{first[0].ID, -1}))
	must(t, s.SetAsideOutbox(t.Context(), first[1].ID, "refused"))
	exec(t, pool, `update outbox set due_at = now() - interval '1 s'`)
	second, err := s.LeaseOutbox(t.Context(), export.OutboxParking, 10)
	must(t, err)
	if len(second) != 2 || second[0].Tries+second[1].Tries != 1 {
		t.Fatalf("%+v", second)
	}
	if other, err := s.LeaseOutbox(t.Context(), "https://elsewhere", 10); err != nil || len(other) != 0 {
		t.Fatalf("%+v %v", other, err)
	}
}
