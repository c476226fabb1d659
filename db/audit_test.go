package db_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

func ordered(t *testing.T, tenant, action string) context.Context {
	t.Helper()
	return export.WithOrder(t.Context(), export.Order{Action: action, Actor: export.Actor{
		Tenant: tenant, Role: "operator", Token: "9f86d081", Address: "192.0.2.1", Forwarded: "f", UserAgent: "u", Via: "api", RequestID: "r", TraceID: "tr",
	}, Filter: json.RawMessage(`{"key": "K"}`)})
}

func audit(t *testing.T, s *db.Store, f export.AuditFilter) []export.AuditLine {
	t.Helper()
	lines, next, err := s.Audit(t.Context(), f, nil, 1000)
	must(t, err)
	if next != nil {
		t.Fatal("there are more lines")
	}
	return lines
}

func TestAnOrderLeavesItsLineAndNoOtherDoes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := with(t, setup(t), "default_query_exec_mode="+mode)
			id, refs := submit(t, s, submission(3, func(r *export.SubmitRequest) { r.OnFailure = export.Continue }))
			c := claim(t, s, refs[0])
			ctx := ordered(t, "ops", "cancelJob")
			for range 2 { // the second changes nothing
				must(t, s.Cancel(ctx, "", id))
			}
			must(t, s.Retry(ctx, c, broken, 0))
			if _, err := s.Redrive(ctx, "", id); !errors.Is(err, export.ErrEnded) {
				t.Errorf("a job that has not ended: %v", err)
			}
			end(t, s, id)
			must(t, s.Cancel(ctx, "", id))
			if err := s.Cancel(ctx, "another", id); !errors.Is(err, export.ErrNotFound) {
				t.Errorf("another's job: %v", err)
			}
			lines := audit(t, s, export.AuditFilter{})
			if len(lines) != 1 {
				t.Fatalf("%d lines: %+v", len(lines), lines)
			}
			two := 2
			want := export.AuditLine{ID: lines[0].ID, At: lines[0].At, Order: export.OrderOf(ctx), JobID: id, JobTenant: "t", Chunks: &two}
			if diff := cmp.Diff(want, lines[0]); diff != "" {
				t.Error(diff)
			}
			if age := time.Since(lines[0].At).Abs(); age > time.Minute {
				t.Errorf("written at %s", lines[0].At)
			}
			if n, err := s.Redrive(ordered(t, "t", "redriveJob"), "t", id); err != nil || n != 3 {
				t.Fatalf("re-driven %d: %v", n, err)
			}
			lines = audit(t, s, export.AuditFilter{})
			if len(lines) != 2 || lines[0].Action != "redriveJob" || lines[0].Tenant != "t" || *lines[0].Chunks != 3 {
				t.Errorf("%+v", lines)
			}
		})
	}
}

// Without its line an order is not carried out, and a line whose transaction fails is not there.
func TestAnOrderAndItsLineAreOne(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	id, _ := submit(t, s, submission(3))
	exec(t, pool, `alter table audit add constraint refuse check (tenant <> 'nobody')`)
	if err := s.Cancel(ordered(t, "nobody", "cancelJob"), "", id); err == nil {
		t.Error("cancelled without a line")
	}
	if j := job(t, s, id); j.Status != export.Submitted || j.Pending != 3 {
		t.Errorf("%+v", j)
	}
	exec(t, pool, `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`)
	exec(t, pool, `create constraint trigger refuse after update on job deferrable initially deferred for each row execute function refuse()`) // at the commit
	if err := s.Cancel(ordered(t, "ops", "cancelJob"), "", id); err == nil {
		t.Error("cancelled against the trigger")
	}
	if lines := audit(t, s, export.AuditFilter{}); len(lines) != 0 {
		t.Errorf("lines of what was not done: %+v", lines)
	}
}

func TestARepeatOfAnOrderWhoseAnswerWasLostLeavesOneLine(t *testing.T) {
	t.Parallel()
	direct := setup(t)
	s, p := throughProxy(t, direct)
	id, _ := submit(t, s, submission(3))
	other, _ := submit(t, s, submission(3))
	ctx := ordered(t, "ops", "cancelJob")
	must(t, s.Cancel(ctx, "", other)) // warms the connection up
	p.withLostAnswer(t, "commit", func() error { return s.Cancel(ctx, "", id) })
	if lines := audit(t, direct, export.AuditFilter{JobID: id}); len(lines) != 1 {
		t.Errorf("%+v", lines)
	}
}

func TestTheAuditIsListedPageByPageAndByFilter(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i := range 25 {
		l := export.AuditLine{Order: export.Order{Action: []string{"signIn", "cancelJob"}[i%2], Actor: export.Actor{Tenant: fmt.Sprint("t", i%3), Token: fmt.Sprint(i % 5)}}, Status: i % 2 * 403, Problem: "p"}
		if i%4 == 0 {
			l.JobID = "J20260102_000001"
		}
		must(t, s.Record(t.Context(), l))
	}
	// Many lines of one moment, as a re-drive by filter leaves them.
	exec(t, sessions(t, s), `update audit set at = '2026-01-02T10:00:00Z' where audit_id between 5 and 15`)
	var paged []export.AuditLine
	for after := (*export.AuditPlace)(nil); ; {
		lines, next, err := s.Audit(t.Context(), export.AuditFilter{}, after, 4)
		must(t, err)
		paged = append(paged, lines...)
		if after = next; next == nil {
			break
		}
	}
	all := audit(t, s, export.AuditFilter{})
	if diff := cmp.Diff(all, paged); diff != "" || len(all) != 25 {
		t.Errorf("%d lines; the pages differ: %s", len(all), diff)
	}
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; a.At.Before(b.At) || a.At.Equal(b.At) && a.ID < b.ID {
			t.Errorf("%v is before %v", a, b)
		}
	}
	moment := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		f    export.AuditFilter
		want int
	}{
		{export.AuditFilter{Tenant: "t1"}, 8}, {export.AuditFilter{Token: "4"}, 5}, {export.AuditFilter{Action: "cancelJob"}, 12}, {export.AuditFilter{JobID: "J20260102_000001"}, 7},
		{export.AuditFilter{From: moment, To: moment.Add(time.Microsecond)}, 11}, {export.AuditFilter{To: moment}, 0}, {export.AuditFilter{From: moment.Add(time.Second)}, 14},
		{export.AuditFilter{Tenant: "t0", Action: "signIn", Token: "0"}, 1},
	} {
		if n := len(audit(t, s, c.f)); n != c.want {
			t.Errorf("%+v: %d lines, want %d", c.f, n, c.want)
		}
	}
}

func TestASubmissionLeavesNoLine(t *testing.T) {
	t.Parallel()
	s := setup(t)
	submit(t, s, submission(3))
	if lines := audit(t, s, export.AuditFilter{}); len(lines) != 0 {
		t.Errorf("%+v", lines)
	}
}

// Whatever default privileges gave away, the migration leaves nobody but the owner the right to change a line.
func TestTheMigrationTakesTheRightToChangeTheAuditFromEverybody(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t)
	role := fmt.Sprintf(`"odd Role %d"`, time.Now().UnixNano())
	t.Cleanup(func() {
		conn := mustConnect(t, url)
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "drop owned by "+role+" cascade; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	run(t, url, "create role "+role)
	run(t, url, "alter default privileges grant all on tables to "+role)
	must(t, db.Migrate(t.Context(), url))
	var rights string
	conn := session(t, url)
	rights = value[string](t, conn, `select string_agg(p, ' ') from unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES']) p
		where has_table_privilege('`+strings.ReplaceAll(role, `"`, "")+`', 'audit', p)`)
	if rights != "SELECT INSERT" {
		t.Errorf("it may %s", rights)
	}
}
