package e2e

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"exportd/broker"
	"exportd/e2e/stack"
)

// once says that no chunk has spent more than one attempt.
func (w *world) once() {
	w.t.Helper()
	if n := w.number(`select count(*) from job_chunk where attempts <> 1`); n > 0 {
		w.t.Errorf("%d chunks spent more than one attempt", n)
	}
}

func (w *world) done() int { return w.number(`select count(*) from job_chunk where status = 'DONE'`) }

func TestAKilledBrokerComesBackWithItsQueue(t *testing.T) {
	t.Parallel()
	w := setup(t, own{broker: true})
	w.Settings = []string{"EXPORTD_REPUBLISH_AFTER=10m"} // the messages themselves must survive
	w.startAPI()
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(100)}}})
	w.eventually("the queue is full", func() bool { return w.number(`select count(*) from dispatch where state = 'SENT'`) == 64 })
	w.activemq.Kill()
	if err := w.activemq.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting, err := broker.Browse(t.Context(), w.Broker, w.Work, 1000)
	if err != nil || len(waiting) != 64 {
		t.Errorf("%d messages have survived, %v", len(waiting), err)
	}
	w.startConsumer()
	w.startConsumer()
	w.ended(job, "COMPLETED")

	// Again, twice, with consumers at work.
	job = w.submit(stack.Submission{Items: []stack.Item{{Key: "SLOW_1", EffectiveDates: days(60)}}})
	w.eventually("some are done", func() bool { return w.done() >= 105 })
	w.activemq.Kill()
	if err := w.activemq.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("more are done", func() bool { return w.done() >= 120 })
	if err := w.activemq.Halt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.activemq.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ended(job, "COMPLETED")
	w.once()
	w.checkInvariants()
}

func TestOneLivingBrokerOfAListIsFound(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never says a word
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	w.Settings = []string{"EXPORTD_BROKER_URLS=stomp://127.0.0.1:1,stomp://" + silent.Addr().String() + "," + w.Broker.URLs[0]}
	w.startAPI()
	w.startConsumer()
	w.completed(stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(20)}}})
	w.once()
	w.checkInvariants()
}

func TestWithTheBrokerAwayConsumersTakeOwedChunksFromTheDatabase(t *testing.T) {
	t.Parallel()
	w := setup(t, own{broker: true})
	w.Settings = []string{"EXPORTD_BROKER_FALLBACK=1s"}
	api := w.startAPI()
	consumer := w.startConsumer()
	w.completed(stack.Submission{Items: items("ROWS_1")})
	w.activemq.Kill()
	w.notReady(api, "broker")
	w.notReady(consumer, "broker")
	w.completed(stack.Submission{OnFailure: "CONTINUE", Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(20)}}})
	failed := w.ended(w.submit(stack.Submission{Items: items("DIV_1")}), "FAILED")
	if failed.Failed != 1 {
		t.Errorf("got %+v", failed)
	}
	if n := w.number(`select count(*) from outbox`); n != 1 {
		t.Errorf("%d notices wait for the broker", n)
	}
	if err := w.activemq.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.parked("DIV_1")
	w.ready(api)
	w.ready(consumer)
	w.once()
	w.checkInvariants()
}

func TestADatabaseThatIsRestartedCostsNoAttempt(t *testing.T) {
	t.Parallel()
	w := setup(t, own{postgres: true})
	api := w.startAPI()
	consumer := w.startConsumer()
	w.startConsumer()
	job := w.submit(stack.Submission{OnFailure: "CONTINUE", Items: []stack.Item{{Key: "SLOW_1", EffectiveDates: days(70)}, {Key: "STREAM_15", EffectiveDates: days(2)}}})
	for i, outage := range []func(){
		func() {}, // a restart is a fast stop and a start
		func() {
			if err := w.postgres.Kill(); err != nil {
				t.Fatal(err)
			}
			w.notReady(api, "database")
			w.notReady(consumer, "database")
			time.Sleep(6 * time.Second) // longer than a lease
		},
	} {
		w.eventually("it is at work", func() bool { return w.done() >= 10+30*i })
		outage()
		if err := w.postgres.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.db.Close(t.Context())
	}
	w.ended(job, "COMPLETED")
	w.once()
	if n := w.number(`select count(*) from chunk_attempt where outcome <> 'GIVEN_BACK'`); n > 0 {
		t.Errorf("%d attempts ended otherwise than given back", n)
	}
	w.checkInvariants()
}

func TestAnObjectStoreThatIsAwayCostsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct{ begin, end func(*world) error }{
		"killed":  {func(w *world) error { return w.s3.Kill() }, func(w *world) error { return w.s3.Restart(w.t.Context()) }},
		"hanging": {func(w *world) error { return w.s3.Pause() }, func(w *world) error { return w.s3.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, own{s3: true})
			w.startAPI()
			consumer := w.startConsumer()
			w.startConsumer()
			job := w.submit(stack.Submission{Items: []stack.Item{{Key: "SLOW_1", EffectiveDates: days(30)}, {Key: "STREAM_25", EffectiveDates: days(1)}}})
			w.eventually("it is at work", func() bool { return w.done() >= 8 })
			if err := outage.begin(w); err != nil {
				t.Fatal(err)
			}
			w.notReady(consumer, "s3")
			time.Sleep(10 * time.Second) // the outage goes on
			if err := outage.end(w); err != nil {
				t.Fatal(err)
			}
			w.ended(job, "COMPLETED")
			w.once()
			w.checkInvariants()
		})
	}
}

func TestTheDatabaseAloneDispatches(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.Settings = []string{"EXPORTD_DISPATCH=database"}
	w.Broker = broker.Config{}
	w.startAPI()
	victim := w.startConsumer()
	job := w.submit(stack.Submission{OnFailure: "CONTINUE", Items: []stack.Item{
		{Key: "DIV_3", EffectiveDates: days(1)}, {Key: "FLAKY_1", EffectiveDates: days(5)}, {Key: "ROWS_10", EffectiveDates: days(200)}, {Key: "SLOW_2", EffectiveDates: days(8)}}})
	w.eventually("it is at work", func() bool { return w.done() >= 5 && w.owner("SLOW_2") != nil || w.done() > 150 })
	w.kill(victim)
	stopped := w.startConsumer()
	w.eventually("it goes on", func() bool { return w.done() >= 20 })
	if err := stopped.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.startConsumer()
	if code := w.exit(stopped, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	job = w.ended(job, "FAILED")
	if job.Done != 213 || job.Failed != 1 {
		t.Errorf("got %+v", job)
	}
	w.checkInvariants()
}

func TestProcessesStartBeforeTheirServices(t *testing.T) {
	t.Parallel()
	w := setup(t, own{postgres: true, broker: true, s3: true})
	if err := w.postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	w.activemq.Kill()
	if err := w.s3.Kill(); err != nil {
		t.Fatal(err)
	}
	api, consumer := w.startAPI(), w.start("consumer")
	for _, restart := range []func(context.Context) error{w.s3.Restart, w.activemq.Restart, w.postgres.Restart} {
		if err := restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.ready(api)
	w.ready(consumer)
	w.completed(stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(20)}}})
	w.once()
	w.checkInvariants()
}
