package db_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exportd/db"
	"exportd/export"
)

func callback(url string) func(*export.SubmitRequest) {
	return func(r *export.SubmitRequest) { r.CallbackURL = url }
}

func leaseWebhooks(t *testing.T, s *db.Store, limit int, busy ...string) []export.Webhook {
	t.Helper()
	events, err := s.LeaseWebhooks(t.Context(), append([]string{}, busy...), limit)
	must(t, err)
	return events
}

// endedByOrder is a job that was cancelled and has ended.
func endedByOrder(t *testing.T, s *db.Store, change ...func(*export.SubmitRequest)) string {
	t.Helper()
	id, _ := submit(t, s, submission(1, change...))
	must(t, s.Cancel(t.Context(), "", id))
	end(t, s, id)
	return id
}

func TestTheEndOfAJobOwesItsCallbackOneEventForEachRun(t *testing.T) {
	t.Parallel()
	s := setup(t)
	ctx := t.Context()
	endedByOrder(t, s) // asks for no call
	id, refs := submit(t, s, submission(2, callback("https://Receiver.example:8443/path?x=1"), func(r *export.SubmitRequest) { r.OnFailure = export.Continue }))
	c := claim(t, s, refs[0])
	must(t, s.Announce(ctx, c, file(c).ObjectKey, facts))
	must(t, s.Done(ctx, c, file(c), false))
	must(t, s.DeadLetter(ctx, claim(t, s, refs[1]), &export.Failure{Class: export.Permanent, Code: "X", Err: errors.New("it \"failed\" \u2028 'é'")}))
	if early := leaseWebhooks(t, s, 10); len(early) > 0 {
		t.Fatalf("before the end: %+v", early)
	}
	e, err := s.Pin(ctx, id)
	must(t, err)
	var all sync.WaitGroup // whoever comes second changes nothing
	for range 4 {
		all.Go(func() {
			if err := s.End(ctx, *e); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	first := leaseWebhooks(t, s, 10)
	if len(first) != 1 {
		t.Fatalf("%d events: %+v", len(first), first)
	}
	got := first[0]
	if got.URL != "https://Receiver.example:8443/path?x=1" || got.Host != "receiver.example:8443" || got.Tries != 1 || got.RequestID != "r-1" || got.Age < 0 || got.Age > time.Minute {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff(job(t, s, id), got.Job, cmp.Comparer(time.Time.Equal)); diff != "" || got.Job.Status != export.Failed || got.Job.Done != 1 {
		t.Errorf("%s %s", got.Job.Status, diff)
	}
	must(t, s.DeleteOutbox(ctx, []int64{got.ID}))

	if n, err := s.Redrive(ctx, "", id); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if early := leaseWebhooks(t, s, 10); len(early) > 0 {
		t.Fatalf("before the second end: %+v", early)
	}
	c = claim(t, s, refs[1])
	must(t, s.Announce(ctx, c, file(c).ObjectKey, facts))
	must(t, s.Done(ctx, c, file(c), false))
	end(t, s, id)
	second := leaseWebhooks(t, s, 10)
	if len(second) != 1 || second[0].EventID == got.EventID || second[0].Job.Run != 2 || second[0].Job.Status != export.Completed || second[0].Job.ErrorMessage != "" {
		t.Errorf("got %+v", second)
	}
}

func TestAnEventSaysHowItsRunEndedThoughTheJobRunsAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	id := endedByOrder(t, s, callback("https://a.example"))
	want := job(t, s, id)
	_, err := s.Redrive(t.Context(), "", id)
	must(t, err)
	events := leaseWebhooks(t, s, 10)
	if len(events) != 1 {
		t.Fatalf("%+v", events)
	}
	if diff := cmp.Diff(want, events[0].Job, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
}

func TestAWebhookIsLeasedByOneUntilItIsDeletedOrPutOff(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	endedByOrder(t, s, callback("https://a.example"))
	var mu sync.Mutex
	var got []export.Webhook
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			events, err := s.LeaseWebhooks(t.Context(), []string{}, 10)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, events...)
		})
	}
	all.Wait()
	if len(got) != 1 {
		t.Fatalf("%d have it", len(got))
	}
	first := got[0]

	// Its holder dies: due again when the lease is over, under the same id.
	exec(t, pool, `update outbox set due_at = now() - interval '1 s'`)
	second := leaseWebhooks(t, s, 10)
	if len(second) != 1 || second[0].EventID != first.EventID || second[0].Tries != 2 {
		t.Fatalf("%+v", second)
	}
	if err := s.PutOffWebhook(t.Context(), first, time.Hour, "late"); !errors.Is(err, export.ErrStale) {
		t.Errorf("the first holder: %v", err)
	}
	if err := s.DropWebhook(t.Context(), first); !errors.Is(err, export.ErrStale) {
		t.Errorf("the first holder drops it: %v", err)
	}
	must(t, s.PutOffWebhook(t.Context(), second[0], 3*time.Hour, "refused\x00"))
	if early := leaseWebhooks(t, s, 10); len(early) > 0 {
		t.Errorf("put off, and yet %+v", early)
	}
	var reason string
	var wait time.Duration
	must(t, pool.QueryRow(t.Context(), `select error, due_at - now() from outbox`).Scan(&reason, &wait))
	if reason != "refused" || (wait-3*time.Hour).Abs() > time.Minute {
		t.Errorf("%q, due in %s", reason, wait)
	}
}

func TestOneHostsEventsDoNotStandInTheWayOfAnothers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	exec(t, pool, `insert into outbox (destination, headers, body, due_at) select 'https://slow.example/' || n, jsonb_build_object('id', n), '{}', now() - interval '1 h' from generate_series(1, 3000) n`)
	must(t, s.ParkAsItCame(t.Context(), export.Message{Body: []byte("x")}))
	endedByOrder(t, s, callback("https://good.example:444?q"))
	if events := leaseWebhooks(t, s, 100); len(events) != 1 || events[0].Host != "slow.example" || events[0].EventID != "1" {
		t.Fatalf("%d events, %+v", len(events), events)
	}
	if events := leaseWebhooks(t, s, 100, "slow.example", "other"); len(events) != 1 || events[0].Host != "good.example:444" {
		t.Fatalf("%d events, %+v", len(events), events)
	}
	if notices, err := s.LeaseOutbox(t.Context(), export.OutboxParking, 100); err != nil || len(notices) != 1 {
		t.Errorf("%d notices, %v", len(notices), err)
	}
	if due, err := s.NextDue(t.Context()); err != nil || due < time.Minute {
		t.Errorf("the relay is told that something is due in %s, %v", due, err)
	}
}

func TestARowThatCannotBeReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := setup(t)
	pool := sessions(t, s)
	exec(t, pool, `insert into outbox (destination, headers, body) values ('https://a.example/', '{"id": "bad"}', '{"id": 17}'), ('https://b.example/', '{"id": "good"}', '{"id": "J1"}'),
		('parking', '{"parkingId": {}}', 'bad'), ('parking', '{"parkingId": "p"}', 'good')`)
	if events := leaseWebhooks(t, s, 10); len(events) != 1 || events[0].EventID != "good" || events[0].Job.ID != "J1" {
		t.Errorf("got %+v", events)
	}
	if notices, err := s.LeaseOutbox(t.Context(), export.OutboxParking, 10); err != nil || len(notices) != 1 || string(notices[0].Body) != "good" || notices[0].Headers["parkingId"] != "p" {
		t.Errorf("got %+v, %v", notices, err)
	}
	var kept int
	must(t, pool.QueryRow(t.Context(), `select count(*) from outbox where due_at > now() + interval '10 s'`).Scan(&kept))
	if kept != 4 {
		t.Errorf("%d of 4 rows wait for their next turn", kept)
	}
}
