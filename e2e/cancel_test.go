package e2e

import (
	"strings"
	"testing"

	"exportd/e2e/stack"
)

func TestHundredsOfCancelledExportsHoldNoMoreSessionsThanThePools(t *testing.T) {
	t.Parallel()
	w := setup(t, own{postgres: true})
	const (
		chunks = 16
		pools  = 6 + (6 + chunks/4) + (chunks + 1) // of the api, of the consumer, and to the source: see EXPORTD_DB_POOL and EXPORTD_SOURCE_POOL
		more   = 4                                 // that end while others begin, and those of the test
	)
	w.exec("alter system set max_connections = 37")
	if err := w.postgres.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.db.Close(t.Context())
	w.startAPI()
	consumer := w.startConsumer("EXPORTD_CONCURRENCY=16")
	most := 0
	look := func() int {
		n := w.number(`select count(*) from pg_stat_activity where application_name like 'exportd%'`)
		most = max(most, n)
		return n
	}
	for range 13 {
		job := w.submit(stack.Submission{Items: []stack.Item{{Key: "SLOW_600", EffectiveDates: days(chunks)}}})
		w.eventually("every export has begun", func() bool {
			look()
			return w.number(`select count(*) from pg_stat_activity where application_name = 'exportd-source' and wait_event = 'PgSleep'`) == chunks
		})
		if err := w.client.Order(t.Context(), job.JobID, "cancel"); err != nil {
			t.Fatal(err)
		}
		w.eventually("they have ended, and no session works for nobody", func() bool {
			look()
			return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 0 &&
				w.number(`select count(*) from pg_stat_activity where application_name = 'exportd-source' and state <> 'idle'`) == 0
		})
		w.ended(job, "CANCELLED")
	}
	if most > pools+more {
		t.Errorf("%d sessions at a time; the pools have %d", most, pools)
	}
	if log := consumer.Log() + w.api.Log(); strings.Contains(log, "53300") || strings.Contains(log, "too many clients") {
		t.Error("the server had no session left")
	}
	w.completed(stack.Submission{Items: items("ROWS_10")})
	w.checkInvariants()
}
