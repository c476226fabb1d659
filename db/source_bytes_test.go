package db_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

// types is every common type in its odd forms.
const types = `
CREATE TYPE mood AS ENUM ('glad', 'so, so', '"q"');
CREATE TYPE pair AS (x int, "the y" text);
CREATE DOMAIN percent AS numeric(5,2) CHECK (value <= 100);
CREATE FUNCTION export_rows(key text, effective_date date) RETURNS TABLE (
	i2 int2, i4 int4, i8 int8, n numeric, r float4, d float8, m money, b bool, "char" "char", bp char(5), v varchar(9), nm name, t text, u uuid, ip inet, net cidr, mac macaddr,
	dt date, tm time, tmz timetz, ts timestamp, tsz timestamptz, iv interval, by bytea, bits bit varying(9), j json, jb jsonb, x xml, ints int[], texts text[][], r4 int4range, rts tstzrange,
	mr int4multirange, mo mood, co pair, cos pair[], dom percent, pt point, po polygon, tv tsvector, tq tsquery, reg regclass, "Two words" text, "a,b" text, "say ""hi""" text, "\." text, "é" text,
	lf text) LANGUAGE sql STABLE AS $$
	SELECT v.* FROM (VALUES
	(1::int2, -2::int4, 9223372036854775807::int8, 1.10::numeric, 1.1::float4, 0.1::float8 + 0.2::float8, 1234567.89::money, true, 'c'::"char", 'ab'::char(5), 'x'::varchar(9), 'n'::name, 'plain'::text,
	'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '10.0.0.1/8'::inet, 'fd00::/16'::cidr, '08:00:2b:01:02:03'::macaddr, effective_date, '23:59:59.999999'::time, '01:02:03+05:30'::timetz,
	'2025-03-09 02:30:00.5'::timestamp, '2025-03-09 23:30Z'::timestamptz, '1 year 2 mons -3 days 04:05:06.789'::interval, '\xdeadbeef'::bytea, '10101'::bit varying(9),
	'{"a": [1, "two, \"three\""]}'::json, '{"b":2,  "a":1}'::jsonb, '<a b="c">d,e</a>'::xml, '{1,NULL,3}'::int[], '{{"a,b","c\"d"},{"",NULL}}'::text[][], '[1,5)'::int4range,
	'["2025-01-01 00:00Z","2025-02-01 00:00Z")'::tstzrange, '{[1,2),[5,9)}'::int4multirange, 'so, so'::mood, ROW(1,'it''s, "quoted"')::pair, ARRAY[ROW(1,NULL)::pair], 99.5::percent,
	'(1.5,-2)'::point, '((0,0),(1,1),(2,0))'::polygon, 'the fat cat'::tsvector, 'fat & cat'::tsquery, 'pg_class'::regclass, ' led and trailed ', 'a,b', 'say "hi"', '\.', 'é', E'line\nfeed'),
	('-32768'::int2, 0::int4, -1::int8, 'NaN'::numeric, 'NaN'::float4, '-0'::float8, '-0.01'::money, false, ''::"char", ''::char(5), ''::varchar(9), ''::name, ''::text,
	'00000000-0000-0000-0000-000000000000'::uuid, '::1'::inet, '192.168/16'::cidr, 'ff:ff:ff:ff:ff:ff'::macaddr, 'infinity'::date, '24:00'::time, '00:00-12'::timetz,
	'-infinity'::timestamp, 'infinity'::timestamptz, '-1 mon'::interval, ''::bytea, ''::bit varying(9), 'null'::json, 'null'::jsonb, ''::xml, '{}'::int[], '{}'::text[][], 'empty'::int4range,
	'(,)'::tstzrange, '{}'::int4multirange, '"q"'::mood, ROW(NULL,'')::pair, '{}'::pair[], 0::percent,
	'(1e300,-1e-300)'::point, '((0,0))'::polygon, ''::tsvector, ''::tsquery, '"Odd table"'::regclass, E'\t', '\N', '""', '\.x', '', E'\r\n'),
	(NULL, 2147483647, NULL, 'Infinity'::numeric, '-Infinity'::float4, 'Infinity'::float8, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
	'4713-01-01 BC'::date, NULL, NULL, '0044-03-15 12:00 BC'::timestamp, '10000-01-01'::timestamptz, '-00:00:01'::interval, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
	NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
	(1, 1, 1, 0.000000000000000000001, 1e-40::float4, 5e-324::float8, 0::money, true, ','::"char", '"'::char(5), ','::varchar(9), '"'::name, key, NULL, NULL, NULL, NULL,
	NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, xmlelement(name b, '\x00ff'::bytea), NULL, NULL, NULL,
	NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, repeat('"', 70000), repeat('x', 200000), repeat('é,', 50000), ',', '=1+1', E'\b\x01\x7f')
	) v $$`

// hostile are settings of roles and databases that change what values look like.
const hostile = `
DO $do$ DECLARE s text; BEGIN
	FOREACH s IN ARRAY ARRAY['timezone TO ''America/New_York''', 'datestyle TO ''German, DMY''', 'intervalstyle TO sql_standard', 'extra_float_digits TO -5', 'bytea_output TO escape',
		'xmlbinary TO hex', 'lc_monetary TO ''C.UTF-8''', 'quote_all_identifiers TO on', 'client_encoding TO latin1',
		'default_transaction_isolation TO serializable', 'default_transaction_read_only TO on'] LOOP
		EXECUTE format('ALTER DATABASE %I SET %s', current_database(), s);
	END LOOP; END $do$`

func exported(t testing.TB, s *db.Source, key string) (string, int64) {
	t.Helper()
	var b bytes.Buffer
	rows, err := s.Export(t.Context(), key, day, &b)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), rows
}

func sameAsCopy(t *testing.T, s *db.Source, url, key string) string {
	t.Helper()
	got, rows := exported(t, s, key)
	want, count := copyCSV(t, url, "SELECT * FROM export_rows("+literal(key)+", '"+day.ISO()+"')")
	if got != want {
		t.Errorf("the bytes differ from COPY's (-copy +export):\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
	if rows != count {
		t.Errorf("%d rows, COPY counts %d", rows, count)
	}
	return got
}

func TestTheBytesAreThoseOfCopy(t *testing.T) {
	t.Parallel()
	s, url := world(t, exportRows)
	for _, key := range []string{"NASTY", "ROWS_1", "ROWS_5000", "EMPTY"} {
		sameAsCopy(t, s, url, key)
	}
}

func TestEveryCommonTypeIsWrittenAsCopyWritesItWhateverTheDatabaseIsSetTo(t *testing.T) {
	t.Parallel()
	_, url := world(t, `CREATE TABLE "Odd table" (); `+types)
	want, _ := copyCSV(t, url, "SELECT * FROM export_rows('k', '2025-01-31')")
	run(t, url, hostile)
	s := source(t, url)
	for range 2 { // the second knows the columns
		if got, _ := exported(t, s, "k"); got != want {
			t.Errorf("the bytes differ from COPY's (-copy +export):\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
		}
	}
}

func TestZeroRowsGiveTheHeaderLine(t *testing.T) {
	t.Parallel()
	s, _ := world(t, exportRows)
	if got, rows := exported(t, s, "EMPTY"); got != "a,b,c,d,e,f,g,h\n" || rows != 0 {
		t.Errorf("got %q with %d rows", got, rows)
	}
}

func TestOneColumnKeepsNullEmptyAndTheEndMarkApart(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE FUNCTION export_rows(text, date) RETURNS TABLE ("\." text) LANGUAGE sql STABLE AS
		$$ VALUES (NULL), (''), ('\.'), ('\.x'), ('x'), (',') $$`)
	if got := sameAsCopy(t, s, url, "k"); got != "\"\\.\"\n\n\"\"\n\"\\.\"\n\\.x\nx\n\",\"\n" {
		t.Errorf("got %q", got)
	}
}

func TestEveryCharacterIsWrittenAsCopyWritesItAloneAndBetweenOthers(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE FUNCTION export_rows(text, date) RETURNS SETOF text LANGUAGE sql STABLE AS $$
		SELECT repeat('a', before) || chr(c) || repeat('z', after) FROM generate_series(1, 383) c, generate_series(0, 17) before, (VALUES (0), (1), (9)) w(after) $$`)
	sameAsCopy(t, s, url, "k")
}

func TestAFunctionWithoutColumnsIsWrittenAsCopyWritesIt(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE TYPE nothing AS (); CREATE FUNCTION export_rows(text, date) RETURNS SETOF nothing LANGUAGE sql STABLE AS $$ SELECT FROM generate_series(1, 3) $$`)
	sameAsCopy(t, s, url, "k")
}

func TestTheFunctionMayBeNamedLikeAnything(t *testing.T) {
	t.Parallel()
	const odd = `"My ""schema"".x"."drop table; --"`
	_, url := world(t, `CREATE SCHEMA "My ""schema"".x"; CREATE FUNCTION `+odd+`(text, date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT $1 $$;
		CREATE FUNCTION lower_case(text, date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT 'lower' $$`)
	for name, want := range map[string]string{odd: "k", "Lower_CASE": "lower", "public.lower_case": "lower"} {
		s := source(t, url, func(c *db.SourceConfig) { c.Function = name })
		if got, _ := exported(t, s, "k"); !strings.HasSuffix(got, "\n"+want+"\n") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestAFunctionNameThatIsNoneIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "a.", ".a", "a.b.c", "a b", "f(); --", `"open`, `""`, "1a", "f;", "a-b", `"a"b`, strings.Repeat("x", 64), "\"\x00\""} {
		if _, err := db.OpenSource(t.Context(), db.SourceConfig{URL: "postgres://localhost/x", Function: name}); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}

func TestKeysGoThroughVerbatim(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (k text, d date) LANGUAGE sql STABLE AS $$ SELECT key, d $$; CREATE TABLE job_chunk()`)
	run(t, url, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings TO off', current_database()); END $$`)
	for _, key := range []string{"O'Brien", "x') TO STDOUT; DROP TABLE job_chunk; --", `a\'b`, "$$", `E'\x27'`, "'||pg_sleep(5)||'", "%s", `x"y`, "價格", "$1", "\\", "{}", " "} {
		got, _ := exported(t, s, key)
		want := key
		if strings.Contains(key, `"`) {
			want = `"` + strings.ReplaceAll(key, `"`, `""`) + `"`
		}
		if got != "k,d\n"+want+",2025-01-31\n" {
			t.Errorf("%q: got %q", key, got)
		}
	}
	run(t, url, "SELECT * FROM job_chunk")
}

func TestTheStatementTimeoutIsOursAndNotTheRoles(t *testing.T) {
	t.Parallel()
	_, url := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT pg_sleep(2)::text $$;
		DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout TO ''1s''', current_database()); END $do$`)
	if _, rows := exported(t, source(t, url), "k"); rows != 1 {
		t.Errorf("%d rows", rows)
	}
	if f := fails(t, source(t, url, func(c *db.SourceConfig) { c.StatementTimeout = 500 * time.Millisecond }), "k"); f.Code != "SQL_57014" {
		t.Errorf("got %s", f.Code)
	}
}

func FuzzExportAgreesWithCopy(f *testing.F) {
	for _, seed := range []string{"", "a", `\.`, `"`, ",", "\n", "\r\n", " ", "é", "1,2", `\N`, "\x01", "日本", "12345678,", strings.Repeat(`"`, 70)} {
		f.Add(seed)
	}
	url := dbtest.URL(f)
	run(f, url, `CREATE FUNCTION one(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ VALUES (key), (NULL), (key || key) $$;
		CREATE FUNCTION two(key text, d date) RETURNS TABLE (a text, b text) LANGUAGE sql STABLE AS $$ VALUES (key, reverse(key)), (NULL, key), (key, NULL) $$`)
	conn := copySession(f, url)
	sources := map[string]*db.Source{"one": source(f, url, named("one", 1)), "two": source(f, url, named("two", 1))}
	f.Fuzz(func(t *testing.T, key string) {
		if strings.ContainsRune(key, 0) || !utf8.ValidString(key) {
			t.Skip("PostgreSQL has no such text")
		}
		for function, s := range sources {
			got, rows := exported(t, s, key)
			want, count := copyIn(t, conn, "SELECT * FROM "+function+"("+literal(key)+", '"+day.ISO()+"')")
			if got != want || rows != count {
				t.Errorf("%s of %q: got %q with %d rows, COPY gives %q with %d", function, key, got, rows, want, count)
			}
		}
	})
}

// The second export asks for dates and timestamps in binary, see TestTheBytesAreThoseOfCopy for the first.
func TestDatesAndTimestampsOfAllTimesAreWrittenAsCopyWritesThem(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE DOMAIN birthday AS date;
		CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (n int, d date, ts timestamp, tz timestamptz, dom birthday, ds date[]) LANGUAGE sql STABLE AS $$
		WITH moment AS (
			SELECT i, '4713-01-01 00:00 BC'::timestamp + ('x' || substr(md5(i::text), 1, 15))::bit(60)::bigint / 1152921504606846976.0 * interval '298000 years' AS at FROM generate_series(1, 20000) i
			UNION ALL
			SELECT i, '1999-12-20 00:00:00'::timestamp + i * interval '7 hours 13 min 11.000001 s' FROM generate_series(1, 200) i -- around the epoch
			UNION ALL
			SELECT i, '0001-12-20 BC'::timestamp + i * interval '1 day' + i * interval '100 ms' FROM generate_series(1, 40) i -- around year 1
			UNION ALL
			SELECT 1, x::timestamp FROM unnest(ARRAY['infinity', '-infinity', '2000-01-01', '1999-12-31 23:59:59.999999', '2000-02-29', '1900-02-28 24:00', '2024-12-31 23:59:59.1', '9999-12-31 23:59:59.99999',
				'10000-01-01', '99999-12-31', '100000-01-01', '294276-12-31 23:59:59.999999', '4713-01-01 BC', '4713-11-24 BC', '0001-01-01', '0001-12-31 BC', '0400-02-29', '0401-02-29 BC', NULL]) x
		)
		SELECT i, at::date, at, at AT TIME ZONE 'UTC', at::date, ARRAY[at::date] FROM moment
		UNION ALL SELECT 1, x::date, NULL, NULL, x::date, NULL FROM unnest(ARRAY['5874897-12-31', '1000000-01-01', '4714-11-24 BC', 'infinity', '-infinity', NULL]) x
		UNION ALL SELECT 1, NULL, NULL, '4714-11-24 00:00:00.000001+00 BC', NULL, NULL $$`)
	for range 2 {
		if got := sameAsCopy(t, s, url, "k"); !strings.Contains(got, "\n1,5874897-12-31,,,5874897-12-31,\n") {
			t.Error("not the rows that the test is about")
		}
	}
}

func TestAFunctionMayGetOtherColumnsBetweenTwoExports(t *testing.T) {
	t.Parallel()
	s, url := world(t, "")
	for _, columns := range []string{
		"d date, n int", // learned
		"d date, n int",
		"n int, d date",          // numbers where dates are expected
		"n int, d date, m date",  // one more
		"t timestamptz",          // fewer
		"d timestamp",            // another type of the same place
		"t text",                 // none
		"t timestamp, ds date[]", // and again
	} {
		run(t, url, "DROP FUNCTION IF EXISTS export_rows; CREATE FUNCTION export_rows(key text, effective_date date) RETURNS TABLE ("+columns+`) LANGUAGE plpgsql STABLE AS $$
			BEGIN RETURN QUERY EXECUTE 'SELECT * FROM json_to_record(''{"d": "2025-01-31", "n": 7, "m": "2025-02-28", "t": "2025-01-31 12:30Z", "ds": ["2025-01-31"]}'') AS r(`+columns+`)'; END $$`)
		sameAsCopy(t, s, url, "k")
		sameAsCopy(t, s, url, "k")
	}
}

// The texts of dates and timestamps follow the time zone and the date style that the function sets for itself, be it always or for some keys only.
func TestAFunctionThatSetsItsTimeZoneIsWrittenAsCopyWritesIt(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (n int, day date, at timestamptz) LANGUAGE plpgsql STABLE AS $$ BEGIN
		CASE key WHEN 'zone' THEN PERFORM set_config('timezone', 'Asia/Tokyo', true); WHEN 'style' THEN PERFORM set_config('datestyle', 'German', true); ELSE END CASE;
		RETURN QUERY SELECT i, d, '2025-03-09 23:30Z'::timestamptz FROM generate_series(1, 20) i; END $$;
		CREATE FUNCTION zoned(key text, d date) RETURNS TABLE (n int, at timestamptz) LANGUAGE plpgsql STABLE AS $$ BEGIN
		PERFORM set_config('timezone', 'Asia/Tokyo', true); RETURN QUERY SELECT i, '2025-03-09 23:30Z'::timestamptz FROM generate_series(1, 100000) i; END $$`)
	for _, key := range []string{"plain", "plain", "zone", "style", "plain"} {
		sameAsCopy(t, s, url, key)
	}
	always := source(t, url, named("zoned", 1)) // long files
	for range 2 {
		if got, rows := exported(t, always, "k"); rows != 100_000 || !strings.HasSuffix(got, ",2025-03-10 08:30:00+09\n") {
			t.Errorf("%d rows, ending in %q", rows, got[len(got)-40:])
		}
	}
	sometimes := source(t, url)
	run(t, url, `CREATE OR REPLACE FUNCTION export_rows(key text, d date) RETURNS TABLE (n int, day date, at timestamptz) LANGUAGE plpgsql STABLE AS $$ BEGIN
		IF key = 'zone' THEN PERFORM set_config('timezone', 'Asia/Tokyo', true); END IF;
		RETURN QUERY SELECT i, d, '2025-03-09 23:30Z'::timestamptz FROM generate_series(1, 100000) i; END $$`)
	sameAsCopy(t, sometimes, url, "plain")
	if f := fails(t, sometimes, "zone"); f.Code != "SOURCE_SETTINGS_CHANGED" || f.Class != export.Transient || !errors.Is(f, export.ErrOnceMore) {
		t.Errorf("got %+v", f)
	}
	sameAsCopy(t, sometimes, url, "zone")
}

// An export function may set what it likes, for good too: the next export has ours again.
func TestAFunctionThatChangesTheSessionDoesNotChangeTheNextExport(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (at text) LANGUAGE plpgsql AS $$ BEGIN
		RETURN QUERY SELECT '2025-03-09 23:30Z'::timestamptz::text;
		IF key = 'bad' THEN PERFORM set_config(n, v, false) FROM (VALUES ('timezone', 'Asia/Tokyo'), ('datestyle', 'German')) x (n, v); EXECUTE 'DEALLOCATE ALL'; END IF; END $$`,
		func(c *db.SourceConfig) { c.Pool = 1 })
	for _, key := range []string{"good", "bad", "good"} {
		if got, _ := exported(t, s, key); key == "good" && got != "at\n2025-03-09 23:30:00+00\n" {
			t.Errorf("got %q", got)
		}
	}
	conn := session(t, url)
	if n := value[int](t, conn, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'exportd-source'`); n != 1 {
		t.Errorf("%d sessions, want the one that all three used", n)
	}
}

// For good or for itself: names are looked up and rights are checked as the session's role and database have it.
func TestAFunctionThatChangesWhoOrWhereItIsDoesNotChangeTheNextExport(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE ROLE nobody_é NOLOGIN; CREATE SCHEMA other; CREATE TABLE one AS SELECT 1 AS n; CREATE TABLE other.one AS SELECT 2 AS n;
		CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (n int, who name) LANGUAGE plpgsql AS $$ BEGIN
		RETURN QUERY EXECUTE 'SELECT n, current_user FROM one';
		IF key <> 'good' THEN PERFORM set_config(split_part(key, '=', 1), split_part(key, '=', 2), false); END IF;
		EXECUTE 'DEALLOCATE ALL'; END $$`, func(c *db.SourceConfig) { c.Pool = 1 })
	admin := mustConnect(t, url)
	t.Cleanup(func() {
		defer admin.Close(context.Background())
		if _, err := admin.Exec(context.Background(), "DROP ROLE nobody_é"); err != nil {
			t.Error(err)
		}
	})
	good, _ := exported(t, s, "good")
	for _, key := range []string{"search_path=other, public", "role=nobody_é", "session_authorization=nobody_é"} {
		for range 2 {
			exported(t, s, key)
			if got, _ := exported(t, s, "good"); got != good {
				t.Errorf("after %s: got %q, want %q", key, got, good)
			}
		}
	}
}

func TestAFunctionThatSetsTheEncodingFailsInPlainWords(t *testing.T) {
	t.Parallel()
	s, url := world(t, `CREATE FUNCTION export_rows(key text, d date) RETURNS TABLE (a text) LANGUAGE plpgsql STABLE AS $$ BEGIN
		IF key = 'bad' THEN PERFORM set_config('client_encoding', 'LATIN1', true); END IF; RETURN QUERY SELECT 'é'; END $$`)
	for range 2 {
		if f := fails(t, s, "bad"); f.Code != "SOURCE_ENCODING_CHANGED" || f.Class != export.Permanent {
			t.Errorf("got %+v", f)
		}
		sameAsCopy(t, s, url, "good")
	}
}
