package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

// fails runs an export that must fail with a known failure.
func fails(t *testing.T, s *db.Source, key string) *export.Failure {
	t.Helper()
	var b bytes.Buffer
	_, err := s.Export(t.Context(), key, day, &b)
	var f *export.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%s: got %v, want a Failure", key, err)
	}
	return f
}

func TestErrorsOfTheQueryAreClassedByTheirSQLSTATE(t *testing.T) {
	t.Parallel()
	_, url := world(t, `
		CREATE FUNCTION fail(key text, d date) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
		BEGIN
			CASE key
			WHEN 'fine' THEN RETURN NEXT key;
			WHEN '22012' THEN RETURN QUERY SELECT (1 / (i - 3))::text FROM generate_series(1, 9) i;
			WHEN '22P02' THEN RETURN QUERY SELECT ('x' || i)::int::text FROM generate_series(1, 9) i;
			WHEN '22003' THEN RETURN QUERY SELECT (32767 + i)::int2::text FROM generate_series(1, 9) i;
			WHEN '22008' THEN RETURN QUERY SELECT ('2025-02-30')::text::date::text;
			WHEN '42703' THEN EXECUTE 'SELECT missing FROM pg_class';
			WHEN '42P01' THEN EXECUTE 'SELECT 1 FROM no_such_table';
			WHEN '25006' THEN CREATE TABLE mine();
			WHEN '21000' THEN RETURN QUERY SELECT (SELECT relname FROM pg_class)::text;
			WHEN '57014' THEN PERFORM pg_sleep(60);
			ELSE RAISE EXCEPTION USING ERRCODE = key, MESSAGE = 'it is <b>broken</b>', DETAIL = 'of old', HINT = 'mend it';
			END CASE;
		END $$`)
	s := source(t, url, func(c *db.SourceConfig) { c.Function, c.StatementTimeout = "fail", 2*time.Second })
	for code, want := range map[string]export.Class{
		"22012": export.Permanent, "22P02": export.Permanent, "22003": export.Permanent, "22008": export.Permanent, "42703": export.Permanent, "42P01": export.Permanent,
		"21000": export.Permanent, "57014": export.Transient,
		"P0001": export.Transient, "40001": export.Transient, "40P01": export.Transient, "55P03": export.Transient, "53200": export.Transient, "53400": export.Transient,
		"XX000": export.Transient, "58030": export.Transient, "P0002": export.Transient, "ZZ999": export.Transient,
		"0A000": export.Permanent, "42501": export.Permanent, "22P05": export.Permanent, "2F003": export.Permanent,
		"53100": export.Outage, "53300": export.Outage, "57P01": export.Outage, "57P03": export.Outage, "08006": export.Outage,
	} {
		f := fails(t, s, code)
		if f.Code != "SQL_"+code || f.Class != want || f.Dependency != "source" {
			t.Errorf("%s: got %s %s %s (%v), want %s", code, f.Class, f.Code, f.Dependency, f, want)
		}
	}
	if got := fails(t, s, "P0001").Error(); !strings.HasPrefix(got, "it is <b>broken</b> (SQLSTATE P0001); detail: of old; hint: mend it; where: PL/pgSQL function fail(text,date) line ") {
		t.Errorf("the message is %q", got)
	}
	if got, _ := exported(t, s, "fine"); got != "fail\nfine\n" {
		t.Errorf("the next export gives %q", got)
	}
}

func TestAFunctionThatWritesIsRefusedForGood(t *testing.T) {
	t.Parallel()
	s, _ := world(t, `CREATE TABLE log (k text); CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF text LANGUAGE sql AS $$ INSERT INTO log VALUES (key) RETURNING k $$`)
	if f := fails(t, s, "k"); f.Code != "SQL_25006" || f.Class != export.Permanent {
		t.Errorf("got %s %s", f.Class, f.Code)
	}
}

func TestAMissingFunctionAndAMissingRightArePermanent(t *testing.T) {
	t.Parallel()
	_, address := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT key $$;
		REVOKE ALL ON FUNCTION export_rows FROM public`)
	if f := fails(t, source(t, address, func(c *db.SourceConfig) { c.Function = "no_such" }), "k"); f.Code != "SQL_42883" || f.Class != export.Permanent {
		t.Errorf("got %s %s: %v", f.Class, f.Code, f)
	}
	if f := fails(t, source(t, asStranger(t, address, "")), "k"); f.Code != "SQL_42501" || f.Class != export.Permanent {
		t.Errorf("got %s %s: %v", f.Class, f.Code, f)
	}
}

// asStranger is the URL of a new user without rights.
func asStranger(t *testing.T, address, options string) string {
	t.Helper()
	role := "stranger_" + strings.ToLower(strings.ReplaceAll(fmt.Sprintf("%p%d", t, time.Now().UnixNano()), "0x", ""))
	run(t, address, "CREATE ROLE "+role+" LOGIN PASSWORD 'pw' "+options)
	t.Cleanup(func() {
		conn := mustConnect(t, address)
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "pw")
	return u.String()
}

func TestTextThatIsNotInTheEncodingFailsLateAndForGood(t *testing.T) {
	t.Parallel()
	address := dbtest.URL(t)
	for _, c := range []struct{ encoding, bad, code string }{{"SQL_ASCII", `E'\xff'`, "SQL_22021"}, {"WIN1252", "chr(129)", "SQL_22P05"}} {
		name := "encoded_" + strings.ToLower(c.encoding) + fmt.Sprint(time.Now().UnixNano())
		run(t, address, fmt.Sprintf("CREATE DATABASE %s TEMPLATE template0 ENCODING '%s' LOCALE 'C'", name, c.encoding))
		u, _ := url.Parse(address)
		u.Path = "/" + name
		t.Cleanup(func() {
			conn := mustConnect(t, address)
			defer conn.Close(context.Background())
			if _, err := conn.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Error(err)
			}
		})
		run(t, u.String(), `CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$
			SELECT CASE i WHEN 20000 THEN `+c.bad+` ELSE 'fine' END FROM generate_series(1, 30000) i $$`)
		s := source(t, u.String())
		f := fails(t, s, "k")
		if f.Code != c.code || f.Class != export.Permanent || !strings.HasPrefix(f.Error(), "after 19999 rows: ") {
			t.Errorf("%s: got %s %s: %v", c.encoding, f.Class, f.Code, f)
		}
		d, err := s.Describe(t.Context())
		if err != nil || d.Encoding != c.encoding || !strings.Contains(strings.Join(d.Warnings, "\n"), "encoded in "+c.encoding) {
			t.Errorf("%s: %+v, %v", c.encoding, d, err)
		}
	}
}

func TestASourceThatCannotBeReachedIsAnOutage(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	l.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	_, address := world(t, exportRows)
	wrong, _ := url.Parse(address)
	wrong.User = url.UserPassword("postgres", "wrong")
	missing, _ := url.Parse(address)
	missing.Path = "/no_such_database"
	limited := asStranger(t, address, "CONNECTION LIMIT 0")
	for name, c := range map[string]struct{ url, code string }{
		"refused":  {"postgres://u:secret-word@" + refused + "/x?sslmode=disable", "SQL_CONNECT"},
		"silent":   {"postgres://u:secret-word@" + silent.Addr().String() + "/x?sslmode=disable&connect_timeout=1", "SQL_CONNECT"},
		"no name":  {"postgres://u:secret-word@host.invalid/x", "SQL_CONNECT"},
		"password": {wrong.String(), "SQL_28P01"},
		"database": {missing.String(), "SQL_3D000"},
		"too many": {limited, "SQL_53300"},
	} {
		s := source(t, c.url)
		f := fails(t, s, "k")
		var probed *export.Failure
		if err := s.Probe(t.Context()); !errors.As(err, &probed) {
			t.Errorf("%s: the probe says %v", name, err)
			continue
		}
		for _, f := range []*export.Failure{f, probed} {
			if f.Class != export.Outage || f.Code != c.code || f.Dependency != "source" || strings.Contains(f.Error(), "secret-word") {
				t.Errorf("%s: got %s %s %s: %v", name, f.Class, f.Code, f.Dependency, f)
			}
		}
	}
}

func TestAServerThatGoesDownIsAnOutageUntilItIsBack(t *testing.T) {
	t.Parallel()
	server := dbtest.Server(t)
	run(t, server.URL("postgres"), exportRows)
	s := source(t, server.URL("postgres"))
	exported(t, s, "ROWS_1")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	var err error
	poll(t, "the idle backends noticed too", func() bool {
		_, err = s.Export(t.Context(), "ROWS_1", day, io.Discard)
		return err != nil
	})
	if f := export.FailureOf(err); f.Class != export.Outage || f.Dependency != "source" {
		t.Errorf("got %s %s: %v", f.Class, f.Code, f)
	}
	if err := s.Probe(t.Context()); export.FailureOf(err).Class != export.Outage {
		t.Errorf("the probe says %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("the probe says %v", err)
	}
	exported(t, s, "ROWS_1")
}

func TestAProbeWhoseCallerGivesUpIsNoOutage(t *testing.T) {
	t.Parallel()
	s, _ := world(t, exportRows)
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Probe(ctx); !errors.Is(err, context.Canceled) || export.FailureOf(err).Class == export.Outage {
		t.Errorf("got %v", err)
	}
}
