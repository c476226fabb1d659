package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exportd/export"
	"exportd/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 30 * time.Second

var secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("thirty-two bytes of a secret key"))

// ledger is an outbox in memory. What is put off is due at once, and its delay is noted.
type ledger struct {
	mu      sync.Mutex
	rows    []export.Webhook
	leased  map[int64]bool
	changed chan struct{} // told of every record
	delays  map[string][]time.Duration
	reasons map[string][]string
	deleted []string
	broken  int // of so many records to come the answer is an error
	hold    bool
}

func newLedger(rows ...export.Webhook) *ledger {
	l := &ledger{leased: map[int64]bool{}, changed: make(chan struct{}, 1000), delays: map[string][]time.Duration{}, reasons: map[string][]string{}}
	for i, r := range rows {
		r.ID, r.Job.ID = int64(i+1), fmt.Sprintf("J20260102_%06d", i+1)
		if r.EventID == "" {
			r.EventID = fmt.Sprintf("evt_%d", i+1)
		}
		u, err := url.Parse(r.URL)
		if err != nil {
			panic(err)
		}
		r.Host = u.Host
		l.rows = append(l.rows, r)
	}
	return l
}

func (l *ledger) LeaseWebhooks(_ context.Context, busy []string, limit int) (events []export.Webhook, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hosts := slices.Clone(busy)
	for i := range l.rows {
		if r := &l.rows[i]; !l.leased[r.ID] && !slices.Contains(hosts, r.Host) && len(events) < limit {
			hosts = append(hosts, r.Host)
			l.leased[r.ID] = true
			r.Tries++
			events = append(events, *r)
		}
	}
	return events, nil
}

func (l *ledger) PutOffWebhook(_ context.Context, e export.Webhook, delay time.Duration, reason string) error {
	return l.record(e.ID, func() {
		l.delays[e.EventID] = append(l.delays[e.EventID], delay)
		l.reasons[e.EventID] = append(l.reasons[e.EventID], reason)
	})
}

func (l *ledger) DeleteOutbox(_ context.Context, ids []int64) error {
	return l.record(ids[0], func() {
		i := slices.IndexFunc(l.rows, func(r export.Webhook) bool { return r.ID == ids[0] })
		l.deleted = append(l.deleted, l.rows[i].EventID)
		l.rows = slices.Delete(l.rows, i, i+1)
	})
}

func (l *ledger) DropWebhook(ctx context.Context, e export.Webhook) error {
	return l.DeleteOutbox(ctx, []int64{e.ID})
}

func (l *ledger) record(id int64, do func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leased[id] = l.hold
	if l.broken > 0 {
		l.broken--
		return errors.New("the database is away")
	}
	do()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return nil
}

// until waits for a state of the ledger.
func (l *ledger) until(t *testing.T, what string, ask func() bool) {
	t.Helper()
	over := time.After(limit)
	for {
		l.mu.Lock()
		ok := ask()
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-l.changed:
		case <-over:
			t.Fatalf("%s: not in time; deleted %v, reasons %v", what, l.deleted, l.reasons)
		}
	}
}

func body(j export.Job) ([]byte, error) { return json.Marshal(map[string]any{"data": j.ID}) }

type world struct {
	*webhook.Deliverer
	stop func() // ends Run and waits for it
	log  *safeLog
}

// deliver runs a deliverer on the ledger until the test ends.
func deliver(t *testing.T, l *ledger, change ...func(*webhook.Config)) world {
	t.Helper()
	secrets, err := webhook.ParseSecrets(secret)
	if err != nil {
		t.Fatal(err)
	}
	log := &safeLog{}
	cfg := webhook.Config{
		Store: l, Secrets: secrets, AllowPrivate: true, Body: body, Version: "v1", Log: slog.New(slog.NewTextHandler(log, nil)),
		RetryFirst: time.Millisecond, RetryMost: time.Hour,
	}
	for _, f := range change {
		f(&cfg)
	}
	d := webhook.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return world{d, stop, log}
}

// heard is one call that a receiver got.
type heard struct {
	*http.Request
	body []byte
}

// receiver answers by what the test says and keeps what it hears.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	heard []heard
}

func receive(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	rec := &receiver{}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		rec.heard = append(rec.heard, heard{r, b})
		n := len(rec.heard)
		rec.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(rec.Close)
	return rec
}

func (r *receiver) all() []heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

type safeLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeLog) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeLog) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
