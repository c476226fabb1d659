package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// SourceDescription is what the source database says of the export function.
type SourceDescription struct {
	Signature  string // export_rows(key text, effective_date date)
	Language   string // sql, plpgsql, …
	Volatility string // STABLE, VOLATILE, IMMUTABLE
	Columns    []Column
	Server     string // version
	Encoding   string // of the database
	Warnings   []string
}

// Column of the CSV.
type Column struct{ Name, Type string }

// oldestServer has client_connection_check_interval.
const oldestServer = 140000

// Describe checks that the function can be run: the server is recent enough, the function takes (text, date), returns rows of at least one column, and this
// user may execute it. The error says in plain words what is wrong. Warnings are what works, but slowly or not for ever.
func (s *Source) Describe(ctx context.Context) (*SourceDescription, error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}) // one server session, also behind a pooler
	if err != nil {
		return nil, sourceFailure(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	d := &SourceDescription{}
	var version int
	err = tx.QueryRow(ctx, `select current_setting('server_version'), current_setting('server_version_num')::int, current_setting('server_encoding')`).
		Scan(&d.Server, &version, &d.Encoding)
	if err != nil {
		return nil, sourceFailure(err)
	}
	if version < oldestServer {
		return nil, fmt.Errorf("the source server has version %s; PostgreSQL 14 or later is needed", d.Server)
	}
	if d.Columns, err = s.resultColumns(ctx, tx); err != nil {
		return nil, err
	}
	if err := s.functionTraits(ctx, tx, d); err != nil {
		return nil, err
	}
	if d.Encoding != "UTF8" {
		d.Warnings = append(d.Warnings, fmt.Sprintf("the source database is encoded in %s: a row whose text is not valid there, or has no counterpart in UTF-8, fails its chunk for good", d.Encoding))
	}
	return d, nil
}

// resultColumns has the server analyse the very query that exports run.
func (s *Source) resultColumns(ctx context.Context, tx pgx.Tx) ([]Column, error) {
	described, err := tx.Conn().PgConn().Prepare(ctx, "", s.query, []uint32{pgtype.TextOID, pgtype.DateOID})
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && (refused.Code == "42883" || refused.Code == "3F000"):
		return nil, fmt.Errorf("there is no export function %s(text, date) in the source database: %w", s.function, sourceFailure(err))
	case errors.As(err, &refused) && refused.Code == "42601":
		return nil, fmt.Errorf("the export function %s(text, date) does not say which columns it returns (RETURNS TABLE (…) does): %w", s.function, sourceFailure(err))
	case err != nil:
		return nil, fmt.Errorf("the export function %s(text, date) cannot be run: %w", s.function, sourceFailure(err))
	case len(described.Fields) == 0:
		return nil, fmt.Errorf("the export function %s(text, date) returns no column", s.function)
	}
	columns := make([]Column, len(described.Fields))
	for i, f := range described.Fields {
		columns[i].Name = f.Name
		if err := tx.QueryRow(ctx, `select format_type($1::oid, $2::int)`, f.DataTypeOID, f.TypeModifier).Scan(&columns[i].Type); err != nil {
			return nil, sourceFailure(err)
		}
	}
	return columns, nil
}

// functionTraits fills in what pg_proc says. A function that is reached only through an implicit cast of its arguments is not looked for.
func (s *Source) functionTraits(ctx context.Context, tx pgx.Tx, d *SourceDescription) error {
	var set, allowed, inlinable bool
	err := tx.QueryRow(ctx, `
		select p.proname || '(' || pg_get_function_arguments(p.oid) || ')', l.lanname,
			case p.provolatile when 'i' then 'IMMUTABLE' when 's' then 'STABLE' else 'VOLATILE' end,
			p.proretset, has_function_privilege(p.oid, 'EXECUTE'),
			l.lanname = 'sql' and p.provolatile <> 'v' and not p.proisstrict and not p.prosecdef and p.proconfig is null
		from pg_proc p join pg_language l on l.oid = p.prolang
		where p.oid = to_regprocedure($1)`, s.function+"(text,date)").
		Scan(&d.Signature, &d.Language, &d.Volatility, &set, &allowed, &inlinable)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		d.Signature = s.function + "(text, date)"
		d.Warnings = append(d.Warnings, "the export function's arguments are not exactly (text, date); values are cast at each call")
		return nil
	case err != nil:
		return sourceFailure(err)
	case !allowed:
		return fmt.Errorf("the source user may not execute %s: GRANT EXECUTE ON FUNCTION %s(text, date) TO it", d.Signature, s.function)
	case !set:
		d.Warnings = append(d.Warnings, "the export function returns one row, not a set")
	}
	if set && !inlinable {
		d.Warnings = append(d.Warnings, "the export function is materialised on the server before its first row is sent; LANGUAGE sql, STABLE, without STRICT, SECURITY DEFINER and SET streams")
	}
	return nil
}
