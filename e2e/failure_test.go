package e2e

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"exportd/broker"
	"exportd/e2e/stack"
	"exportd/export"
)

func TestAPassingFailureIsTriedAgainAfterAPause(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	job := w.completed(stack.Submission{Items: items("FLAKY_2", "FLAKY_1", "ROWS_3")})
	if job.RowCount != 23 || job.ErrorMessage != "" {
		t.Errorf("got %+v", job)
	}
	if n := w.number(`select attempts from job_chunk where key = 'FLAKY_2'`); n != 3 {
		t.Errorf("FLAKY_2 took %d attempts", n)
	}
	if n := w.number(`select count(*) from chunk_attempt where outcome = 'RETRY' and error_code = 'SQL_P0001' and error_message like '%not yet%'`); n != 3 {
		t.Errorf("%d failed attempts are noted", n)
	}
	// At least half of 200 ms, then half of 400 ms.
	if n := w.number(`select count(*) from job_chunk c join chunk_attempt a using (job_id, chunk_key)
		where attempt = c.attempts - 1 and c.started_at - a.ended_at < interval '100 ms' * attempt`); n > 0 {
		t.Errorf("%d attempts followed without a pause", n)
	}
	w.checkInvariants()
}

// parked are the notices on the parking queue for a key.
func (w *world) parked(key string) (found []export.Message) {
	w.t.Helper()
	w.eventually("a notice of "+key, func() bool {
		all, err := broker.Browse(w.t.Context(), w.Broker, w.Parking, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		found = slices.DeleteFunc(all, func(m export.Message) bool { return !strings.Contains(string(m.Body), `"key":"`+key+`"`) })
		return len(found) > 0
	})
	return found
}

func TestExhaustedAttemptsFailTheJobAtOnceAndAreParked(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI("EXPORTD_BACKLOG=4")
	w.startConsumer("EXPORTD_BACKLOG=4")
	job := w.submit(stack.Submission{Items: []stack.Item{
		{Key: "ERR_5", EffectiveDates: []string{"20200131"}}, {Key: "SLOW_2", EffectiveDates: days(60)}, {Key: "SLOW_55", EffectiveDates: []string{"20200131"}},
	}})
	w.eventually("SLOW_55 runs", func() bool {
		return w.number(`select count(*) from job_chunk where key = 'SLOW_55' and status = 'RUNNING'`) == 1 || w.ending(job)
	})
	job = w.ended(job, "FAILED")
	if job.Failed != 1 || job.Cancelled < 20 || job.Done+job.Failed+job.Cancelled != 62 {
		t.Errorf("got %+v", job)
	}
	if ok, _ := regexp.MatchString(`^Chunk failed after 3 attempts: key=ERR_5 date=2020-01-31: .*row 6 is cursed`, job.ErrorMessage); !ok {
		t.Errorf("the job says %q", job.ErrorMessage)
	}
	if n := w.number(`select extract(epoch from j.completed_at - c.completed_at)::int from job j join job_chunk c using (job_id) where c.status = 'DLQ'`); n > 8 {
		t.Errorf("the job ended %d s after its chunk failed", n)
	}
	notices := w.parked("ERR_5")
	var n struct {
		JobID, Key, EffectiveDate, ParkingID, ChunkKey, ErrorCode, Error string
		Attempts                                                         int
		FailedAt                                                         time.Time
	}
	if err := json.Unmarshal(notices[0].Body, &n); err != nil {
		t.Fatal(err)
	}
	if n.JobID != job.JobID || n.EffectiveDate != "20200131" || n.ParkingID == "" || n.ChunkKey != "key=ERR_5:date=20200131" || n.Attempts != 3 ||
		n.ErrorCode != "SQL_P0001" || !strings.Contains(n.Error, "row 6 is cursed") || n.FailedAt.IsZero() {
		t.Errorf("parked is %s", notices[0].Body)
	}
	for name, want := range map[string]string{"jobId": job.JobID, "chunkKey": n.ChunkKey, "attempt": "3", "correlation-id": job.JobID, "priority": "4", "persistent": "true"} {
		if got := notices[0].Headers[name]; got != want {
			t.Errorf("the header %s is %q, want %q", name, got, want)
		}
	}
	w.checkInvariants()
}

func (w *world) ending(job stack.Job) bool {
	return w.number(`select count(*) from job where job_id = $1 and (ending is not null or completed_at is not null)`, job.JobID) > 0
}

func TestContinueTriesEveryChunkBeforeTheJobFails(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	job := w.ended(w.submit(stack.Submission{OnFailure: "CONTINUE", Items: []stack.Item{
		{Key: "DIV_5", EffectiveDates: []string{"20200131"}}, {Key: "ERR_5", EffectiveDates: []string{"20200131"}}, {Key: "ROWS_10", EffectiveDates: days(30)},
	}}), "FAILED")
	if job.Failed != 2 || job.Done != 30 || job.Cancelled != 0 || job.RowCount != 300 {
		t.Errorf("got %+v", job)
	}
	if ok, _ := regexp.MatchString(`^Chunk failed after 1 attempt: key=DIV_5 date=2020-01-31: .*division by zero`, job.ErrorMessage); !ok {
		t.Errorf("the job says %q", job.ErrorMessage)
	}
	if n := w.number(`select count(*) from job_chunk where key = 'DIV_5' and status = 'DLQ' and attempts = 1 and error_code = 'SQL_22012'`); n != 1 {
		t.Error("a permanent failure was not dead-lettered at once")
	}
	w.checkInvariants()
}

func TestAStreamThatBreaksOffShowsNothingInTheBucketAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	ctx, stop := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		bucket := w.bucket()
		for ctx.Err() == nil {
			for o, err := range bucket.ListObjects(ctx, w.S3.BasePath+"/2020/") {
				if err == nil {
					t.Errorf("there was an object %s of %d bytes", o.Key, o.Size)
				}
			}
		}
	})
	job := w.ended(w.submit(stack.Submission{OnFailure: "CONTINUE", Items: items("ERR_5000", "ERR_200000", "DIV_200000")}), "FAILED")
	stop()
	watcher.Wait()
	if job.Failed != 3 {
		t.Errorf("got %+v", job)
	}
	if n := w.number(`select count(*) from job_chunk where error_message like '%after %00 rows%'`); n == 0 {
		t.Error("no error came after rows had been streamed")
	}
	w.checkInvariants()
}

func TestABackendThatIsTerminatedInMidStreamCostsOneAttempt(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	open := w.closeGate(20)
	job := w.submit(stack.Submission{Items: items("HALF_20")})
	w.eventually("a multipart upload", func() bool { return w.number(`select count(*) from job_chunk where upload_id is not null`) == 1 })
	w.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query like '%FROM "export_rows"%' and pid <> pg_backend_pid()`)
	open()
	w.ended(job, "COMPLETED")
	if n := w.number(`select attempts from job_chunk`); n != 2 {
		t.Errorf("%d attempts", n)
	}
	w.checkInvariants()
}
