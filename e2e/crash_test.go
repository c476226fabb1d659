package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/e2e/stack"
	"exportd/export"
)

// owner is the process that runs the chunk of a key, nil while none does.
func (w *world) owner(key string) *stack.Process {
	w.t.Helper()
	pid := w.number(`select coalesce((select split_part(lock_owner, '/', 2)::int from job_chunk where key = $1 and status = 'RUNNING' limit 1), 0)`, key)
	for _, p := range w.Processes() {
		if p.Pid() == pid {
			return p
		}
	}
	return nil
}

func (w *world) kill(p *stack.Process) {
	w.t.Helper()
	w.expect.Killed = true
	if err := p.Kill(); err != nil {
		w.t.Fatal(err)
	}
}

func TestAnotherConsumerFinishesWhatAKilledOneHadHalfUploaded(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	open := w.closeGate(12)
	job := w.submit(stack.Submission{Items: append(items("HALF_12"), stack.Item{Key: "ROWS_100", EffectiveDates: days(20)})})
	w.eventually("a part", func() bool {
		return w.number(`select count(*) from job_chunk where key = 'HALF_12' and upload_id is not null`) == 1
	})
	w.kill(w.owner("HALF_12"))
	open()
	w.ended(job, "COMPLETED")
	if n := w.number(`select attempts from job_chunk where key = 'HALF_12'`); n != 2 {
		t.Errorf("%d attempts", n)
	}
	if n := w.number(`select count(*) from chunk_attempt where chunk_key = 'key=HALF_12:date=20200131' and outcome = 'LOST' and attempt = 1`); n != 1 {
		t.Errorf("the lost attempt is noted %d times", n)
	}
	w.checkInvariants()
}

func TestAChunkThatKillsEveryWorkerIsDeadLettered(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	job := w.submit(stack.Submission{OnFailure: "CONTINUE", Items: append(items("KILLER"), stack.Item{Key: "ROWS_10", EffectiveDates: days(20)})})
	w.eventually("its neighbours are done", func() bool { return w.number(`select count(*) from job_chunk where status = 'DONE'`) == 20 }) // each blow would cost them an attempt too
	kills := 0
	var killed *stack.Process // stays the owner until another claims
	w.eventually("the end", func() bool {
		if p := w.owner("KILLER"); p != nil && p != killed {
			w.kill(p)
			killed = p
			kills++
			w.startConsumer()
		}
		return w.number(`select count(*) from job where completed_at is not null`) == 1
	})
	job = w.ended(job, "FAILED")
	if kills != 3 || job.Failed != 1 || job.Done != 20 {
		t.Errorf("%d kills; %+v", kills, job)
	}
	if !strings.Contains(job.ErrorMessage, "Chunk failed after 3 attempts: key=KILLER date=2020-01-31: the worker stopped renewing its lease") {
		t.Errorf("the job says %q", job.ErrorMessage)
	}
	w.checkInvariants()
}

func TestAJobSurvivesTheAPIThatAcceptedIt(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	// Killed right after its answer: it may or may not have published anything.
	api := w.startAPI()
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(40)}}})
	w.kill(api)
	// Killed between commit and publish: it could not publish, for want of a broker.
	api = w.startAPI("EXPORTD_BROKER_URLS=stomp://127.0.0.1:1")
	second := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_11", EffectiveDates: days(40)}}})
	w.kill(api)
	if n := w.number(`select count(*) from dispatch where job_id = $1 and sent_at is not null`, second.JobID); n > 0 {
		t.Errorf("%d debts are said to be sent", n)
	}
	w.startConsumer() // relays, sweeps and ends jobs as well
	w.eventually("the consumer ends both jobs", func() bool { return w.number(`select count(*) from job where status = 'COMPLETED'`) == 2 })
	w.startAPI()
	w.ended(job, "COMPLETED")
	w.ended(second, "COMPLETED")
	if n := w.number(`select count(*) from job_chunk where attempts <> 1`); n > 0 {
		t.Errorf("%d chunks needed more than one attempt", n)
	}
	w.checkInvariants()
}

func TestEverythingKilledAtOnceGoesOnAfterTheRestart(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	open := w.closeGate(12)
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_2000", EffectiveDates: days(60)}, {Key: "HALF_12", EffectiveDates: days(2)}}})
	w.eventually("some are done and some run", func() bool {
		return w.number(`select least((select count(*) from job_chunk where status = 'DONE'), 10 * (select count(*) from job_chunk where status = 'RUNNING'))`) >= 10
	})
	w.KillAll()
	w.expect.Killed = true
	open()
	w.startAPI()
	w.startConsumer()
	w.ended(job, "COMPLETED")
	w.checkInvariants()
}

// holdSettlement makes every settlement as DONE of the key wait, after the last step of its upload, until release.
func (w *world) holdSettlement(key string) (release func()) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.Database)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	// A row of the same identity that is not committed: inserting it again waits.
	_, err = tx.Exec(w.t.Context(), `insert into file_cache (bucket, object_key, export_function, row_count, byte_count, sha256, etag, claim_id, claim_started_at, job_id)
		values ($1, $2, 'export_rows', 0, 0, '', '', gen_random_uuid(), '-infinity', '')`, w.S3.Bucket, export.ObjectKey(w.S3.BasePath, key, 20200131, export.None))
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) awaitObject(key string) (claim string) {
	w.t.Helper()
	w.eventually("the object is there", func() bool {
		o, found, err := w.bucket().Head(w.t.Context(), export.ObjectKey(w.S3.BasePath, key, 20200131, export.None))
		if err != nil {
			w.t.Fatal(err)
		}
		claim = o.Metadata["claim"]
		return found
	})
	return claim
}

func TestAFileWhoseWriterDiedBeforeItsSettlementIsAdopted(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"ROWS_10", "BIG_12"} { // in one part, and in several
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := setup(t, own{})
			w.startAPI()
			writer := w.startConsumer()
			release := w.holdSettlement(key)
			job := w.submit(stack.Submission{Items: items(key)})
			claim := w.awaitObject(key)
			w.kill(writer)
			// The statement of the dead process still waits in the server, and would settle in its name.
			w.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'exportd' and wait_event_type = 'Lock'`)
			release()
			w.startConsumer()
			w.ended(job, "COMPLETED")
			if n := w.number(`select count(*) from job_chunk where attempts = 2 and claim_id <> $1::uuid and not reused`, claim); n != 1 {
				t.Error("the chunk was not taken over")
			}
			if again := w.awaitObject(key); again != claim {
				t.Error("the file was written twice")
			}
			w.checkInvariants()
		})
	}
}

func TestAStopBetweenUploadAndSettlementEndsTheChunk(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	writer := w.startConsumer()
	release := w.holdSettlement("ROWS_10")
	job := w.submit(stack.Submission{Items: items("ROWS_10")})
	w.awaitObject("ROWS_10")
	if err := writer.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.eventually("it drains", func() bool { return strings.Contains(writer.Log(), "draining") })
	release()
	if code := w.exit(writer, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.ended(job, "COMPLETED")
	if n := w.number(`select attempts from job_chunk`); n != 1 {
		t.Errorf("%d attempts", n)
	}
	w.checkInvariants()
}

// exit waits for the end of a process and returns its exit code.
func (w *world) exit(p *stack.Process, within time.Duration) int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return code
}

func TestAWorkerThatSleptThroughItsLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	for gate, key := range map[int]string{12: "HALF_12", 3: "GATE_3"} { // stopped with parts uploaded, and with none
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := setup(t, own{})
			w.startAPI()
			sleeper := w.startConsumer()
			letItGo := w.closeGate(gate)
			open := w.closeGate(1) // or the job would end, and the end of a job stops its chunks too
			job := w.submit(stack.Submission{Items: items(key, "GATE_1")})
			w.eventually("it is at work", func() bool {
				return w.number(`select count(*) from job_chunk where status = 'RUNNING' and (upload_id is not null or key = 'GATE_3') and key <> 'GATE_1'`) == 1
			})
			if err := sleeper.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			letItGo()
			w.startConsumer()
			w.eventually("somebody else does it", func() bool { return w.number(`select count(*) from job_chunk where status = 'DONE'`) == 1 })
			claim := w.awaitObject(key)
			if err := sleeper.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			w.eventually("it notices", func() bool { return strings.Contains(sleeper.Log(), "claim lost") })
			if again := w.awaitObject(key); again != claim {
				t.Error("the sleeper has replaced the file")
			}
			open()
			w.ended(job, "COMPLETED")
			if n := w.number(`select attempts from job_chunk where key = $1`, key); n != 2 {
				t.Errorf("%d attempts", n)
			}
			w.checkInvariants()
		})
	}
}
