package e2e

import (
	"strings"
	"sync"
	"testing"

	"exportd/e2e/stack"
)

// run runs a command of the program to its end.
func (w *world) run(settings []string, args ...string) (code int, output string) {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	code, output, err := w.Run(ctx, settings, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return code, output
}

func TestMigrateAndDoctorSayHowThingsAre(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	unprepared := w.Database
	w.exec(`create schema old; alter table goose_db_version set schema old`) // as good as never migrated
	w.exec(`do $$ declare t record; begin for t in select tablename from pg_tables where schemaname = 'public' and tablename <> 'src_version' loop
		execute format('drop table %I cascade', t.tablename); end loop; drop sequence job_number cascade; end $$`)
	w.exec(`drop function export_rows`)
	for _, step := range []struct {
		settings []string
		args     string
		code     int
		says     []string
	}{
		{nil, "migrate status", 1, []string{"missing", "run exportd migrate"}},
		{nil, "doctor", 1, []string{"exportd migrate", "there is no export function"}},
		{nil, "migrate", 0, []string{"applied 00001_pipeline.sql"}},
		{nil, "migrate", 0, []string{"nothing to do"}},
		{nil, "migrate status", 0, []string{"00001_pipeline.sql"}},
		{[]string{"EXPORTD_EXPORT_FUNCTION=src_wait"}, "doctor", 1, []string{"there is no export function"}},
		{[]string{"EXPORTD_EXPORT_FUNCTION=plain_rows"}, "doctor", 0, []string{"ok"}},
		{[]string{"EXPORTD_EXPORT_FUNCTION=plain_rows", "EXPORTD_BROKER_PASSWORD=wrong"}, "doctor", 1, []string{"broker"}},
		{[]string{"EXPORTD_EXPORT_FUNCTION=plain_rows", "EXPORTD_BROKER_URLS=stomp://127.0.0.1:1"}, "doctor", 1, []string{"refused"}},
		{[]string{"EXPORTD_EXPORT_FUNCTION=plain_rows", "EXPORTD_S3_BUCKET=there-is-no-such-bucket"}, "doctor", 1, []string{"there-is-no-such-bucket"}},
		{[]string{"EXPORTD_EXPORT_FUNCTION=plain_rows", "AWS_SECRET_ACCESS_KEY=wrong"}, "doctor", 1, []string{"bucket"}},
		{[]string{"EXPORTD_DATABASE_URL=postgres://nobody:secret-word@127.0.0.1:1/none"}, "doctor", 1, []string{"refused"}},
		{[]string{"EXPORTD_DATABASE_URL=", "EXPORTD_LEASE=soon"}, "consumer", 2, []string{"EXPORTD_DATABASE_URL", "EXPORTD_LEASE"}},
	} {
		if step.code == 0 && step.args == "migrate status" {
			w.exec(`create function plain_rows(key text, effective_date date) returns table (k text) language sql stable as 'select key'`)
		}
		code, output := w.run(step.settings, strings.Fields(step.args)...)
		if code != step.code {
			t.Errorf("%s with %q: exit code %d, want %d\n%s", step.args, step.settings, code, step.code, output)
		}
		for _, says := range step.says {
			if !strings.Contains(output, says) {
				t.Errorf("%s with %q does not say %q:\n%s", step.args, step.settings, says, output)
			}
		}
		if strings.Contains(output, "secret-word") {
			t.Errorf("%s shows a password:\n%s", step.args, output)
		}
	}
	if unprepared != w.Database {
		t.Error("another database")
	}
}

func TestARequestThatIsRepeatedWithItsKeyIsTheFirstJob(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI()
	request := stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(50)}}, IdempotencyKey: "req-1"}
	var all sync.WaitGroup
	jobs := make([]stack.Job, 10)
	for i := range jobs {
		all.Go(func() {
			job, err := w.client.Submit(t.Context(), request)
			if err != nil {
				t.Error(err)
			}
			jobs[i] = job
		})
	}
	all.Wait()
	first := 0
	for _, job := range jobs {
		if job.JobID != jobs[0].JobID {
			t.Errorf("the jobs %s and %s", job.JobID, jobs[0].JobID)
		}
		if !job.Replayed {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d answers are no replay", first)
	}
	w.kill(api)
	w.startAPI()
	if again := w.submit(request); again.JobID != jobs[0].JobID || !again.Replayed {
		t.Errorf("after the restart: %+v", again)
	}
	w.startConsumer()
	w.ended(jobs[0], "COMPLETED")
	if again := w.submit(request); again.JobID != jobs[0].JobID || !again.Replayed {
		t.Errorf("after the end: %+v", again)
	}
	other := request
	other.Items = items("ROWS_11")
	if _, err := w.client.Submit(t.Context(), other); err == nil || !strings.Contains(err.Error(), "422") {
		t.Errorf("another request with the same key: %v", err)
	}
	if n := w.number(`select count(*) from job`); n != 1 {
		t.Errorf("%d jobs", n)
	}
	w.checkInvariants()
}
