package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/e2e/stack"
)

const webhookKey = "thirty-two bytes of a secret key"

var webhookSecret = "EXPORTD_WEBHOOK_SECRET=whsec_" + base64.StdEncoding.EncodeToString([]byte(webhookKey))

// told is one call that the receiver got.
type told struct {
	id   string
	body []byte
}

func (c told) event(t *testing.T) (e struct {
	Type string
	Data map[string]any
}) {
	t.Helper()
	if err := json.Unmarshal(c.body, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// receiver is a callback URL. It hangs on the first calls, as many as the test says, until the caller leaves.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	calls []told
	hangs int
}

func newReceiver(t *testing.T, hangs int) *receiver {
	t.Helper()
	r := &receiver{hangs: hangs}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Errorf("an event breaks off: %v", err)
		}
		id, at := req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp")
		mac := hmac.New(sha256.New, []byte(webhookKey))
		io.WriteString(mac, id+"."+at+"."+string(body))
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); req.Header.Get("webhook-signature") != want {
			t.Errorf("the signature is %s, want %s", req.Header.Get("webhook-signature"), want)
		}
		r.mu.Lock()
		r.calls = append(r.calls, told{id, body})
		n := len(r.calls)
		r.mu.Unlock()
		if n <= r.hangs {
			<-req.Context().Done()
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []told {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]told{}, r.calls...)
}

// await waits for so many calls and returns the last one.
func (w *world) await(r *receiver, n int) told {
	w.t.Helper()
	w.eventually("the receiver is told", func() bool { return len(r.all()) >= n })
	return r.all()[n-1]
}

func TestTheEndOfAJobIsToldToItsCallbackURL(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	rec := newReceiver(t, 0)
	w.startAPI()
	var refused *stack.StatusError
	if _, err := w.client.Submit(t.Context(), stack.Submission{Items: items("ROWS_1"), CallbackURL: rec.URL}); !errors.As(err, &refused) || refused.Status != 422 || !strings.Contains(err.Error(), "EXPORTD_WEBHOOK_SECRET") {
		t.Errorf("without a secret: %v", err)
	}
	careful := w.startAPI(webhookSecret)
	if _, err := w.client.Submit(t.Context(), stack.Submission{Items: items("ROWS_1"), CallbackURL: rec.URL}); !errors.As(err, &refused) || refused.Status != 422 {
		t.Errorf("a private address: %v", err)
	}
	w.kill(careful) // it would go on refusing what the next one calls
	w.startAPI(webhookSecret, "EXPORTD_WEBHOOK_ALLOW_PRIVATE=true")
	w.startConsumer()
	check := func(n int, job stack.Job, kind string) told {
		t.Helper()
		c := w.await(rec, n)
		if err := w.contract.CheckEvent(c.body); err != nil {
			t.Errorf("%s: %v", c.body, err)
		}
		var shown map[string]any
		if _, body := w.get(w.api, "/jobs/"+job.JobID); json.Unmarshal([]byte(body), &shown) != nil {
			t.Fatal(body)
		}
		e := c.event(t)
		if diff := cmp.Diff(shown, e.Data); diff != "" || e.Type != kind {
			t.Errorf("%s: %s", e.Type, diff)
		}
		return c
	}
	job := w.completed(stack.Submission{Items: items("ROWS_1", "ROWS_2"), CallbackURL: rec.URL + "/a?b=c"})
	check(1, job, "job.completed")
	w.completed(stack.Submission{Items: items("ROWS_3")}) // nobody is to be told
	job = w.ended(w.submit(stack.Submission{Items: items("DIV_1"), CallbackURL: rec.URL}), "FAILED")
	first := check(2, job, "job.failed")
	if err := w.client.Order(t.Context(), job.JobID, "redrive"); err != nil {
		t.Fatal(err)
	}
	w.ended(job, "FAILED")
	if again := check(3, job, "job.failed"); again.id == first.id {
		t.Error("the second end is told as the first")
	}
	open := w.closeGate(3)
	job = w.submit(stack.Submission{Items: items("GATE_3"), CallbackURL: rec.URL})
	if err := w.client.Order(t.Context(), job.JobID, "cancel"); err != nil {
		t.Fatal(err)
	}
	w.ended(job, "CANCELLED")
	check(4, job, "job.cancelled")
	open()
	w.checkInvariants()
	if n := len(rec.all()); n != 4 {
		t.Errorf("%d calls", n)
	}
	if n, _ := w.metric(w.api, `exportd_webhook_calls_total{outcome="delivered"}`); n != 4 {
		t.Errorf("%v are counted", n)
	}
}

func TestAnEventOutlivesTheAPIThatDeliversIt(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	rec := newReceiver(t, 2)
	w.Settings = []string{webhookSecret, "EXPORTD_WEBHOOK_ALLOW_PRIVATE=true"}
	api := w.startAPI()
	w.startConsumer()
	job := w.completed(stack.Submission{Items: items("ROWS_1"), CallbackURL: rec.URL})
	first := w.await(rec, 1)
	w.kill(api)

	api = w.startAPI()
	other := w.completed(stack.Submission{Items: items("ROWS_2")}) // nobody waits for the receiver
	second := w.await(rec, 2)                                      // once the lease of the killed api is over
	if err := api.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.exit(api, 10*time.Second); code != 0 {
		t.Errorf("exit code %d while a receiver hangs", code)
	}

	api = w.startAPI()
	w.exec(`update outbox set due_at = now()`) // the lease of the stopped one is over
	third := w.await(rec, 3)
	w.eventually("it is taken", func() bool { return w.number(`select count(*) from outbox`) == 0 })
	for _, c := range []told{first, second, third} {
		if c.id != first.id || string(c.body) != string(first.body) || c.event(t).Data["jobId"] != job.JobID {
			t.Errorf("%s %s", c.id, c.body)
		}
	}
	if n := len(rec.all()); n != 3 {
		t.Errorf("%d calls", n)
	}
	w.ready(api)
	w.ended(other, "COMPLETED")
	w.expect.Killed = true
	w.checkInvariants()
}
