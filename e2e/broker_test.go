package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/e2e/stack"
	"exportd/export"
)

// throughProxy is the setting that takes a process to the broker by a way that the test can cut.
func (w *world) throughProxy() (*brokertest.Proxy, string) {
	p := brokertest.NewProxy(w.t, strings.TrimPrefix(w.Broker.URLs[0], "stomp://"))
	return p, "EXPORTD_BROKER_URLS=stomp://" + p.Addr()
}

func TestACutConnectionCostsNoSecondRun(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	proxy, setting := w.throughProxy()
	consumer := w.startConsumer(setting, "EXPORTD_CONCURRENCY=5")
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_1", EffectiveDates: days(5)}}})
	w.eventually("all are at work", func() bool { return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 5 })
	before := proxy.Connections()
	proxy.Cut()
	w.eventually("it is back", func() bool { return strings.Count(consumer.Log(), `"msg":"subscribed"`) == 2 })
	open()
	w.ended(job, "COMPLETED")
	w.once()
	w.eventually("the messages have come again", func() bool { return strings.Count(consumer.Log(), `"msg":"no claim"`) == 5 })
	w.checkInvariants()
	if n := proxy.Connections() - before; n > 2 { // the subscriber's, and the relay's
		t.Errorf("%d new connections after one cut", n)
	}
}

func TestAChunkWhoseMessageWasUsedUpIsTakenOverAllTheSame(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	proxy, setting := w.throughProxy()
	first := w.startConsumer(setting)
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: items("GATE_1")})
	w.eventually("it is at work", func() bool { return w.owner("GATE_1") == first })
	second := w.startConsumer()
	proxy.Stall() // it will not come back
	proxy.Cut()
	w.eventually("the other one was told and has refused", func() bool { return strings.Contains(second.Log(), `"reason":"running"`) })
	w.eventually("no message is left", func() bool {
		waiting, err := broker.Browse(t.Context(), w.Broker, w.Work, 10)
		return err == nil && len(waiting) == 0
	})
	if w.owner("GATE_1") != first {
		t.Error("the chunk has changed hands while its owner was alive")
	}
	w.kill(first)
	w.eventually("the other one has it", func() bool { return w.owner("GATE_1") == second })
	open()
	w.ended(job, "COMPLETED")
	if n := w.number(`select attempts from job_chunk`); n != 2 {
		t.Errorf("%d attempts", n)
	}
	w.checkInvariants()
}

func TestCopiesOnDeadLetterQueuesDecideNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: items("GATE_1", "ROWS_10")})
	w.eventually("one is done, one runs", func() bool { return w.done() == 1 && w.owner("GATE_1") != nil })
	foreign := w.foreigner()
	for _, key := range []string{"GATE_1", "ROWS_10"} {
		body := fmt.Appendf(nil, `{"jobId":%q,"key":%q,"effectiveDate":"20200131"}`, job.JobID, key)
		foreign.send("ActiveMQ.DLQ", body, false, "dlqDeliveryFailureCause:duplicate from store")
		foreign.send(w.Parking, body, false)
	}
	open()
	w.ended(job, "COMPLETED")
	w.once()
	w.expect.Parked = 2
	w.checkInvariants()
}

// The store of the broker is full: SENDs fail, while ACKs must get through.
func TestAFullBrokerHoldsUpNeitherSubmissionsNorConsumers(t *testing.T) {
	t.Parallel()
	w := setup(t, own{broker: true, brokerEnv: []string{"AMQ_STORE_LIMIT=48 mb"}})
	w.Settings = []string{"EXPORTD_BROKER_FALLBACK=1s", "EXPORTD_BACKLOG=40"}
	api := w.startAPI()
	w.startConsumer()
	open := w.closeGate(1)
	queued := w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_1", EffectiveDates: days(20)}}})
	w.eventually("its messages are in the broker", func() bool { return w.number(`select count(*) from dispatch where state = 'SENT'`) == 16 })

	p := broker.NewPublisher(w.Broker)
	defer p.Close()
	junk := []export.Message{{Body: bytes.Repeat([]byte("junk"), 200<<10)}}
	publish := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return p.Publish(ctx, "junk", junk)
	}
	var full *broker.RefusedError
	for n := 0; !errors.As(publish(), &full); n++ {
		if n > 200 {
			t.Fatal("the broker is never full")
		}
	}
	t.Log(full)

	began := time.Now()
	big := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_1", EffectiveDates: days(400)}}})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the submission took %s", took)
	}
	w.eventually("the metrics tell that the relay is stuck", func() bool {
		_, metrics := w.get(api, "/metrics")
		return regexp.MustCompile(`(?m)^exportd_relay_failures_total [1-9]`).MatchString(metrics)
	})
	open()
	w.ended(queued, "COMPLETED") // whose messages can be acknowledged
	w.ended(big, "COMPLETED")    // from the database
	w.once()

	for purged := 0; purged == 0; {
		var err error
		if purged, err = broker.Purge(t.Context(), w.Broker, "junk"); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("the broker has room", func() bool { return publish() == nil })
	open = w.closeGate(2)
	again := w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_2", EffectiveDates: days(60)}}})
	w.eventually("the relay sends again", func() bool { return w.number(`select count(*) from dispatch where state = 'SENT'`) > 0 })
	open()
	w.ended(again, "COMPLETED")
	w.once()
	w.checkInvariants()
}
