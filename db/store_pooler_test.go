package db_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

// The truth behind a pooler that hands out two sessions, one transaction at a time: modes that keep nothing in
// a session work, and one is taken where the URL names none.
func TestTheStoreWorksThroughATransactionModePooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct := setup(t, func(c *db.Config) { c.Backlog = 1000 })
			u, err := url.Parse(dbtest.Pooler(t, direct.URL))
			must(t, err)
			if mode != "" {
				u.RawQuery += "&default_query_exec_mode=" + mode
			}
			cfg := direct.Config
			cfg.URL = u.String()
			s, err := db.Open(t.Context(), cfg)
			must(t, err)
			t.Cleanup(s.Close)
			wholeLife(t, s)
			if d, err := s.Describe(t.Context(), true); err != nil || d.Pooled != (mode == "") {
				t.Errorf("the pooler is seen: %v, %v", d.Pooled, err)
			}

			// Eight connections that change their sessions all the time, while a column is added.
			r := submission(200, func(r *export.SubmitRequest) { r.Items[0].Key = "many" })
			_, refs := submit(t, s, r)
			steps := make([]func() error, len(refs))
			for i, ref := range refs {
				steps[i] = func() error { return whole(t.Context(), s, ref) }
			}
			pool := sessions(t, direct)
			for i := range 3 {
				steps = append(steps, func() error {
					_, err := pool.Exec(t.Context(), fmt.Sprintf(`alter table job_chunk add column later%d int`, i))
					return err
				})
			}
			together(t, steps...)
			var n int
			must(t, pool.QueryRow(t.Context(), `select count(*) from job_chunk where key = 'many' and status = 'DONE'`).Scan(&n))
			if n != len(refs) {
				t.Errorf("%d of %d chunks are done", n, len(refs))
			}
		})
	}
}

// Migrations hold their lock where the pooler keeps it: several at a time are one after the other, and none stays behind.
func TestMigrationsGoThroughATransactionModePooler(t *testing.T) {
	t.Parallel()
	direct := dbtest.URL(t)
	through := dbtest.Pooler(t, direct)
	steps := make([]func() error, 3)
	for i := range steps {
		url := through
		if i == 0 {
			url = direct
		}
		steps[i] = func() error { return db.Migrate(context.Background(), url) }
	}
	together(t, steps...)
	list, err := db.Migrations(t.Context(), through)
	must(t, err)
	for _, m := range list {
		if !m.Applied || m.AppliedAt.IsZero() {
			t.Errorf("%+v", m)
		}
	}
	if n := value[int](t, session(t, direct), `select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`); n != 0 {
		t.Errorf("%d locks stay", n)
	}
}

// A migration of this version and one of a version before it, which locks its session, keep each other out.
func TestMigrationsWaitForOneThatLocksItsSession(t *testing.T) {
	t.Parallel()
	direct := dbtest.URL(t)
	conn := session(t, direct)
	value[bool](t, conn, `select pg_try_advisory_lock(4097083626)`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := db.Migrate(ctx, direct); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside the other: %v", err)
	}
	if value[bool](t, conn, `select to_regclass('job') is not null`) {
		t.Error("it migrates beside the other")
	}
	value[bool](t, conn, `select pg_advisory_unlock(4097083626)`)
	must(t, db.Migrate(t.Context(), direct))
}
