package db_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportd/db"
	"exportd/export"
)

func TestDescribeTellsColumnsAndTraits(t *testing.T) {
	t.Parallel()
	s, _ := world(t, `CREATE FUNCTION export_rows(key text, effective_date date) RETURNS TABLE (id bigint, amount numeric(12,2), "at" timestamptz) LANGUAGE sql STABLE
		AS $$ SELECT 1::bigint, 2.0::numeric(12,2), now() $$`)
	d, err := s.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Server == "" {
		t.Error("no server version")
	}
	d.Server = ""
	want := &db.SourceDescription{
		Signature: "export_rows(key text, effective_date date)", Language: "sql", Volatility: "STABLE", Encoding: "UTF8",
		Columns: []db.Column{{Name: "id", Type: "bigint"}, {Name: "amount", Type: "numeric"}, {Name: "at", Type: "timestamp with time zone"}},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func TestDescribeSaysInPlainWordsWhyAFunctionCannotBeRun(t *testing.T) {
	t.Parallel()
	_, url := world(t, `
		CREATE FUNCTION other_arguments(key text, n int) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT key $$;
		CREATE FUNCTION unknown_columns(key text, d date) RETURNS SETOF record LANGUAGE sql STABLE AS $$ SELECT 1, 2 $$;
		CREATE TYPE nothing AS (); CREATE FUNCTION no_columns(key text, d date) RETURNS SETOF nothing LANGUAGE sql STABLE AS $$ SELECT $$;
		CREATE FUNCTION forbidden(key text, d date) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT key $$;
		REVOKE ALL ON FUNCTION forbidden FROM public`)
	stranger := asStranger(t, url, "")
	for function, want := range map[string]string{
		"missing":         `there is no export function "missing"(text, date)`,
		"elsewhere.f":     `there is no export function "elsewhere"."f"(text, date)`,
		"other_arguments": `there is no export function "other_arguments"(text, date)`,
		"unknown_columns": "does not say which columns it returns",
		"no_columns":      "returns no column",
		"forbidden":       "the source user may not execute forbidden(key text, d date)",
	} {
		if _, err := source(t, stranger, named(function, 1)).Describe(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", function, err, want)
		}
	}
	if _, err := source(t, "postgres://u@host.invalid/x").Describe(t.Context()); export.FailureOf(err).Class != export.Outage {
		t.Errorf("got %v", err)
	}
}

func TestDescribeWarnsOfWhatWorksButNotWell(t *testing.T) {
	t.Parallel()
	_, url := world(t, `
		CREATE FUNCTION materialised(key text, d date) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN QUERY SELECT key; END $$;
		CREATE FUNCTION volatile(key text, d date) RETURNS SETOF text LANGUAGE sql AS $$ SELECT key $$;
		CREATE FUNCTION single(key text, d date) RETURNS text LANGUAGE sql STABLE AS $$ SELECT key $$;
		CREATE FUNCTION cast_arguments(key varchar, d timestamptz) RETURNS SETOF text LANGUAGE sql STABLE AS $$ SELECT key::text $$`)
	for function, want := range map[string]string{
		"materialised": "is materialised", "volatile": "is materialised", "single": "returns one row", "cast_arguments": "are not exactly (text, date)",
	} {
		s := source(t, url, named(function, 1))
		d, err := s.Describe(t.Context())
		if err != nil || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], want) {
			t.Errorf("%s: %+v, %v", function, d, err)
		}
		if got, rows := exported(t, s, "k"); rows != 1 || !strings.HasSuffix(got, "\nk\n") {
			t.Errorf("%s: got %q", function, got)
		}
	}
}
