package broker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/export"
)

const lease = 15 * time.Second

// ledger is the database's side of the relay, in memory: rows that are due, sent, or set aside.
type ledger struct {
	mu       sync.Mutex
	debts    []*row
	notices  []*row
	room     int // most debts a lease gives, as if the backlog had no more room; 0: any
	failures int // of the next confirmations
	leases   []int
}

type row struct {
	debt     export.Debt
	notice   export.OutboxMessage
	due      time.Time
	sent     int
	setAside string
}

func newLedger(debts, notices int) *ledger {
	l := &ledger{}
	for i := range debts {
		l.debts = append(l.debts, &row{debt: export.Debt{Ref: export.Ref{JobID: "J20260102_000123", Key: string(rune('A' + i%26)), Date: export.Date(20250101 + i/26)}}})
	}
	for i := range notices {
		l.notices = append(l.notices, &row{notice: export.OutboxMessage{ID: int64(i), Destination: export.OutboxParking, Message: export.Message{Body: []byte("{}")}}})
	}
	return l
}

func lend(rows []*row, limit int) (taken []*row) {
	for _, r := range rows {
		if len(taken) < limit && r.sent == 0 && r.setAside == "" && !r.due.After(time.Now()) {
			r.due = time.Now().Add(lease)
			taken = append(taken, r)
		}
	}
	return taken
}

func (l *ledger) LeaseDebts(_ context.Context, limit int) (debts []export.Debt, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room > 0 {
		limit = min(limit, l.room)
	}
	for _, r := range lend(l.debts, limit) {
		debts = append(debts, r.debt)
	}
	if len(debts) > 0 {
		l.leases = append(l.leases, limit)
	}
	return debts, nil
}

func (l *ledger) ConfirmSent(_ context.Context, sent []export.Debt) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failures > 0 {
		l.failures--
		return errors.New("the database is away")
	}
	for _, d := range sent {
		l.find(d).sent++
	}
	return nil
}

func (l *ledger) ReturnDebts(_ context.Context, unsent []export.Debt) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range unsent {
		l.find(d).due = time.Now()
	}
	return nil
}

func (l *ledger) SetAsideDebt(_ context.Context, d export.Debt, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find(d).setAside = reason
	return nil
}

func (l *ledger) find(d export.Debt) *row {
	for _, r := range l.debts {
		if r.debt.Ref == d.Ref {
			return r
		}
	}
	return nil
}

func (l *ledger) LeaseOutbox(_ context.Context, destination string, limit int) (msgs []export.OutboxMessage, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range lend(l.notices, limit) {
		msgs = append(msgs, r.notice)
	}
	return msgs, nil
}

func (l *ledger) DeleteOutbox(_ context.Context, ids []int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.notices[id].sent++
	}
	return nil
}

func (l *ledger) SetAsideOutbox(_ context.Context, id int64, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notices[id].setAside = reason
	return nil
}

func (l *ledger) NextDue(context.Context) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := time.Hour
	for _, r := range append(l.debts, l.notices...) {
		if r.sent == 0 && r.setAside == "" {
			next = min(next, max(time.Until(r.due), 0))
		}
	}
	return next, nil
}

// count is how many rows of each kind were sent at least once.
func (l *ledger) count() (debts, notices int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.debts {
		debts += min(r.sent, 1)
	}
	for _, r := range l.notices {
		notices += min(r.sent, 1)
	}
	return debts, notices
}

// wire is a broker that answers as the test says.
type wire struct {
	mu      sync.Mutex
	answer  func(queue string, msgs []export.Message) error
	batches map[string][]int
}

func (w *wire) Publish(_ context.Context, queue string, msgs []export.Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batches == nil {
		w.batches = map[string][]int{}
	}
	w.batches[queue] = append(w.batches[queue], len(msgs))
	if w.answer == nil {
		return nil
	}
	return w.answer(queue, msgs)
}

func (w *wire) say(answer func(queue string, msgs []export.Message) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer, w.batches = answer, nil
}

// relaying runs a relay in a bubble of fake time until check returns.
func relaying(t *testing.T, l *ledger, w *wire, check func(r *broker.Relay)) {
	synctest.Test(t, func(t *testing.T) {
		r := broker.NewRelay(broker.RelayConfig{Store: l, Publisher: w, WorkQueue: "work", ParkingQueue: "parking", Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(ended)
		}()
		synctest.Wait()
		check(r)
		cancel()
		<-ended
	})
}

func TestRelaySendsEverythingOnceInBatches(t *testing.T) {
	l, w := newLedger(1200, 7), &wire{}
	relaying(t, l, w, func(r *broker.Relay) {
		if debts, notices := l.count(); debts != 1200 || notices != 7 {
			t.Errorf("sent %d debts, %d notices", debts, notices)
		}
		if diff := cmp.Diff(map[string][]int{"work": {500, 500, 200}, "parking": {7}}, w.batches); diff != "" {
			t.Error(diff)
		}
		if s := r.Stats(); s.Published != 1200 || s.Parked != 7 || s.Batches != 4 || s.Failures != 0 {
			t.Errorf("%+v", s)
		}
	})
}

type unreachable struct{ error }

func (unreachable) Unsent() bool { return true }

func TestRelayGivesBackWhatReachedNoBroker(t *testing.T) {
	l, w := newLedger(3, 0), &wire{}
	w.say(func(string, []export.Message) error { return unreachable{errors.New("connection refused")} })
	relaying(t, l, w, func(r *broker.Relay) {
		if due, _ := l.NextDue(t.Context()); due != 0 {
			t.Errorf("due only in %s", due)
		}
		w.say(nil)
		time.Sleep(2 * time.Second) // less than a lease
		synctest.Wait()
		if debts, _ := l.count(); debts != 3 {
			t.Errorf("sent %d debts", debts)
		}
	})
}

func TestRelayIsWokenAndOtherwiseLooksOnceASecond(t *testing.T) {
	l, w := newLedger(0, 0), &wire{}
	relaying(t, l, w, func(r *broker.Relay) {
		add := func() {
			l.mu.Lock()
			l.debts = append(l.debts, newLedger(len(l.debts)+1, 0).debts[len(l.debts)])
			l.mu.Unlock()
		}
		add()
		r.Wake()
		synctest.Wait()
		if debts, _ := l.count(); debts != 1 {
			t.Error("not sent after Wake")
		}
		add()
		time.Sleep(time.Second)
		synctest.Wait()
		if debts, _ := l.count(); debts != 2 {
			t.Error("not sent within a second without Wake")
		}
	})
}

// Otherwise it would send message by message what its backlog lets through.
func TestRelayThatMovedAllItCouldWaitsForMoreOrForWake(t *testing.T) {
	l, w := newLedger(100, 0), &wire{}
	l.room = 1
	relaying(t, l, w, func(r *broker.Relay) {
		sent := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if debts, _ := l.count(); debts != want {
				t.Errorf("sent %d %s, want %d", debts, when, want)
			}
		}
		sent(1, "at first")
		r.Wake()
		sent(2, "when woken")
		time.Sleep(39 * time.Millisecond)
		sent(2, "before the pause is over")
		time.Sleep(time.Millisecond)
		sent(3, "after the pause")
	})
}

func TestRelaySetsAsideOnlyTheRowThatIsRefusedAlone(t *testing.T) {
	l, w := newLedger(40, 3), &wire{}
	w.say(func(_ string, msgs []export.Message) error {
		for _, m := range msgs {
			if m.Headers[export.HeaderChunkKey] == "key=C:date=20250101" {
				return &broker.RefusedError{Message: "too bad"}
			}
		}
		return nil
	})
	relaying(t, l, w, func(r *broker.Relay) {
		time.Sleep(time.Minute)
		if debts, notices := l.count(); debts != 39 || notices != 3 {
			t.Errorf("sent %d debts, %d notices", debts, notices)
		}
		for _, d := range l.debts {
			if bad := d.debt.Key == "C" && d.debt.Date == 20250101; bad != (d.setAside == "too bad") || d.sent > 1 {
				t.Errorf("%v: set aside %q, sent %d times", d.debt.Ref, d.setAside, d.sent)
			}
		}
	})
}

func TestRelaySetsNothingAsideWhenEverythingIsRefused(t *testing.T) {
	l, w := newLedger(300, 5), &wire{}
	w.say(func(queue string, msgs []export.Message) error {
		if queue == "work" {
			return &broker.RefusedError{Message: "Persistent store is Full"}
		}
		return nil
	})
	relaying(t, l, w, func(r *broker.Relay) {
		time.Sleep(10 * time.Minute)
		if debts, notices := l.count(); debts != 0 || notices != 5 {
			t.Errorf("sent %d debts, %d notices; the parking queue is another one", debts, notices)
		}
		for _, d := range l.debts {
			if d.setAside != "" {
				t.Fatalf("%v is set aside: %s", d.debt.Ref, d.setAside)
			}
		}
		w.mu.Lock()
		tries := len(w.batches["work"])
		w.mu.Unlock()
		if tries > 5*45 { // five frames a round, a round every 15 to 30 s, faster at first
			t.Errorf("%d tries in ten minutes", tries)
		}
		w.say(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if debts, _ := l.count(); debts != 300 {
			t.Errorf("%d debts sent a minute after the broker recovered", debts)
		}
	})
}

func TestRelayBacksOffHalvesAndRecovers(t *testing.T) {
	l, w := newLedger(2000, 0), &wire{}
	w.say(func(string, []export.Message) error { return context.DeadlineExceeded })
	relaying(t, l, w, func(r *broker.Relay) {
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		w.mu.Lock()
		tries := w.batches["work"]
		w.mu.Unlock()
		if n := len(tries); n < 30 || n > 140 {
			t.Errorf("%d tries in half an hour", n)
		}
		if diff := cmp.Diff([]int{500, 250, 125, 62, 31, 15, 7, 3, 1, 1}, tries[:10]); diff != "" {
			t.Error(diff)
		}
		w.say(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if debts, _ := l.count(); debts != 2000 {
			t.Errorf("%d debts sent a minute after the broker recovered", debts)
		}
		if last := l.leases[len(l.leases)-1]; last != 500 {
			t.Errorf("the batch has grown to %d only", last)
		}
	})
}

func TestRelaySendsAgainWhatTheDatabaseDidNotHearOf(t *testing.T) {
	l, w := newLedger(10, 0), &wire{}
	l.failures = 1
	relaying(t, l, w, func(r *broker.Relay) {
		time.Sleep(lease + 2*time.Second)
		synctest.Wait()
		if debts, _ := l.count(); debts != 10 {
			t.Errorf("sent %d debts", debts)
		}
		if diff := cmp.Diff([]int{10, 10}, w.batches["work"]); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRelayOverActiveMQ(t *testing.T) {
	srv := brokertest.ActiveMQ(t)
	cfg, work, parking := srv.Config(t), brokertest.Queue(t), brokertest.Queue(t)
	l := newLedger(1200, 3)
	p := broker.NewPublisher(cfg)
	defer p.Close()
	r := broker.NewRelay(broker.RelayConfig{Store: l, Publisher: p, WorkQueue: work, ParkingQueue: parking, Log: brokertest.Log(t)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(ended)
	}()
	deadline := time.Now().Add(30 * time.Second)
	for debts, notices := l.count(); debts+notices < 1203; debts, notices = l.count() {
		if time.Now().After(deadline) {
			t.Fatalf("sent %d debts, %d notices", debts, notices)
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	<-ended
	for queue, want := range map[string]int{work: 1200, parking: 3} {
		if n, err := broker.Purge(t.Context(), cfg, queue); err != nil || n != want {
			t.Errorf("%s holds %d messages (%v), want %d", queue, n, err, want)
		}
	}
}
