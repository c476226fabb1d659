package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"exportd/broker"
	"exportd/e2e/stack"
	"exportd/export"
)

// The tests of this file are shows as well: EXPORTD_E2E_FULL=1 has them do the whole of it, and -v tell the figures.
//
//	EXPORTD_E2E_FULL=1 go test ./e2e -run FleetThatIsKilled -v
var wholeShow = os.Getenv("EXPORTD_E2E_FULL") != ""

// TestFleetThatIsKilledAllTheTimeMakesEachFileOnce: 3 consumers work on chunks of 100 rows, and every 3 seconds one of them is killed (-9) and
// started again.
func TestFleetThatIsKilledAllTheTimeMakesEachFileOnce(t *testing.T) {
	chunks, every := 400, 1500*time.Millisecond
	if wholeShow {
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

// TestALargeJobHoldsUpNoSmallOneAndUsesWhatIsIdle runs a large job of small chunks alone, and then once more with jobs of 2 chunks submitted all the while.
func TestALargeJobHoldsUpNoSmallOneAndUsesWhatIsIdle(t *testing.T) {
	chunks := 1000
	if wholeShow {
		chunks = 20_000
	} else {
		t.Parallel()
	}
	w := setup(t, own{plain: wholeShow, broker: true})
	w.Settings = []string{fmt.Sprintf("EXPORTD_MAX_CHUNKS=%d", chunks), "EXPORTD_CONCURRENCY=8", "EXPORTD_LOG_LEVEL=warn"}
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	anew := false
	large := stack.Submission{Reuse: &anew}
	for i := range 20 {
		large.Items = append(large.Items, stack.Item{Key: fmt.Sprintf("ROWS_10 %d", i), EffectiveDates: days(chunks / 20)})
	}
	run := func(meanwhile func()) time.Duration {
		began := time.Now()
		job := w.submit(large)
		for w.number(`select count(*) from job where job_id = $1 and completed_at is null`, job.JobID) > 0 {
			if time.Since(began) > 10*time.Minute {
				t.Fatal("it does not end")
			}
			meanwhile()
		}
		if job = w.ended(job, "COMPLETED"); job.Done != chunks {
			t.Errorf("got %+v", job)
		}
		return time.Since(began)
	}
	alone := run(func() { time.Sleep(100 * time.Millisecond) })
	var small []time.Duration
	beside := run(func() {
		began := time.Now()
		w.completed(stack.Submission{Items: []stack.Item{{Key: "ROWS_10 small", EffectiveDates: days(2)}}, Reuse: &anew})
		small = append(small, time.Since(began))
		time.Sleep(time.Second - min(time.Second, small[len(small)-1]))
	})
	slices.Sort(small)
	t.Logf("%d chunks alone: %s; beside %d jobs of 2: %s (%.2f); the small jobs took %s at the median and %s at the most", chunks, alone.Round(time.Millisecond),
		len(small), beside.Round(time.Millisecond), beside.Seconds()/alone.Seconds(), small[len(small)/2].Round(time.Millisecond), small[len(small)-1].Round(time.Millisecond))
	if len(small) == 0 {
		t.Error("no small job was done beside the large one")
	}
	if n := w.number(`select count(*) from job s join job l on l.total > 2 and s.created_at between l.created_at and l.completed_at
		where s.total = 2 and s.completed_at > l.completed_at`); n > 1 { // the last one may end after it
		t.Errorf("%d small jobs ended after the large one that they were submitted beside", n)
	}
	w.once()
	w.checkInvariants()
}

// TestABrokerThatIsStoppedUnderLoadCostsNoChunk stops the broker, for two minutes in the whole show, while jobs keep coming: 50 chunks a second, or 125.
func TestABrokerThatIsStoppedUnderLoadCostsNoChunk(t *testing.T) {
	phase, every, size := 4*time.Second, 500*time.Millisecond, 25
	w := setup(t, own{plain: wholeShow, broker: true})
	w.Settings = []string{"EXPORTD_CONCURRENCY=8", "EXPORTD_LOG_LEVEL=warn", "EXPORTD_BROKER_FALLBACK=1s"}
	if wholeShow {
		phase, every, size = 2*time.Minute, 4*time.Second, 500
		w.Settings[2] = "EXPORTD_BROKER_FALLBACK=30s"
	} else {
		t.Parallel()
	}
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	anew := false
	phases := []struct {
		name  string
		begin func()
		lasts time.Duration
	}{
		{"with the broker", func() {}, phase / 4},
		{"broker stopped, before the fallback", w.activemq.Kill, phase / 4},
		{"broker stopped, from the database", func() {}, phase * 3 / 4},
		{"broker started again", func() {
			if err := w.activemq.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, phase / 4},
		{"through the broker again", func() {}, phase / 4},
	}
	jobs := 0
	for _, p := range phases {
		p.begin()
		began, before := time.Now(), w.done()
		for time.Since(began) < p.lasts {
			w.submit(stack.Submission{Items: []stack.Item{{Key: fmt.Sprintf("ROWS_100 %d", jobs%8), EffectiveDates: days(size)}}, Reuse: &anew})
			jobs++
			time.Sleep(every - time.Since(began)%every)
		}
		sent := w.number(`select count(*) from dispatch where state = 'SENT' and sent_at > now() - interval '2 s'`)
		t.Logf("%-36s %4.0f chunks/s, %d messages published and waiting", p.name, float64(w.done()-before)/time.Since(began).Seconds(), sent)
		if w.done() == before && p.name == phases[2].name {
			t.Error("nothing was done without the broker")
		}
	}
	w.eventually("all have ended", func() bool { return w.number(`select count(*) from job where completed_at is null`) == 0 })
	if n := w.number(`select count(*) from job where status <> 'COMPLETED'`); n > 0 {
		t.Errorf("%d of %d jobs were not completed", n, jobs)
	}
	w.once()
	w.completed(stack.Submission{Items: items("ROWS_10")})
	w.checkInvariants()
}
