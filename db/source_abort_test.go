package db_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/export"
)

// slowRows has functions that go on for long: endless sends as fast as it can, sleepy sends a row of 10 KB every 300 ms, dull sends nothing at all.
const slowRows = `
CREATE FUNCTION endless(key text, d date) RETURNS TABLE (i int, t text) LANGUAGE sql STABLE AS $$ SELECT i, repeat('x', 100) FROM (SELECT generate_series(1, 2000000000) AS i) s $$;
CREATE FUNCTION sleepy(key text, d date) RETURNS TABLE (i int, t text) LANGUAGE sql STABLE AS $$ SELECT i, repeat('x', 10000) || pg_sleep(0.3) FROM generate_series(1, 5) i $$;
CREATE FUNCTION dull(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT pg_sleep(600)::text $$;
CREATE FUNCTION quick(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT key $$;`

func named(function string, pool int) func(*db.SourceConfig) {
	return func(c *db.SourceConfig) { c.Function, c.Pool = function, pool }
}

// running counts the source's backends that execute something.
func running(t testing.TB, watch *pgx.Conn) int {
	return value[int](t, watch, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'exportd-source' and state <> 'idle'`)
}

func backends(t testing.TB, watch *pgx.Conn) int {
	return value[int](t, watch, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'exportd-source'`)
}

// writer calls back on each write.
type writer func(b []byte) error

func (w writer) Write(b []byte) (int, error) {
	if err := w(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func TestAnErrorAfterRowsIsAnErrorAndSaysWhere(t *testing.T) {
	t.Parallel()
	s, _ := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (i int, q int) LANGUAGE sql STABLE AS $$
		SELECT i, 1 / (key::int - i) FROM generate_series(1, 300000) i $$`)
	for _, c := range []struct {
		key    string
		before string
	}{{"1", "division"}, {"5000", "after 4999 rows: division"}, {"200000", "after 199999 rows: division"}} {
		written := 0
		rows, err := s.Export(t.Context(), c.key, day, writer(func(b []byte) error { written += len(b); return nil }))
		if f := export.FailureOf(err); err == nil || f.Code != "SQL_22012" || f.Class != export.Permanent || !strings.HasPrefix(f.Error(), c.before) {
			t.Errorf("%s: %d rows, %v", c.key, rows, err)
		}
		if c.key == "1" && written > 0 {
			t.Errorf("%d bytes were written for a query that gave no row", written)
		}
	}
	if got, rows := exported(t, s, "-1"); rows != 300000 || !strings.HasSuffix(got, "\n300000,0\n") {
		t.Errorf("the next export has %d rows", rows)
	}
}

func TestABackendTerminatedInMidStreamIsAnOutage(t *testing.T) {
	t.Parallel()
	s, url := world(t, slowRows, named("endless", 2))
	watch := session(t, url)
	var once sync.Once
	_, err := s.Export(t.Context(), "k", day, writer(func([]byte) error {
		once.Do(func() {
			value[int](t, watch, `select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'exportd-source' and datname = current_database()`)
		})
		return nil
	}))
	if f := export.FailureOf(err); err == nil || f.Class != export.Outage || f.Dependency != "source" {
		t.Errorf("got %v", err)
	}
	exported(t, source(t, url, named("quick", 2)), "k")
}

func TestTheEndOfTheContextEndsTheQueryAndCarriesItsCause(t *testing.T) {
	t.Parallel()
	_, url := world(t, slowRows)
	watch := session(t, url)
	for _, function := range []string{"endless", "dull"} {
		s := source(t, url, named(function, 1))
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.Export(ctx, "k", day, io.Discard)
			done <- err
		}()
		poll(t, function+" runs", func() bool { return running(t, watch) == 1 })
		cancel(export.ErrEnding)
		select {
		case err := <-done:
			if !errors.Is(err, export.ErrEnding) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v", function, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: still running", function)
		}
		poll(t, "no query runs", func() bool { return running(t, watch) == 0 })
		poll(t, "the pool has its slot back", func() bool { return s.Stats().InUse == 0 })
		limited, cancelLimited := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, nil)
		if _, err := s.Export(limited, "k", day, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the next export with a deadline: %v", function, err)
		}
		cancelLimited()
		poll(t, "no query runs", func() bool { return running(t, watch) == 0 })
	}
}

func TestTheEndOfTheContextEndsTheQueryWhileTheWriterBlocks(t *testing.T) {
	t.Parallel()
	s, url := world(t, slowRows, named("endless", 1))
	watch := session(t, url)
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Export(ctx, "k", day, writer(func([]byte) error {
			once.Do(func() { close(blocked) })
			<-release
			return nil
		}))
		done <- err
	}()
	<-blocked
	poll(t, "the backend waits for its rows to be taken", func() bool {
		return value[int](t, watch, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'exportd-source' and wait_event = 'ClientWrite'`) == 1
	})
	cancel()
	poll(t, "the backend is gone", func() bool { return backends(t, watch) == 0 })
	close(release)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	poll(t, "the pool has its slot back", func() bool { return s.Stats().InUse == 0 })
}

func TestAnErrorOfTheWriterEndsTheQueryAndIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	s, url := world(t, slowRows, named("endless", 1))
	watch := session(t, url)
	full := errors.New("the bucket is gone")
	for range 3 {
		calls := 0
		_, err := s.Export(t.Context(), "k", day, writer(func([]byte) error { calls++; return full }))
		if err != full || calls != 1 {
			t.Errorf("got %v after %d calls", err, calls)
		}
		poll(t, "no query runs", func() bool { return running(t, watch) == 0 })
	}
	short := source(t, url, named("quick", 1)) // fails in the last write, after the query
	if _, err := short.Export(t.Context(), "k", day, writer(func([]byte) error { return full })); err != full {
		t.Errorf("got %v", err)
	}
	exported(t, short, "k")
}

// The server lets the user have no more connections than the pool has: one too many would be an error of another kind.
func TestManyAbortedExportsNeverHoldMoreBackendsThanThePool(t *testing.T) {
	t.Parallel()
	const pool, exports = 4, 200
	_, url := world(t, slowRows)
	s := source(t, asStranger(t, url, fmt.Sprint("CONNECTION LIMIT ", pool)), named("dull", pool))
	watch := session(t, url)
	most := 0
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range pool {
		wg.Go(func() {
			for range exports / pool {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				if _, err := s.Export(ctx, "k", day, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				cancel()
			}
		})
	}
	go func() { wg.Wait(); close(stop) }()
	for sampling := true; sampling; {
		select {
		case <-stop:
			sampling = false
		case <-time.After(2 * time.Millisecond):
			most = max(most, backends(t, watch))
		}
	}
	if most == 0 || most > pool {
		t.Errorf("%d backends at once for a pool of %d", most, pool)
	}
	poll(t, "no query runs", func() bool { return running(t, watch) == 0 })
}

// TestTheBackendOfAKilledWorkerEnds cuts the connection as the kernel does when a process dies: without a word to the server.
func TestTheBackendOfAKilledWorkerEnds(t *testing.T) {
	t.Parallel()
	_, address := world(t, slowRows)
	watch := session(t, address)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	var cut func()
	u.Host, cut = relayOnce(t, target)
	s := source(t, u.String(), named("dull", 1))
	done := make(chan error, 1)
	go func() {
		_, err := s.Export(t.Context(), "k", day, io.Discard)
		done <- err
	}()
	poll(t, "the query runs", func() bool { return running(t, watch) == 1 })
	cut()
	if f := export.FailureOf(<-done); f.Class != export.Outage || f.Code != "SQL_CONNECTION_LOST" {
		t.Errorf("got %s %s: %v", f.Class, f.Code, f)
	}
	poll(t, "the backend noticed", func() bool { return backends(t, watch) == 0 })
}

// relayOnce relays one connection to target until it is cut; others, such as cancel requests, are refused.
func relayOnce(t *testing.T, target string) (address string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var relays sync.WaitGroup
	relays.Go(func() {
		client, err := l.Accept()
		l.Close()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", target)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		relays.Go(func() { _, _ = io.Copy(server, client) })
		relays.Go(func() { _, _ = io.Copy(client, server) })
		<-ctx.Done()
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		relays.Wait()
	})
	return l.Addr().String(), cancel
}

func TestAProbeAnswersWhileThePoolIsFull(t *testing.T) {
	t.Parallel()
	s, url := world(t, slowRows, named("dull", 1))
	watch := session(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Export(ctx, "k", day, io.Discard) // ended below
	}()
	poll(t, "the query runs", func() bool { return running(t, watch) == 1 })
	if err := s.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
}

func TestSlowRowsReachTheWriterBeforeItsBufferIsFull(t *testing.T) {
	t.Parallel()
	s, _ := world(t, slowRows, named("sleepy", 1))
	writes := 0
	rows, err := s.Export(t.Context(), "k", day, writer(func([]byte) error { writes++; return nil }))
	if err != nil || rows != 5 || writes < 2 {
		t.Errorf("%d rows in %d writes, %v", rows, writes, err)
	}
}

// The lock outlives the failed transaction and shows the function that it was called before.
func TestAPlanThatChangedIsTriedAgainOnceButOnlyOnce(t *testing.T) {
	t.Parallel()
	_, url := world(t, `CREATE FUNCTION once(key text, d date) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$ BEGIN
			IF NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) THEN
				PERFORM pg_advisory_lock(7);
				RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'cached plan must not change result type';
			END IF;
			RETURN NEXT key; END $$;
		CREATE FUNCTION always(key text, d date) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000'; END $$`)
	if got, rows := exported(t, source(t, url, named("once", 1)), "k"); got != "once\nk\n" || rows != 1 {
		t.Errorf("got %q with %d rows", got, rows)
	}
	if f := fails(t, source(t, url, named("always", 1)), "k"); f.Code != "SQL_0A000" || f.Class != export.Permanent {
		t.Errorf("got %s %s", f.Class, f.Code)
	}
}

// The server was restarted, and is back.
func TestNoQueryIsLostOnAConnectionThatEndedInThePool(t *testing.T) {
	t.Parallel()
	const n = 4
	s, url := world(t, `create function export_rows(key text, effective_date date) returns table (a int) language sql stable as $$ select 1 from pg_advisory_xact_lock_shared(7) $$`,
		func(c *db.SourceConfig) { c.Pool = n })
	gate, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer gate.Close(context.Background())
	_, err = gate.Exec(t.Context(), `select pg_advisory_lock(7)`)
	must(t, err)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := s.Export(t.Context(), "k", day, io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	poll(t, "all connections are in use", func() (yes bool) {
		must(t, gate.QueryRow(t.Context(), `select count(*) = $1 from pg_stat_activity where datname = current_database() and application_name = 'exportd-source' and wait_event = 'advisory'`, n).Scan(&yes))
		return yes
	})
	_, err = gate.Exec(t.Context(), `select pg_advisory_unlock(7)`)
	must(t, err)
	all.Wait()
	_, err = gate.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'exportd-source'`)
	must(t, err)
	poll(t, "they have ended", func() (yes bool) {
		must(t, gate.QueryRow(t.Context(), `select not exists (select from pg_stat_activity where datname = current_database() and application_name = 'exportd-source')`).Scan(&yes))
		return yes
	})
	for range n {
		if _, err := s.Export(t.Context(), "k", day, io.Discard); err != nil {
			t.Error(err)
		}
	}
}
