package db

import (
	"context"
	"fmt"
)

// Description is what the truth database says of itself and of the rights that the store's user has.
type Description struct {
	Server   string // version
	Encoding string // of the database
	Pooled   bool   // a pooler is in front of it, and the URL names no exec mode
	// Faults say in plain words what keeps the store from working. A schema that is missing is not among them: Migrations tells.
	Faults []string
}

// Describe looks at the server, the database and the rights on what the migrations have made so far: those of a process that submits jobs, or of one that does not.
func (s *Store) Describe(ctx context.Context, submits bool) (d Description, err error) {
	var version int
	var readOnly, mayCreate bool
	var schema *string
	err = s.pool.QueryRow(ctx, `
		select current_setting('server_version'), current_setting('server_version_num')::int, current_setting('server_encoding'),
			pg_is_in_recovery() or current_setting('transaction_read_only')::bool,
			current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)`).
		Scan(&d.Server, &version, &d.Encoding, &readOnly, &schema, &mayCreate)
	if err != nil {
		return d, err
	}
	if pooled := s.sessions.known.Load(); pooled != nil {
		d.Pooled = *pooled
	}
	fault := func(format string, args ...any) { d.Faults = append(d.Faults, fmt.Sprintf(format, args...)) }
	if version < oldestServer {
		fault("the server has version %s; PostgreSQL 14 or later is needed", d.Server)
	}
	if d.Encoding != "UTF8" {
		fault("the database is encoded in %s; create one with ENCODING 'UTF8'", d.Encoding)
	}
	if readOnly {
		fault("the database is read-only: this is a replica, or a failover is under way; name the primary")
	}
	if schema == nil {
		fault("the search_path of the user names no schema that exists")
		return d, nil
	}
	denied, tables, err := s.deniedRights(ctx, submits)
	if err != nil {
		return d, err
	}
	if tables == 0 && !mayCreate {
		fault("there are no tables yet and the user may not create them: GRANT CREATE ON SCHEMA %s", *schema)
	}
	for _, right := range denied {
		fault("the user lacks %s: GRANT it", right)
	}
	return d, nil
}

// deniedRights lists the rights that the store needs and its user lacks, on those of its tables and sequences that exist.
func (s *Store) deniedRights(ctx context.Context, submits bool) (denied []string, tables int, err error) {
	err = s.pool.QueryRow(ctx, `
		with things as (
			select c.oid, c.relname, c.relkind from pg_class c
			where c.relnamespace = current_schema()::regnamespace and c.relname = any($1)
		), needed as (
			select relname, right_, has_table_privilege(oid, right_) as granted from things, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) right_
			where relkind in ('r', 'p') and case when relname = 'audit' then $2 and right_ in ('SELECT', 'INSERT') else $2 or right_ <> 'INSERT' or relname not in ('job', 'job_chunk') end
			union all
			select relname, 'USAGE', has_sequence_privilege(oid, 'USAGE') from things where relkind = 'S' and $2
		)
		select coalesce(array_agg(right_ || ' on ' || relname order by relname, right_) filter (where not granted), '{}'), (select count(*) from things)
		from needed`, []string{"job_number", "job", "job_chunk", "dispatch", "outbox", "chunk_attempt", "file_cache", "worker", "audit"}, submits).Scan(&denied, &tables)
	return denied, tables, err
}
