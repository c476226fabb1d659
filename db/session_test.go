package db_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/export"
)

// wholeLife takes jobs through every statement of the store, and looks at what comes back as dates, times, intervals, arrays, bytes and JSON.
func wholeLife(t *testing.T, s *db.Store) {
	t.Helper()
	ctx := t.Context()
	r := submission(4, func(r *export.SubmitRequest) {
		r.Items[0].Key, r.OnFailure, r.IdempotencyKey, r.CallbackURL = `Ä'"\{},NULL %`, export.Continue, "k", "https://c.example"
		r.Items[0].Dates = []export.Date{19000101, 20240229, 20250330, 99991231}
	})
	id, refs := submit(t, s, r)
	if _, replayed, err := s.Submit(ctx, r); err != nil || !replayed {
		t.Fatalf("submit again: %v %v", replayed, err)
	}
	debts, err := s.LeaseDebts(ctx, 100)
	must(t, err)
	if len(debts) != 4 {
		t.Fatalf("leased %d", len(debts))
	}
	for i, d := range debts {
		if d.Ref != refs[i] {
			t.Fatalf("leased %v, want %v", d.Ref, refs[i])
		}
	}
	must(t, s.ConfirmSent(ctx, debts[:3]))
	must(t, s.SetAsideDebt(ctx, debts[3], "no"))
	if due, err := s.NextDue(ctx); err != nil || due <= 0 || due > time.Hour {
		t.Fatalf("next due %s %v", due, err)
	}
	must(t, s.Heartbeat(ctx, "h", "v", 3, 1))
	a, b, c, d := claim(t, s, refs[0]), claim(t, s, refs[1]), claim(t, s, refs[2]), claim(t, s, refs[3])
	if since := time.Since(a.StartedAt).Abs(); since > time.Minute || a.Job.CreatedAt.After(a.StartedAt) {
		t.Fatalf("claim started at %s, job created at %s", a.StartedAt, a.Job.CreatedAt)
	}
	renewals, err := s.Renew(ctx, []*export.Claim{a, b})
	must(t, err)
	if renewals[a.ID] != export.Renewed || renewals[b.ID] != export.Renewed {
		t.Fatalf("renewals %v", renewals)
	}
	must(t, s.RecordUpload(ctx, a, "o", "u"))
	must(t, s.Announce(ctx, a, file(a).ObjectKey, facts))
	must(t, s.Done(ctx, a, file(a), false))
	if f := recorded(t, s, a.Ref, export.None); f == nil || f.ObjectKey != file(a).ObjectKey || f.Facts != facts || f.ETag != file(a).ETag || f.ClaimID != a.ID || !f.ClaimStartedAt.Equal(a.StartedAt) {
		t.Fatalf("recorded %+v, want %+v", f, file(a))
	}
	if f, err := s.FileOf(ctx, a.Ref, a.ID, file(a).ObjectKey); err != nil || f == nil || f.Facts != facts {
		t.Fatalf("file of the claim %+v %v", f, err)
	}
	lapse := func(sql string) {
		must(t, s.InTx(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sql, b.ID); return err }))
	}
	lapse(`update job_chunk set attempts = 100, lease_until = now() - interval '90 s' where claim_id = $1::uuid`)
	if list, err := s.Expired(ctx); err != nil || len(list) != 1 || list[0].ClaimID != b.ID || list[0].Overdue < 90*time.Second || list[0].Overdue > time.Hour {
		t.Fatalf("expired %+v %v", list, err)
	}
	lapse(`update job_chunk set attempts = 1, lease_until = now() + interval '1 hour' where claim_id = $1::uuid`)
	must(t, s.Retry(ctx, b, broken, time.Hour))
	must(t, s.GiveBack(ctx, c, broken, 90*time.Minute))
	must(t, s.DeadLetter(ctx, d, broken))
	parked, err := s.LeaseOutbox(ctx, export.OutboxParking, 10)
	must(t, err)
	if len(parked) != 1 || parked[0].Headers[export.HeaderChunkKey] != refs[3].ChunkKey() {
		t.Fatalf("parked %+v", parked)
	}
	must(t, s.ParkAsItCame(ctx, export.Message{Body: []byte("\x00\xff"), Headers: map[string]string{"a": `"\`}}))
	must(t, s.DeleteOutbox(ctx, []int64{parked[0].ID}))
	if _, err := s.TakeDebts(ctx, 10, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OweExpired(ctx); err != nil {
		t.Fatal(err)
	}
	if ending, err := s.EndingJobs(ctx, []string{id}); err != nil || len(ending) != 0 {
		t.Fatalf("ending %v %v", ending, err)
	}
	must(t, s.Cancel(ctx, "t", id))
	if n, err := s.Redrive(ctx, "t", id); err == nil || n != 0 {
		t.Fatalf("re-drove a job that has not ended: %d", n)
	}
	if _, err := s.CancelLeftovers(ctx); err != nil {
		t.Fatal(err)
	}
	if jobs, err := s.Unfinished(ctx, time.Minute); err != nil || len(jobs) != 1 {
		t.Fatalf("unfinished %v %v", jobs, err)
	}
	e, err := s.Pin(ctx, id)
	must(t, err)
	var dates []export.Date
	must(t, s.Manifest(ctx, id, func(c export.ManifestChunk) error { dates = append(dates, c.Date); return nil }))
	if len(dates) != 4 || dates[0] != 19000101 || dates[3] != 99991231 {
		t.Fatalf("manifest %v", dates)
	}
	must(t, s.End(ctx, *e))
	events, err := s.LeaseWebhooks(ctx, []string{`"\{},`}, 10)
	must(t, err)
	if len(events) != 1 || events[0].Job.ID != id || events[0].Job.Status != export.Cancelled || !events[0].Job.CompletedAt.Equal(*job(t, s, id).CompletedAt) {
		t.Fatalf("events %+v", events)
	}
	must(t, s.PutOffWebhook(ctx, events[0], time.Hour, "no"))
	if _, err := s.Expire(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Redrive(ctx, "t", id); err != nil || n != 3 {
		t.Fatalf("re-drive: %d %v", n, err)
	}
	must(t, s.Goodbye(ctx))
	must(t, s.Ping(ctx))
}

func with(t *testing.T, s *db.Store, query string) *db.Store {
	t.Helper()
	u, err := url.Parse(s.URL)
	must(t, err)
	u.RawQuery += "&" + query
	cfg := s.Config
	cfg.URL = u.String()
	other, err := db.Open(context.Background(), cfg)
	must(t, err)
	t.Cleanup(other.Close)
	return other
}

// The modes other than the first are for poolers that hand out sessions per transaction.
func TestEveryStatementWorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			wholeLife(t, with(t, setup(t), "default_query_exec_mode="+mode))
		})
	}
}

func TestTheSettingsOfARoleOrDatabaseChangeNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		for _, zone := range []string{"Pacific/Kiritimati", "America/Los_Angeles"} {
			t.Run(mode+" "+zone, func(t *testing.T) {
				t.Parallel()
				s := setup(t)
				pool := sessions(t, s)
				for _, set := range []string{"timezone = '" + zone + "'", "datestyle = 'German'", "bytea_output = 'escape'", "intervalstyle = 'iso_8601'",
					"standard_conforming_strings = 'off'", "backslash_quote = 'off'", "extra_float_digits = '0'", "enable_hashjoin = 'off'", "jit_above_cost = '0'",
					"plan_cache_mode = 'force_generic_plan'", "search_path = 'public'", "default_transaction_deferrable = 'on'", "transform_null_equals = 'on'"} {
					exec(t, pool, `do $$ begin execute format('alter database %I set `+strings.ReplaceAll(set, "'", "''")+`', current_database()); end $$`)
				}
				wholeLife(t, with(t, s, "default_query_exec_mode="+mode))
				id, refs := submit(t, s, submission(1))
				must(t, s.DeadLetter(t.Context(), claim(t, with(t, s, "default_query_exec_mode="+mode), refs[0]), broken))
				exec(t, pool, `update job set error_message = null where job_id = $1`, id)
				end(t, with(t, s, "default_query_exec_mode="+mode), id)
				if got := job(t, s, id).ErrorMessage; got != "Chunk failed after 1 attempt: key=K date=2020-01-01: broken" {
					t.Fatal(got)
				}
			})
		}
	}
}

func TestPingNamesADatabaseThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"default_transaction_read_only = on":                  "read-only",
		"default_transaction_isolation = ''repeatable read''": "read committed",
	} {
		s := setup(t)
		exec(t, sessions(t, s), `do $$ begin execute format('alter database %I set `+set+`', current_database()); end $$`)
		if err := with(t, s, "").Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v", set, err)
		}
	}
}
