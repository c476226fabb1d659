package db_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

// roleURLs makes the roles of deploy/postgres in a database that the owner migrates, and says how each logs in.
func roleURLs(t *testing.T) map[string]string {
	t.Helper()
	admin := dbtest.URL(t)
	script := func(name string) string {
		text, err := os.ReadFile("../deploy/postgres/" + name)
		must(t, err)
		return string(text)
	}
	names := []string{"exportd_owner", "exportd_api", "exportd_consumer", "exportd_source"}
	t.Cleanup(func() { // roles are the server's: the next run begins without them
		conn := mustConnect(t, admin)
		defer conn.Close(context.Background())
		for _, name := range names {
			if _, err := conn.Exec(context.Background(), "drop owned by "+name+" cascade; drop role "+name); err != nil {
				t.Error(err)
			}
		}
	})
	run(t, admin, `create table flights (origin text); create function export_rows(key text, effective_date date) returns table (o text) language sql stable as $$ select origin from flights $$`)
	run(t, admin, script("roles.sql"))
	run(t, admin, script("source.sql"))
	run(t, admin, "grant select on flights to exportd_source")
	password, urls := uuid.NewString(), map[string]string{}
	for _, name := range names {
		run(t, admin, "alter role "+name+" password '"+password+"'")
		u, err := url.Parse(admin)
		must(t, err)
		u.User = url.UserPassword(name, password)
		urls[name] = u.String()
	}
	must(t, db.Migrate(t.Context(), urls["exportd_owner"]))
	must(t, db.Migrate(t.Context(), urls["exportd_owner"]))
	run(t, admin, script("roles.sql"))
	return urls
}

func TestTheRolesOfDeployMayDoTheirPartAndNoMore(t *testing.T) {
	t.Parallel()
	urls := roleURLs(t)
	as := func(role string) *db.Store {
		s, err := db.Open(t.Context(), db.Config{URL: urls[role], Worker: role, Lease: time.Minute, MaxAttempts: 2, RepublishAfter: time.Minute, Parking: true,
			BasePath: "b", Bucket: "bucket", Function: "export_rows", Pool: 4})
		must(t, err)
		t.Cleanup(s.Close)
		must(t, s.Ping(t.Context()))
		if d, err := s.Describe(t.Context(), role == "exportd_api"); err != nil || len(d.Faults) > 0 {
			t.Errorf("%s: %v %v", role, d.Faults, err)
		}
		return s
	}
	api, consumer := as("exportd_api"), as("exportd_consumer")
	ctx := t.Context()

	// A job, relayed and worked by a consumer, with a retry and a dead letter; its end, its re-drive; what every process repairs.
	id, refs := submit(t, api, submission(3, func(r *export.SubmitRequest) { r.OnFailure = export.Continue }))
	must(t, consumer.Heartbeat(ctx, "host", "v", 8, 0))
	debts := lease(t, consumer, 10)
	must(t, consumer.ConfirmSent(ctx, debts))
	c := claim(t, consumer, refs[0])
	must(t, consumer.Announce(ctx, c, file(c).ObjectKey, facts))
	must(t, consumer.Done(ctx, c, file(c), false))
	why := &export.Failure{Class: export.Permanent, Code: "X", Err: errors.New("bad")}
	must(t, consumer.DeadLetter(ctx, claim(t, consumer, refs[1]), why))
	c = claim(t, consumer, refs[2])
	if renewed, err := consumer.Renew(ctx, []*export.Claim{c}); err != nil || len(renewed) != 1 {
		t.Fatalf("renewed %v: %v", renewed, err)
	}
	must(t, consumer.Retry(ctx, c, why, 0))
	c = claim(t, consumer, refs[2])
	must(t, consumer.Done(ctx, c, file(c), false))
	notices, err := consumer.LeaseOutbox(ctx, export.OutboxParking, 10)
	must(t, err)
	if len(notices) != 1 {
		t.Fatalf("%d notices", len(notices))
	}
	must(t, consumer.DeleteOutbox(ctx, []int64{notices[0].ID}))
	if e := end(t, consumer, id); e == nil || e.Outcome != export.Failed {
		t.Fatalf("ending %+v", e)
	}
	if n, err := api.Redrive(ctx, "t", id); err != nil || n != 1 {
		t.Fatalf("re-driven %d: %v", n, err)
	}
	for _, s := range []*db.Store{api, consumer} {
		_, err := s.OweExpired(ctx)
		must(t, err)
		_, err = s.Expired(ctx)
		must(t, err)
		_, err = s.CancelLeftovers(ctx)
		must(t, err)
		_, err = s.Unfinished(ctx, time.Minute)
		must(t, err)
		_, err = s.Expire(ctx, time.Hour)
		must(t, err)
		_, err = s.State(ctx)
		must(t, err)
	}
	must(t, api.Cancel(ctx, "t", id))
	must(t, consumer.Goodbye(ctx))

	// What none of them may.
	refused := func(role, sql string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, urls[role])
		must(t, err)
		defer conn.Close(context.Background())
		_, err = conn.Exec(ctx, "set default_transaction_read_only = off") // as anybody may
		must(t, err)
		_, err = conn.Exec(ctx, sql)
		if !isDenied(err) {
			t.Errorf("%s: %s: %v", role, sql, err)
		}
	}
	for _, role := range []string{"exportd_api", "exportd_consumer", "exportd_source"} {
		refused(role, "create table t ()")
		refused(role, "truncate job")
		refused(role, "drop table worker")
		refused(role, "delete from goose_db_version")
		refused(role, "create role x")
	}
	refused("exportd_consumer", "insert into job (job_id, tenant, request_hash, priority, on_failure, reuse, compression, total) values ('J', 't', '', 1, 'CONTINUE', true, 'NONE', 1)")
	refused("exportd_consumer", "select nextval('job_number')")
	for _, role := range []string{"exportd_api", "exportd_consumer"} {
		refused(role, "update audit set tenant = 'x'")
		refused(role, "delete from audit")
		refused(role, "truncate audit")
		refused(role, "alter table audit disable trigger all")
	}
	refused("exportd_consumer", "select * from audit")
	refused("exportd_consumer", "insert into audit (action, tenant, role, token, address, forwarded, user_agent, via, request_id, trace_id) values ('', '', '', '', '', '', '', '', '', '')")
	if lines := audit(t, api, export.AuditFilter{}); len(lines) != 2 {
		t.Errorf("the orders left %+v", lines)
	}
	refused("exportd_api", "select * from flights")
	refused("exportd_source", "delete from flights")
	refused("exportd_source", "select * from job")

	// The source reader may read.
	rows, err := db.OpenSource(ctx, db.SourceConfig{URL: urls["exportd_source"], Function: "export_rows", Pool: 1})
	must(t, err)
	t.Cleanup(rows.Close)
	if d, err := rows.Describe(ctx); err != nil || len(d.Columns) != 1 {
		t.Errorf("the source is %+v: %v", d, err)
	}
}

// isDenied says whether PostgreSQL refused for want of a right: insufficient_privilege.
func isDenied(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && state.SQLState() == "42501"
}
