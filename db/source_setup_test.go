package db_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

const day = export.Date(20250131)

// exportRows is an export function whose conduct is in the key.
const exportRows = `
CREATE FUNCTION export_rows(key text, effective_date date)
RETURNS TABLE (a text, b text, c numeric, d date, e timestamptz, f float8, g interval, h bytea) LANGUAGE plpgsql STABLE AS $$
DECLARE n int := (regexp_match(key, '_([0-9]+)$'))[1];
BEGIN
	CASE
	WHEN key = 'NASTY' THEN RETURN QUERY VALUES
		(NULL, '', 1.10, DATE '2025-01-31', TIMESTAMPTZ '2025-03-09 23:30Z', 0.1::float8 + 0.2::float8, INTERVAL '1 day 2 hours', '\xdeadbeef'::bytea),
		(E'two\nlines', 'say "hi", ok', -5, '2024-02-29', '2025-06-30 23:30Z', 'NaN', '-1 mon', ''),
		(E'bare\rCR', '=1+1', 12345678901234567890, 'infinity', NULL, 'Infinity', NULL, NULL),
		('\.', 'é', 0, NULL, NULL, NULL, NULL, NULL);
	WHEN key LIKE 'ROWS%' THEN
		RETURN QUERY SELECT 'row ' || i, key, i::numeric, effective_date, NULL::timestamptz, i / 3::float8, NULL::interval, NULL::bytea FROM generate_series(1, n) i;
	WHEN key LIKE 'ECHO%' THEN RETURN QUERY SELECT key, effective_date::text, 1.0, effective_date, now(), 0::float8, NULL::interval, NULL::bytea;
	ELSE NULL;
	END CASE;
END $$`

// world is a database with the given SQL in it and a source on it.
func world(t testing.TB, sql string, change ...func(*db.SourceConfig)) (*db.Source, string) {
	t.Helper()
	url := dbtest.URL(t)
	run(t, url, sql)
	return source(t, url, change...), url
}

func source(t testing.TB, url string, change ...func(*db.SourceConfig)) *db.Source {
	t.Helper()
	cfg := db.SourceConfig{URL: url, Function: "export_rows", Pool: 2}
	for _, c := range change {
		c(&cfg)
	}
	s, err := db.OpenSource(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// run executes SQL without parameters.
func run(t testing.TB, url, sql string) {
	t.Helper()
	conn := session(t, url)
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// mustConnect also works while the test is cleaned up. The caller closes the connection.
func mustConnect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func session(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn := mustConnect(t, url)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func value[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// copyCSV is PostgreSQL's own CSV of a query, under the settings that the contract fixes.
func copyCSV(t testing.TB, url, query string) (string, int64) {
	t.Helper()
	return copyIn(t, copySession(t, url), query)
}

func copySession(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn := session(t, url)
	for _, set := range []string{
		"timezone = 'UTC'", "datestyle = 'ISO, YMD'", "intervalstyle = postgres", "extra_float_digits = 1", "bytea_output = hex", "client_encoding = UTF8",
		"lc_monetary = 'C'", "xmlbinary = base64", "quote_all_identifiers = off",
	} {
		if _, err := conn.Exec(t.Context(), "SET "+set); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func copyIn(t testing.TB, conn *pgx.Conn, query string) (string, int64) {
	t.Helper()
	var b bytes.Buffer
	tag, err := conn.PgConn().CopyTo(context.Background(), &b, "COPY ("+query+") TO STDOUT (FORMAT csv, HEADER)")
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), tag.RowsAffected()
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// poll waits for a condition that another process brings about.
func poll(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}
