package e2e

import (
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/broker/localmq"
	"exportd/e2e/stack"
)

// TestTheActiveBrokerOfAPairKilledThreeTimesCostsNoChunk: two brokers share a store. A quarter, half and three quarters through a job the active one is
// killed (-9), the other takes over, and the dead one comes back as the standby. Nothing comes from the database instead, and nothing is published again:
// the messages themselves must get through. With EXPORTD_E2E_FULL=1 the job has 5 000 chunks.
func TestTheActiveBrokerOfAPairKilledThreeTimesCostsNoChunk(t *testing.T) {
	chunks := 2000
	if wholeShow {
		chunks = 5000
	}
	t.Parallel()
	w := setup(t, own{plain: true})
	shared := localmq.Config{Data: t.TempDir(), Standby: true}
	_, active := brokertest.PrivateActiveMQ(t, shared)
	if err := active.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, standby := brokertest.PrivateActiveMQ(t, shared)
	w.Broker = broker.Config{URLs: []string{active.URL(), standby.URL()}, User: "admin", Password: "admin"}
	w.Work, w.Parking = "job.chunk.work", "job.chunk.parking"
	w.Settings = []string{"EXPORTD_BROKER_FALLBACK=0", "EXPORTD_REPUBLISH_AFTER=10m", "EXPORTD_BACKLOG=400", "EXPORTD_CONCURRENCY=8", "EXPORTD_LOG_LEVEL=warn"}
	w.startAPI()
	fleet := []*stack.Process{w.startConsumer(), w.startConsumer()}

	began := time.Now()
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_3", EffectiveDates: days(chunks)}}})
	for strike := 1; strike <= 3; strike++ {
		w.eventually("the job goes on", func() bool { return w.done() >= strike*chunks/4 })
		active.Kill()
		killed := time.Now()
		// What the consumers have in hand may end without a broker, the rest cannot.
		done, waiting := w.done(), w.number(`select count(*) from dispatch where state = 'SENT'`)
		if done > chunks-100 || waiting == 0 {
			t.Fatalf("kill %d came too late: %d chunks are done, %d messages wait", strike, done, waiting)
		}
		if err := standby.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := active.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		active, standby = standby, active
		w.eventually("the job goes on with the other broker", func() bool { return w.done() > done+50 })
		t.Logf("kill %d: at %d chunks, with %d messages in the broker; on its way again after %s", strike, done, waiting, time.Since(killed).Round(time.Millisecond))
	}
	job = w.ended(job, "COMPLETED")
	t.Logf("%d chunks in %s", chunks, time.Since(began).Round(time.Second))
	if job.Done != chunks {
		t.Errorf("got %+v", job)
	}

	// Each chunk was claimed once, and so had one effect: a second one would have had to be claimed, and would be counted somewhere.
	w.once()
	if n := w.number(`select count(*) from chunk_attempt`); n > 0 {
		t.Errorf("%d claims ended without success", n)
	}
	var claims, generated float64
	for _, p := range fleet {
		n, _ := w.metric(p, "exportd_claims_total")
		g, _ := w.metric(p, `exportd_claims_ended_total{outcome="generated"}`)
		claims, generated = claims+n, generated+g
	}
	if int(claims) != chunks || int(generated) != chunks {
		t.Errorf("%.0f claims, %.0f files made", claims, generated)
	}
	w.checkInvariants() // every file is what the database says and what the function gives; nothing else is in the bucket or the queues, nothing is parked
}
