package e2e

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportd/e2e/stack"
	"exportd/traces/tracestest"
)

// hostileKey has what breaks lines and terminals, as far as a key may have it.
const hostileKey = `ROWS_1 "}{\n\u001b[31m%0a` + "é"

func TestAJobIsOneTraceFromThePostToThePutThroughRetriesAndKills(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"broker": nil, "database": {"EXPORTD_DISPATCH=database"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, own{})
			c := tracestest.Start(t)
			w.Settings = append(settings, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=100")
			w.startAPI()
			w.startConsumer()
			w.startConsumer()
			open := w.closeGate(12)
			job := w.submit(stack.Submission{Items: items("HALF_12", "FLAKY_1", hostileKey)})
			w.eventually("a part", func() bool {
				return w.number(`select count(*) from job_chunk where key = 'HALF_12' and upload_id is not null`) == 1
			})
			w.eventually("the other chunks have told of themselves", func() bool {
				spans, published := c.Spans(), 0
				for _, s := range spans {
					if s.Name == "publish" {
						published++
					}
				}
				return len(attempts(spans, job.JobID, "generated")) == 2 && len(attempts(spans, job.JobID, "retry")) >= 1 && (name == "database" || published >= 3)
			})
			w.kill(w.owner("HALF_12"))
			open()
			w.ended(job, "COMPLETED")
			var spans []tracestest.Span
			w.eventually("the spans of the puts", func() bool {
				spans = c.Spans()
				return len(attempts(spans, job.JobID, "generated")) == 3
			})
			checkTrace(t, spans, job.JobID, name == "broker")
			if n, recorded := len(attempts(spans, job.JobID, "retry")), w.number(`select count(*) from chunk_attempt where outcome = 'RETRY'`); n != recorded {
				t.Errorf("%d attempts that were tried again, %d recorded", n, recorded)
			}
			for _, s := range attempts(spans, job.JobID, "generated") {
				key, _, _ := strings.Cut(strings.TrimPrefix(s.Attributes["exportd.chunk"], "key="), ":date=")
				// A slow machine may lose a lease more than the test takes away.
				if n := w.number(`select attempts from job_chunk where key = $1`, key); s.Attributes["exportd.attempt"] != strconv.Itoa(n) || n < 2 && key != hostileKey {
					t.Errorf("%q was exported in attempt %s of %d", key, s.Attributes["exportd.attempt"], n)
				}
			}
			w.checkInvariants()
		})
	}
}

func attempts(spans []tracestest.Span, job, outcome string) (found []tracestest.Span) {
	for _, s := range spans {
		if s.Name == "attempt" && s.Attributes["exportd.job"] == job && s.Attributes["exportd.outcome"] == outcome {
			found = append(found, s)
		}
	}
	return found
}

func checkTrace(t *testing.T, spans []tracestest.Span, job string, published bool) {
	byID, below, byName := map[string]tracestest.Span{}, map[string][]tracestest.Span{}, map[string]int{}
	var submit tracestest.Span
	for _, s := range spans {
		if s.Name == "submit" {
			submit = s
		}
	}
	for _, s := range spans {
		if s.Trace != submit.Trace {
			continue
		}
		byID[s.ID] = s
		below[s.Parent] = append(below[s.Parent], s)
		byName[s.Name]++
	}
	if post := byID[submit.Parent]; post.Name != "POST /jobs" || post.Service != "exportd-api" || post.Attributes["http.response.status_code"] != "202" || post.Parent != "" {
		t.Errorf("the submission is below %+v", post)
	}
	if submit.Attributes["exportd.job"] != job || submit.Attributes["exportd.chunks"] != "3" {
		t.Errorf("got %+v", submit)
	}
	if published != (byName["publish"] >= 3) {
		t.Errorf("%d messages were published", byName["publish"])
	}
	for _, s := range append(attempts(spans, job, "generated"), attempts(spans, job, "retry")...) {
		if s.Trace != submit.Trace || s.Service != "exportd-consumer" || s.Attributes["exportd.claim"] == "" || s.Kind != "SPAN_KIND_CONSUMER" {
			t.Errorf("got %+v", s)
		}
		// The relay of the consumer that was killed may have published without having told of it.
		if above, known := byID[s.Parent]; known && above.Name != "publish" && above.Name != "submit" || !known && !published {
			t.Errorf("%+v is below %+v", s, above)
		}
		steps := map[string]int{}
		for _, b := range below[s.ID] {
			steps[b.Name]++
			for _, inner := range below[b.ID] {
				steps[b.Name+"/"+inner.Name]++
			}
		}
		if steps["upload"] != 1 || steps["upload/query"] != 1 {
			t.Errorf("an attempt consists of %v", steps)
		}
	}
}

func TestEveryLogLineOfAChunkNamesItAndTellsNoSecret(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	c := tracestest.Start(t)
	w.Settings = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL}
	w.startAPI()
	w.startConsumer()
	w.ended(w.submit(stack.Submission{OnFailure: "CONTINUE", Items: items("FLAKY_1", hostileKey, "DIV_3", hostileKey+"2")}), "FAILED")
	said := map[string]int{}
	for _, p := range w.Processes() {
		for line := range strings.Lines(p.Log()) {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Errorf("not a line of its own: %q", line)
				continue
			}
			message, _ := l["msg"].(string)
			said[message]++
			names := []string{}
			if strings.HasPrefix(message, "chunk ") {
				names = []string{"jobId", "chunkKey", "attempt", "requestId", "traceId"}
			} else if l["chunkKey"] != nil {
				names = []string{"jobId", "requestId"}
			}
			for _, name := range names {
				if l[name] == nil || l[name] == "" {
					t.Errorf("%s without %s: %s", message, name, line)
				}
			}
		}
		for _, secret := range []string{w.Broker.Password, w.conn().Config().Password} {
			if len(secret) > 3 && strings.Contains(p.Log(), secret) && secret != w.Broker.User && secret != w.conn().Config().User {
				t.Errorf("%s logs a secret", p.Name)
			}
		}
	}
	for _, message := range []string{"job submitted", "chunk done", "chunk dead-lettered", "chunk failed, will be tried again", "request"} {
		if said[message] == 0 {
			t.Errorf("nobody says %q", message)
		}
	}
	w.checkInvariants()
}

func TestACollectorThatNeverAnswersHoldsNothingUp(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	w := setup(t, own{})
	w.Settings = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + silent.Addr().String(), "OTEL_BSP_SCHEDULE_DELAY=50"}
	api, consumer := w.startAPI(), w.startConsumer()
	w.completed(stack.Submission{Items: []stack.Item{{Key: "ROWS_10", EffectiveDates: days(200)}}})
	w.once()
	for _, p := range []*stack.Process{consumer, api} {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := w.exit(p, 20*time.Second); code != 0 {
			t.Errorf("%s ended with %d", p.Name, code)
		}
	}
	w.startAPI()
	w.startConsumer()
	w.checkInvariants()
}
