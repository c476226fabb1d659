package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"exportd/api"
	"exportd/api/apitest"
	"exportd/export"
)

// Tests that ask every documented call, so that a new one is covered by being documented.

// every calls do for each operation.
func every(do func(*apitest.Operation)) {
	for _, op := range served().Operations {
		do(op)
	}
}

// call sends the example of an operation.
func (w *world) call(op *apitest.Operation, headers ...string) answer {
	w.t.Helper()
	return w.do(op.Method, op.Target(), string(op.Example), headers...)
}

func TestEveryCallButThoseOfTheServiceNeedsAToken(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	open := 0
	every(func(op *apitest.Operation) {
		if op.Open {
			open++
			return
		}
		for _, headers := range [][]string{nil, as("t3")} {
			if a := w.call(op, headers...); a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %v", op.ID, a.Header)
			} else {
				a.problem(t, 401, "unauthorized")
			}
		}
	})
	if n := len(served().Operations); open != 5 || n < 18 {
		t.Errorf("%d of %d calls are open", open, n)
	}
	if n := len(w.store.all()); n > 0 {
		t.Errorf("%d jobs", n)
	}
}

func TestEveryCallButThoseOfTheServiceIsLimited(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.RateLimit = 1e-6 })
	w.do("GET", "/jobs", "")
	every(func(op *apitest.Operation) {
		a := w.call(op)
		if op.Open {
			if a.StatusCode != 200 {
				t.Errorf("%s: %d", op.ID, a.StatusCode)
			}
			return
		}
		if a.problem(t, 429, "too-many-requests"); a.Header.Get("Retry-After") != "3600" {
			t.Errorf("%s: %v", op.ID, a.Header)
		}
	})
}

func TestEveryCallOfAnotherHostIsRefused(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.ThisHost = true })
	with := func(host string, op *apitest.Operation) answer {
		t.Helper()
		a := w.call(op, "Host", host)
		return a
	}
	every(func(op *apitest.Operation) {
		with("evil.example", op).problem(t, 403, "forbidden")
	})
	health := served().Operations[0]
	for host, fine := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "localhost.": true, "api.localhost": true, "127.0.0.1:1": true, "127.8.8.8": true, "[::1]:8080": true, "[::1]": true,
		"[::ffff:127.0.0.1]": true, "localhost.evil.example": false, "evil-localhost": false, "127.0.0.1.evil.example": false, "10.0.0.1": false, "[::2]:80": false, "0.0.0.0": false,
		"127.1": false,
	} {
		if a := with(host, health); (a.StatusCode == 200) != fine {
			t.Errorf("%s: %d", host, a.StatusCode)
		}
	}
	if n := len(w.store.all()); n > 0 {
		t.Errorf("%d jobs", n)
	}
}

func TestEveryCallHidesWhatWentWrong(t *testing.T) {
	t.Parallel()
	unknown := errors.New("secret of the store")
	w := setup(t, func(c *api.Config) {
		c.Queues = func(context.Context) []export.QueueDepth { panic("secret of the broker") }
	})
	for _, c := range []struct {
		err    error
		status int
		kind   string
	}{{unknown, 500, "internal"}, {&export.Failure{Class: export.Outage, Code: "X", Err: unknown}, 503, "unavailable"}} {
		w.store.before = func(context.Context) error { return c.err }
		every(func(op *apitest.Operation) {
			switch a := w.call(op); {
			case op.Open:
			case op.ID == "listQueues": // asks no store
				a.problem(t, 500, "internal")
			default:
				a.problem(t, c.status, c.kind)
				if strings.Contains(string(a.body), "secret") {
					t.Errorf("%s shows %s", op.ID, a.body)
				}
			}
		})
	}
}

func TestEveryCallThatTakesABodyBoundsIt(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *api.Config) { c.Timeouts.Body = 100 * time.Millisecond })
	bodies := 0
	every(func(op *apitest.Operation) {
		if op.Body == nil {
			return
		}
		bodies++
		w.do(op.Method, op.Target(), strings.Repeat(" ", 64<<10)+string(op.Example)).problem(t, 413, "too-large")
		w.do(op.Method, op.Target(), string(op.Example), "Content-Type", "", "Content-Type", "text/plain").problem(t, 415, "unsupported-media-type")
		resp, err := w.raw(func(conn net.Conn) {
			fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", op.Method, op.Target(), len(op.Example))
		})
		if err != nil || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: %v %v", op.ID, resp, err)
		}
	})
	if n := len(w.store.all()); n > 0 || bodies < 2 {
		t.Errorf("%d jobs of %d calls", n, bodies)
	}
}

func TestEveryExampleOfABodyIsTaken(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	every(func(op *apitest.Operation) {
		if op.Body == nil {
			return
		}
		if a := w.call(op); a.StatusCode != 202 {
			t.Errorf("%s: %d %s", op.ID, a.StatusCode, a.body)
		}
	})
}
