package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/e2e/stack"
	"exportd/s3out"
)

// get asks a process itself.
func (w *world) get(p *stack.Process, path string) (status int, body string) {
	w.t.Helper()
	resp, err := http.Get(p.URL + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// notReady waits until the process says that it is not ready for want of the dependency. Alive it is all the same.
func (w *world) notReady(p *stack.Process, dependency string) {
	w.t.Helper()
	w.eventually(p.Name+" is not ready", func() bool {
		status, body := w.get(p, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, fmt.Sprintf(`%q:"unavailable"`, dependency))
	})
	if status, _ := w.get(p, "/healthz"); status != http.StatusOK {
		w.t.Errorf("%s is said to be dead: %d", p.Name, status)
	}
}

func (w *world) conn() *pgx.Conn {
	w.t.Helper()
	if w.db == nil || w.db.IsClosed() {
		conn, err := pgx.Connect(w.t.Context(), w.Database)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { conn.Close(context.Background()) })
		w.db = conn
	}
	return w.db
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.conn().Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// number is the answer to a query for one number.
func (w *world) number(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.conn().QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// closeGate makes the chunks GATE_n and HALF_n wait until open.
func (w *world) closeGate(n int) (open func()) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.Database)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(w.t.Context(), "select pg_advisory_lock($1)", n); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := conn.Close(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// bucket looks into the bucket from outside.
func (w *world) bucket() *s3out.Store {
	w.t.Helper()
	s, err := s3out.Open(w.t.Context(), w.S3)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	return s
}

// checkInvariants compares database, bucket and queues. The processes still run: acknowledgements and notices may be on their way.
func (w *world) checkInvariants() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	breaches, err := w.Breaches(ctx, w.expect)
	if err != nil {
		w.t.Error(err)
	}
	for _, b := range breaches {
		w.t.Error(b)
	}
}
