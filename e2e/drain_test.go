package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"exportd/e2e/stack"
)

func TestAStoppedConsumerGivesBackWhatItCannotFinish(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	leaving := w.startConsumer("EXPORTD_CONCURRENCY=3", "EXPORTD_DRAIN_TIMEOUT=5s")
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_1", EffectiveDates: days(10)}, {Key: "SLOW_2", EffectiveDates: days(1)}}})
	w.eventually("it has its hands full", func() bool { return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 3 })
	began := time.Now()
	if err := leaving.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.startConsumer("EXPORTD_CONCURRENCY=12")
	if code := w.exit(leaving, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("the stop took %s", took)
	}
	w.eventually("the other one has taken everything", func() bool {
		return w.number(`select count(*) from job_chunk where status = 'RUNNING' and key = 'GATE_1'`) == 10
	})
	open()
	w.ended(job, "COMPLETED")
	if n := w.number(`select count(*) from job_chunk where attempts <> 1`); n > 0 {
		t.Errorf("%d chunks have spent an attempt on the stop", n)
	}
	if n := w.number(`select count(*) from chunk_attempt where outcome <> 'GIVEN_BACK'`); n > 0 {
		t.Errorf("%d attempts ended otherwise than given back", n)
	}
	if n := w.number(`select count(*) from chunk_attempt where outcome = 'GIVEN_BACK'`); n < 2 {
		t.Errorf("only %d chunks were given back", n)
	}
	if n := w.number(`select count(*) from worker`); n != 1 {
		t.Errorf("%d workers are listed", n)
	}
	w.checkInvariants()
}

func TestAStoppedConsumerFinishesWhatEndsInTime(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	leaving := w.startConsumer("EXPORTD_CONCURRENCY=2", "EXPORTD_DRAIN_TIMEOUT=20s")
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_1", EffectiveDates: days(2)}}})
	w.eventually("it has its hands full", func() bool { return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 2 })
	if err := leaving.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.eventually("it drains", func() bool { return strings.Contains(leaving.Log(), "draining") })
	open()
	if code := w.exit(leaving, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.ended(job, "COMPLETED")
	if n := w.number(`select count(*) from job_chunk where attempts = 1`); n != 2 {
		t.Errorf("%d chunks ended in the first attempt", n)
	}
	w.checkInvariants()
}

func TestAStopEndsInTimeThoughADependencyHangs(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]struct {
		own           own
		begin, end    func(*world) error
		spentAttempts bool // nothing can be given back
	}{
		"broker":   {own{broker: true}, func(w *world) error { return w.activemq.Pause() }, func(w *world) error { return w.activemq.Resume() }, false},
		"database": {own{postgres: true}, func(w *world) error { return w.postgres.Pause() }, func(w *world) error { return w.postgres.Resume() }, true},
		"s3":       {own{s3: true}, func(w *world) error { return w.s3.Pause() }, func(w *world) error { return w.s3.Resume() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, frozen.own)
			w.Settings = []string{"EXPORTD_CHUNK_TIMEOUT=20s"} // after which the janitor comes
			const drain = 6 * time.Second                      // and some seconds more on a busy machine: what hangs would hang for longer
			api := w.startAPI("EXPORTD_DRAIN_TIMEOUT=" + drain.String())
			leaving := w.startConsumer("EXPORTD_CONCURRENCY=6", "EXPORTD_DRAIN_TIMEOUT="+drain.String())
			open, openHalf := w.closeGate(1), w.closeGate(12)
			job := w.submit(stack.Submission{Items: []stack.Item{
				{Key: "GATE_1", EffectiveDates: days(2)}, {Key: "HALF_12", EffectiveDates: days(2)}, {Key: "STREAM_70", EffectiveDates: days(2)}}})
			w.eventually("it has its hands full, and uploads", func() bool {
				return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 6 && w.number(`select count(*) from job_chunk where upload_id is not null`) == 4
			})
			if err := frozen.begin(w); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for _, p := range []*stack.Process{leaving, api} {
				if err := p.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range []*stack.Process{leaving, api} {
				code := w.exit(p, drain+10*time.Second)
				if took := time.Since(began); code != 0 || took > drain+4*time.Second {
					t.Errorf("%s: exit code %d after %s", p.Name, code, took)
				}
			}
			if err := frozen.end(w); err != nil {
				t.Fatal(err)
			}
			if !frozen.spentAttempts {
				if n := w.number(`select count(*) from job_chunk where status = 'RUNNING'`); n > 0 {
					t.Errorf("%d chunks were not given back", n)
				}
			}
			w.startAPI()
			w.startConsumer("EXPORTD_CONCURRENCY=6")
			open()
			openHalf()
			w.ended(job, "COMPLETED")
			if !frozen.spentAttempts {
				w.once()
			}
			store := w.bucket()
			w.eventually("the janitor has come for what nobody could abort", func() bool {
				for range store.ListUploads(t.Context(), "") {
					return false
				}
				return true
			})
			w.checkInvariants()
		})
	}
}
