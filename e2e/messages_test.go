package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"exportd/broker"
	"exportd/e2e/stack"
	"exportd/export"
)

func TestRepeatedMessagesChangeNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	foreign := w.foreigner()
	job := w.submit(stack.Submission{OnFailure: "CONTINUE", Items: append(items("SLOW_3", "DIV_1", "ERR_1"), stack.Item{Key: "ROWS_10", EffectiveDates: days(20)})})
	repeat := func() {
		for _, key := range []string{"SLOW_3", "DIV_1", "ERR_1"} {
			foreign.send(w.Work, fmt.Appendf(nil, `{"jobId":%q,"key":%q,"effectiveDate":"20200131"}`, job.JobID, key), false)
		}
		for _, day := range days(20) {
			foreign.send(w.Work, fmt.Appendf(nil, `{"jobId":%q,"key":"ROWS_10","effectiveDate":%q}`, job.JobID, day), false)
		}
	}
	repeat() // while it runs
	w.ended(job, "FAILED")
	before := w.number(`select hashtext(string_agg(c::text, ',' order by chunk_key)) from job_chunk c`)
	repeat() // after its end
	repeat()
	w.eventually("the queue is empty", func() bool {
		waiting, err := broker.Browse(t.Context(), w.Broker, w.Work, 1000)
		return err == nil && len(waiting) == 0
	})
	if after := w.number(`select hashtext(string_agg(c::text, ',' order by chunk_key)) from job_chunk c`); after != before {
		t.Error("the chunks have changed")
	}
	if n := w.number(`select count(*) from job_chunk where attempts <> case key when 'ERR_1' then 3 else 1 end`); n > 0 {
		t.Errorf("%d chunks ran more often than they had to", n)
	}
	w.checkInvariants()
}

func TestForeignMessagesAreParkedAsTheyCameAndBlockNobody(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	foreign := w.foreigner()
	broken := [][]byte{
		[]byte(`{}`), []byte("\xff\xfe no UTF-8"), []byte("NUL \x00 in the middle"), bytes.Repeat([]byte("junk "), 13<<10), []byte(`{"version":2,"chunk":"J20260102_000001/ABC"}`),
		[]byte(`{"jobId":"J20260102_000001","key":"A","effectiveDate":"20250230"}`), []byte(`[1,2]`), []byte(`null`), []byte(``), []byte(`{"jobId":"J20260102_000001","key":"A","effectiveDate":"20250228"} {}`),
		[]byte(`{"jobId":17,"key":"A","effectiveDate":"20250228"}`), []byte("\xef\xbb\xbf{}"), []byte(strings.Repeat(`[`, 20_000)),
	}
	for range 5 {
		for _, body := range broken {
			foreign.send(w.Work, body, true, "chunkKey:not ours", "x-foreign:yes")
		}
	}
	foreign.send(w.Work, []byte(`{"jobId":"nobody's"}`), false, "correlation-id:c-17")
	// Well-formed, and of nobody: forgotten.
	foreign.send(w.Work, []byte(`{"jobId":"J20200102_000001","key":"A","effectiveDate":"20250228"}`), false)
	foreign.send(w.Work, []byte(`{"jobId":"J20200102_000001","key":"A","effectiveDate":"20250228","schema":7,"more":{"a":[]}}`), true)

	job := w.completed(stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(20)}}})
	if job.Done != 20 {
		t.Errorf("got %+v", job)
	}
	// With an additional field it is ours all the same.
	w.expect.Parked = 5*len(broken) + 1
	w.checkInvariants()
	parked, err := broker.Browse(t.Context(), w.Broker, w.Parking, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range append(broken, []byte(`{"jobId":"nobody's"}`)) {
		n := 0
		for _, m := range parked {
			if bytes.Equal(m.Body, body) && m.Headers[export.HeaderReason] != "" {
				n++
			}
		}
		if n == 0 {
			t.Errorf("not parked as it came, with a reason: %.60q", body)
		}
	}
}

func TestAPurgedQueueHealsFromTheDatabase(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_1", EffectiveDates: days(60)}}})
	w.startConsumer()
	w.eventually("all slots wait at the gate", func() bool { return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 4 })
	w.eventually("all others are in the queue", func() bool { return w.number(`select count(*) from dispatch where state = 'SENT'`) == 56 })
	purged, err := broker.Purge(t.Context(), w.Broker, w.Work)
	if err != nil {
		t.Fatal(err)
	}
	if purged < 40 {
		t.Errorf("only %d messages were purged", purged)
	}
	open()
	w.ended(job, "COMPLETED")
	if n := w.number(`select count(*) from job_chunk where attempts <> 1`); n > 0 {
		t.Errorf("%d chunks ran more than once", n)
	}
	w.checkInvariants()
}

func TestTwoConsumersShareABacklogAboutEvenly(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer("EXPORTD_CONCURRENCY=1")
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "SLOW_1", EffectiveDates: days(24)}}})
	w.eventually("the first is at work", func() bool { return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 1 })
	w.startConsumer("EXPORTD_CONCURRENCY=1")
	w.ended(job, "COMPLETED")
	if n := w.number(`select min(n) from (select count(*) n from job_chunk group by lock_owner) o`); n < 7 || n > 12 {
		t.Errorf("one did only %d of 24", n)
	}
	w.checkInvariants()
}

func TestTenThousandChunksAreAcceptedWithoutABroker(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI("EXPORTD_BROKER_URLS=stomp://127.0.0.1:1")
	list := make([]stack.Item, 100)
	for i := range list {
		list[i] = stack.Item{Key: fmt.Sprintf("ROWS_1 %d", i), EffectiveDates: days(100)}
	}
	began := time.Now()
	job := w.submit(stack.Submission{Items: list})
	t.Logf("%d chunks were accepted after %s", job.Total, time.Since(began))
	if job.Total != 10_000 {
		t.Errorf("got %+v", job)
	}
	w.kill(api)
	w.startAPI("EXPORTD_BACKLOG=300", "EXPORTD_REPUBLISH_AFTER=10m") // nobody takes them, and none is to be there twice
	w.eventually("the backlog is in the queue", func() bool {
		waiting, err := broker.Browse(t.Context(), w.Broker, w.Work, 20_000)
		return err == nil && len(waiting) == 300
	})
	if n := w.number(`select count(*) from dispatch`); n != 10_000 {
		t.Errorf("%d debts", n)
	}
}
