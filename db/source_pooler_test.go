package db_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"exportd/db/dbtest"
)

func TestExportsGoThroughATransactionModePoolerWhileTheTableChanges(t *testing.T) {
	t.Parallel()
	_, direct := world(t, `CREATE TABLE data (id int, t text); INSERT INTO data SELECT i, 'row ' || i FROM generate_series(1, 2000) i;
		CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF data LANGUAGE sql STABLE AS $$ SELECT * FROM data $$`)
	run(t, direct, hostile)
	s := source(t, dbtest.Pooler(t, direct), named("export_rows", 8))
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Describe(t.Context()); err != nil || len(d.Columns) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	var exports sync.WaitGroup
	defer exports.Wait()
	for range 8 {
		exports.Go(func() {
			for range 15 {
				rows, err := s.Export(t.Context(), "k", day, io.Discard)
				if err != nil || rows != 2000 {
					t.Errorf("%d rows, %v", rows, err)
				}
			}
		})
	}
	for i := range 5 {
		run(t, direct+"&default_transaction_read_only=off", fmt.Sprintf("ALTER TABLE data ADD COLUMN extra%d int", i))
	}
	exports.Wait()
	if got, _ := exported(t, s, "k"); !strings.HasPrefix(got, "id,t,extra0,extra1,extra2,extra3,extra4\n1,row 1,,,,,\n") {
		t.Errorf("got %.80q", got)
	}
}

func TestTheSettingsDoNotLeakThroughThePooler(t *testing.T) {
	t.Parallel()
	_, direct := world(t, exportRows)
	run(t, direct, hostile)
	through := dbtest.Pooler(t, direct)
	s := source(t, through)
	for range 4 {
		if got := sameAsCopy(t, s, direct, "NASTY"); !strings.Contains(got, "\\xdeadbeef") {
			t.Error("the settings are not in force")
		}
	}
	conn := session(t, through+"&default_query_exec_mode=exec")
	for setting, want := range map[string]string{"timezone": "America/New_York", "bytea_output": "escape", "transaction_read_only": "on", "extra_float_digits": "-5"} {
		if got := value[string](t, conn, "SHOW "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
}

func TestAnAbandonedQueryEndsBehindThePooler(t *testing.T) {
	t.Parallel()
	direct := dbtest.URL(t)
	run(t, direct, slowRows)
	watch := session(t, direct)
	s := source(t, dbtest.Pooler(t, direct), named("dull", 1))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Export(ctx, "k", day, io.Discard) // ended below
	}()
	active := func() int {
		return value[int](t, watch, `select count(*) from pg_stat_activity where datname = current_database() and query like '%"dull"%' and state = 'active' and pid <> pg_backend_pid()`)
	}
	poll(t, "the query runs", func() bool { return active() == 1 })
	cancel()
	<-done
	poll(t, "the query has ended", func() bool { return active() == 0 })
}
