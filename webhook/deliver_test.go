package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exportd/export"
	"exportd/webhook"
)

func status(code int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// verify checks a call as a receiver does.
func verify(t *testing.T, h heard) {
	t.Helper()
	secrets, err := webhook.ParseSecrets(secret)
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(h.Header.Get("webhook-timestamp"), 10, 64)
	if at := time.Unix(seconds, 0); err != nil || time.Since(at).Abs() > time.Minute || h.Header.Get("webhook-signature") != secrets.Sign(h.Header.Get("webhook-id"), at, h.body) {
		t.Errorf("a bad signature: %v %v", err, h.Header)
	}
}

func TestTheReceiverIsToldOnceAndCanVerifyIt(t *testing.T) {
	t.Parallel()
	rec := receive(t, status(204))
	l := newLedger(export.Webhook{URL: rec.URL + "/path?key=hidden"})
	w := deliver(t, l)
	l.until(t, "it is taken", func() bool { return len(l.deleted) == 1 })
	w.stop()
	calls := rec.all()
	if len(calls) != 1 || w.Delivered.Load() != 1 || w.Failed.Load() != 0 {
		t.Fatalf("%d calls", len(calls))
	}
	c := calls[0]
	verify(t, c)
	if c.Method != "POST" || c.URL.String() != "/path?key=hidden" || c.Header.Get("Content-Type") != "application/json" || c.Header.Get("User-Agent") != "exportd/v1" ||
		c.Header.Get("webhook-id") != "evt_1" || string(c.body) != `{"data":"J20260102_000001"}` {
		t.Errorf("%s %s %v %s", c.Method, c.URL, c.Header, c.body)
	}
	if log := w.log.String(); strings.Contains(log, "hidden") || !strings.Contains(log, "jobId=J20260102_000001") {
		t.Error(log)
	}
}

func TestWhatFailsIsTriedAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	codes := []int{500, 404, 301, 429, 200}
	rec := receive(t, func(n int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
		w.WriteHeader(codes[min(n, len(codes))-1])
	})
	l := newLedger(export.Webhook{URL: rec.URL + "/here"})
	w := deliver(t, l)
	l.until(t, "it is taken", func() bool { return len(l.deleted) == 1 })
	w.stop()
	calls := rec.all()
	if len(calls) != len(codes) || w.Failed.Load() != 4 || w.Delivered.Load() != 1 {
		t.Fatalf("%d calls, %d failed, %d delivered", len(calls), w.Failed.Load(), w.Delivered.Load())
	}
	for _, c := range calls {
		verify(t, c)
		if c.Header.Get("webhook-id") != "evt_1" || !bytes.Equal(c.body, calls[0].body) || c.URL.Path != "/here" {
			t.Errorf("%s %v %s", c.URL, c.Header, c.body)
		}
	}
	for i, delay := range l.delays["evt_1"] {
		if most := time.Millisecond << i; delay < time.Millisecond || delay > most+time.Millisecond {
			t.Errorf("delay %d is %s", i, delay)
		}
	}
	if got := l.reasons["evt_1"][2]; !strings.Contains(got, "301") {
		t.Errorf("the redirect: %s", got)
	}
}

func TestACallWhoseRecordIsLostIsMadeAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	rec := receive(t, status(200))
	l := newLedger(export.Webhook{URL: rec.URL})
	l.broken = 2
	w := deliver(t, l)
	l.until(t, "it is recorded", func() bool { return len(l.deleted) == 1 })
	w.stop()
	calls := rec.all()
	if len(calls) != 3 || calls[0].Header.Get("webhook-id") != calls[2].Header.Get("webhook-id") {
		t.Errorf("%d calls", len(calls))
	}
}

func TestAReceiverMayAskForMoreTimeWithinBounds(t *testing.T) {
	t.Parallel()
	asked := []string{"1800", "7200", "99999999999999999999", "-5", "soon", time.Now().Add(40 * time.Minute).UTC().Format(http.TimeFormat)}
	rec := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n <= len(asked) {
			w.Header().Set("Retry-After", asked[n-1])
			w.WriteHeader(503)
		}
	})
	l := newLedger(export.Webhook{URL: rec.URL})
	w := deliver(t, l)
	l.until(t, "it is taken", func() bool { return len(l.deleted) == 1 })
	w.stop()
	delays := l.delays["evt_1"]
	for i, want := range []time.Duration{30 * time.Minute, time.Hour, 0, 0, 0, 40 * time.Minute} {
		if got := delays[i]; got > want+100*time.Millisecond || got < want-time.Minute {
			t.Errorf("asked for %s, got %s", asked[i], got)
		}
	}
}

func TestAReceiverThatIsGoneIsNotToldAgain(t *testing.T) {
	t.Parallel()
	rec := receive(t, status(410))
	l := newLedger(export.Webhook{URL: rec.URL})
	w := deliver(t, l)
	l.until(t, "it is over", func() bool { return len(l.deleted) == 1 })
	w.stop()
	if len(rec.all()) != 1 || w.Gone.Load() != 1 {
		t.Errorf("%d calls, %d gone", len(rec.all()), w.Gone.Load())
	}
}

func TestAnEventThatCannotBeDeliveredForADayIsGivenUpAndLogged(t *testing.T) {
	t.Parallel()
	rec := receive(t, status(500))
	l := newLedger(export.Webhook{URL: rec.URL, Age: 24 * time.Hour}, export.Webhook{URL: rec.URL, Age: 23 * time.Hour})
	l.hold = true
	w := deliver(t, l)
	l.until(t, "both are recorded", func() bool { return len(l.deleted)+len(l.delays) == 2 })
	w.stop()
	if len(l.deleted) != 1 || l.deleted[0] != "evt_1" || w.GivenUp.Load() != 1 || w.Failed.Load() != 1 {
		t.Errorf("given up: %v", l.deleted)
	}
	if log := w.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "given up") || !strings.Contains(log, "answered 500") {
		t.Error(log)
	}
}

func TestASlowReceiverHoldsUpNobodyAndGetsFewCallsAtATime(t *testing.T) {
	t.Parallel()
	var underWay, most atomic.Int64
	release := make(chan struct{})
	slow := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		n := underWay.Add(1)
		defer underWay.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	quick := receive(t, status(200))
	var rows []export.Webhook
	for range 3 * webhook.MostCalls {
		rows = append(rows, export.Webhook{URL: slow.URL})
	}
	for i := range 100 {
		rows = append(rows, export.Webhook{URL: quick.URL, EventID: fmt.Sprintf("quick_%d", i)})
	}
	l := newLedger(rows...)
	w := deliver(t, l, func(c *webhook.Config) { c.Timeout = limit })
	l.until(t, "the quick ones are told", func() bool { return len(l.deleted) == 100 })
	if n := w.Delivered.Load(); n != 100 {
		t.Errorf("%d are delivered", n)
	}
	close(release)
	l.until(t, "the slow ones are told", func() bool { return len(l.rows) == 0 })
	w.stop()
	if most.Load() > webhook.MostPerHost {
		t.Errorf("%d calls at a time to one host", most.Load())
	}
}

func TestManySlowReceiversGetABoundedNumberOfCallsAtATime(t *testing.T) {
	t.Parallel()
	var underWay atomic.Int64
	full := make(chan struct{}, 100)
	var rows []export.Webhook
	for range webhook.MostCalls + 8 {
		rec := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
			if underWay.Add(1) >= webhook.MostCalls {
				full <- struct{}{}
			}
			<-r.Context().Done()
		})
		rows = append(rows, export.Webhook{URL: rec.URL})
	}
	l := newLedger(rows...)
	w := deliver(t, l, func(c *webhook.Config) { c.Timeout = limit })
	select {
	case <-full:
	case <-time.After(limit):
		t.Fatalf("%d calls are under way", underWay.Load())
	}
	began := time.Now()
	w.stop()
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("the stop took %s", took)
	}
	if n := underWay.Load(); n > webhook.MostCalls {
		t.Errorf("%d calls at a time", n)
	}
	if len(l.deleted)+len(l.delays) > 0 {
		t.Errorf("calls that were cut off are recorded: %v, %v", l.deleted, l.delays)
	}
}

// raw is a receiver that says whatever the test wants, once it has read the head of the request.
func raw(t *testing.T, say func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := conn.Read(make([]byte, 4096)); err == nil {
					say(conn)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// hang says something and then nothing, until the other side leaves.
func hang(words string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, words)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// endless repeats the words after the first ones, until the other side leaves.
func endless(first, words string) func(net.Conn) {
	return func(conn net.Conn) {
		_, err := io.WriteString(conn, first)
		for words = strings.Repeat(words, 100); err == nil; _, err = io.WriteString(conn, words) {
		}
	}
}

func TestWhateverAReceiverDoesACallEndsInTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		say    func(net.Conn)
		reason string // empty: it is taken
	}{
		"says nothing":           {hang(""), "no answer within"},
		"stops in its status":    {hang("HTTP/1.1 20"), "no answer within"},
		"stops in its header":    {hang("HTTP/1.1 200 OK\r\nX: y\r\n"), "no answer within"},
		"stops in its answer":    {hang("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"), ""},
		"fails and stops":        {hang("HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nabc"), "answered 500"},
		"answers without an end": {endless("HTTP/1.1 200 OK\r\n\r\n", "abc"), ""},
		"fails without an end":   {endless("HTTP/1.1 503 Oh\r\nTransfer-Encoding: chunked\r\n\r\n", "3\r\nabc\r\n"), "answered 503"},
		"header without an end":  {endless("HTTP/1.1 200 OK\r\n", "X: y\r\n"), "exceeded"},
		"continues without end":  {endless("", "HTTP/1.1 103 Early Hints\r\n\r\n"), "exceeded"},
		"is no HTTP server":      {endless("", "SSH-2.0-x\r\n"), "malformed"},
		"leaves":                 {func(net.Conn) {}, "EOF"},
		"resets":                 {func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }, "reset"},
		"switches protocols":     {hang("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "answered 101"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(export.Webhook{URL: raw(t, c.say)})
			l.hold = true
			w := deliver(t, l, func(c *webhook.Config) { c.Timeout = time.Second })
			l.until(t, "the call has ended", func() bool { return len(l.deleted)+len(l.reasons) == 1 })
			w.stop()
			if c.reason == "" && len(l.deleted) != 1 || c.reason != "" && (len(l.deleted) > 0 || !strings.Contains(l.reasons["evt_1"][0], c.reason)) {
				t.Errorf("deleted %v, reasons %q", l.deleted, l.reasons["evt_1"])
			}
		})
	}
}

func TestAReceiverThatCannotBeReachedIsTriedAgainAndItsURLIsNotLogged(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	l := newLedger(export.Webhook{URL: "http://" + listener.Addr().String() + "/?key=hidden"}, export.Webhook{URL: "https://no-such-host.invalid/?key=hidden"})
	l.hold = true
	w := deliver(t, l)
	l.until(t, "both have failed", func() bool { return len(l.reasons) == 2 })
	w.stop()
	if log := w.log.String() + fmt.Sprint(l.reasons); strings.Contains(log, "hidden") {
		t.Error(log)
	}
}

// away is a store that does not answer.
type away struct{ *ledger }

func (a away) LeaseWebhooks(ctx context.Context, _ []string, _ int) ([]export.Webhook, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAStopDoesNotWaitForADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	w := deliver(t, newLedger(), func(c *webhook.Config) { c.Store = away{newLedger()} })
	began := time.Now()
	w.stop()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the stop took %s", took)
	}
}
