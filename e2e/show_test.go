package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"exportd/broker"
	"exportd/e2e/stack"
	"exportd/export"
)

// TestFleetThatIsKilledAllTheTimeMakesEachFileOnce is the show: 3 consumers work on chunks of 100 rows, and every 3 seconds one of them is killed (-9) and
// started again. EXPORTD_E2E_FULL=1 does it with all 2 000 chunks, otherwise a part of them:
//
//	EXPORTD_E2E_FULL=1 go test ./e2e -run FleetThatIsKilled -v
func TestFleetThatIsKilledAllTheTimeMakesEachFileOnce(t *testing.T) {
	chunks, every := 400, 1500*time.Millisecond
	if os.Getenv("EXPORTD_E2E_FULL") != "" {
		chunks, every = 2000, 3*time.Second
	}
	w := setup(t, own{broker: true}) // the queues as activemq.xml has them
	w.Settings = []string{"EXPORTD_MAX_ATTEMPTS=5"}
	w.startAPI()
	settings := []string{"EXPORTD_CONCURRENCY=2"}
	fleet := []*stack.Process{w.startConsumer(settings...), w.startConsumer(settings...), w.startConsumer(settings...)}
	began := time.Now()
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "ROWS_100", EffectiveDates: days(chunks)}}})
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	kills := 0
	for w.number(`select count(*) from job where completed_at is null`) > 0 {
		if time.Since(began) > 5*time.Minute {
			t.Fatal("it does not end")
		}
		select {
		case <-ticker.C:
			i := rand.N(len(fleet))
			w.kill(fleet[i])
			kills++
			fleet[i] = w.start("consumer", settings...)
		case <-time.After(50 * time.Millisecond):
		}
	}
	job = w.ended(job, "COMPLETED")
	t.Logf("%d chunks with %d kills in %s; %d attempts were lost", chunks, kills, time.Since(began).Round(time.Second),
		w.number(`select count(*) from chunk_attempt where outcome = 'LOST'`))
	if job.Done != chunks || kills < 2 {
		t.Errorf("%d kills: %+v", kills, job)
	}
	w.checkInvariants() // every file equals the database's facts; nothing else in the bucket; no message is left; nothing is dead-lettered

	// ActiveMQ's own word, beside what browsing shows.
	depths := broker.Depth(t.Context(), w.Broker, w.Work)
	if i := slices.IndexFunc(depths, func(d broker.QueueDepth) bool { return d.Known && d.Messages > 0 }); i >= 0 {
		t.Errorf("got %+v", depths[i])
	}
	n := 0
	for _, err := range w.bucket().ListObjects(t.Context(), w.S3.BasePath+"/20") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != chunks {
		t.Errorf("%d files for %d chunks", n, chunks)
	}
	if _, found, err := w.bucket().Head(t.Context(), export.ManifestKey(w.S3.BasePath, job.JobID)); err != nil || !found {
		t.Errorf("the manifest: %v, %v", found, err)
	}
}
