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
	if took := time.Since(began); took > 6*time.Second {
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
