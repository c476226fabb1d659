package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// scrape is what a process tells, by series: name{labels} in the form of the text.
type scrape struct {
	text   string
	series map[string]float64
}

func (s *server) scrape(t *testing.T) scrape {
	t.Helper()
	status, text := call(t, http.MethodGet, s.addr+"/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, text)
	}
	sc := scrape{text, map[string]float64{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") {
			v, err := strconv.ParseFloat(line[i+1:], 64)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			sc.series[line[:i]] = v
		}
	}
	return sc
}

// sum over all series of a metric.
func (s scrape) sum(name string) (sum float64) {
	for series, v := range s.series {
		if series == name || strings.HasPrefix(series, name+"{") {
			sum += v
		}
	}
	return sum
}

func (s scrape) want(t *testing.T, values map[string]float64) {
	t.Helper()
	for series, want := range values {
		if got, ok := s.series[series]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", series, got, ok, want)
		}
	}
}

func TestMetricsTellWhatWasDone(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.environ = w.with("EXPORTD_MAX_ATTEMPTS=2", "EXPORTD_RETRY_BASE=10ms", "EXPORTD_RETRY_MAX=10ms")
	if code, _, errs := w.command(w.environ, "migrate"); code != exitOK {
		t.Fatal(errs)
	}
	w.sql(`drop function export_rows; create function export_rows(key text, effective_date date) returns table (n int) language plpgsql stable as
		$$ begin if key = 'bad' then raise exception 'bad'; end if; return query select generate_series(1, key::int); end $$`)
	api, consumer := w.start(w.environ, "api"), w.start(w.environ, "consumer")
	waitReady(t, consumer)
	const old = `{"items": [{"key": "3", "effectiveDates": ["20200215", "20200315"]}], "idempotencyKey": "k"}`
	waitFor(t, api, submit(t, api, old).JobID, "COMPLETED")
	submit(t, api, old)                                                                                                                     // replayed
	waitFor(t, api, submit(t, api, `{"items": [{"key": "3", "effectiveDates": ["20200215", "20200315"]}]}`).JobID, "COMPLETED")             // reused
	waitFor(t, api, submit(t, api, `{"items": [{"key": "bad", "effectiveDates": ["20200215"]}], "onFailure": "CONTINUE"}`).JobID, "FAILED") // retried once
	call(t, http.MethodGet, api.addr+"/jobs/J20200101_000001/chunks/x%2Fy?limit=7", "")
	call(t, http.MethodGet, api.addr+"/secret/path", "")
	call(t, "BREW", api.addr+"/pot", "")

	var a, c scrape
	eventually(t, 30*time.Second, func() (bool, string) { // the state is read at most every ten seconds
		a, c = api.scrape(t), consumer.scrape(t)
		return c.series["exportd_chunks_in_flight"] == 0 && a.series[`exportd_queue_consumers{queue="work"}`] == 1 && a.series["exportd_fleet_workers"] == 1 && a.sum("exportd_jobs_ended_total")+c.sum("exportd_jobs_ended_total") == 3, a.text
	})
	a.want(t, map[string]float64{
		`exportd_submissions_total{result="stored"}`: 3, `exportd_submissions_total{result="replayed"}`: 1, "exportd_submitted_chunks_total": 5,
		`exportd_http_requests_total{route="POST /jobs",status="202"}`: 4, `exportd_http_request_duration_seconds_count{route="POST /jobs",status="202"}`: 4,
		`exportd_http_requests_total{route="unknown",status="404"}`: 2, `exportd_fleet_concurrency`: 8, `exportd_state_read_failures_total{of="database"}`: 0,
		`exportd_jobs{status="CANCELLING"}`: 0, `exportd_dispatch_chunks{state="wait"}`: 0, `exportd_db_connections_limit{pool="truth"}`: 6,
	})
	c.want(t, map[string]float64{
		"exportd_claims_total": 6, `exportd_claims_ended_total{outcome="generated"}`: 2, `exportd_claims_ended_total{outcome="reused"}`: 2,
		`exportd_claims_ended_total{outcome="retry"}`: 1, `exportd_claims_ended_total{outcome="dead_lettered"}`: 1, `exportd_claims_ended_total{outcome="lost"}`: 0,
		`exportd_chunk_duration_seconds_count{outcome="generated"}`: 2, `exportd_chunk_duration_seconds_count{outcome="retry"}`: 1,
		"exportd_rows_total": 6, "exportd_bytes_total": 2 * float64(len("n\n1\n2\n3\n")), "exportd_chunks_in_flight": 0, "exportd_concurrency": 8,
		`exportd_broker_connected{connection="intake"}`: 1, `exportd_breaker_open{dependency="database"}`: 0, `exportd_breaker_open{dependency="s3"}`: 0,
	})
	if n := a.sum("exportd_relay_published_total") + c.sum("exportd_relay_published_total"); n < 6 {
		t.Errorf("%v messages were published", n)
	}
	for _, told := range []string{"secret", "J20200101", "BREW", "limit=7"} {
		if strings.Contains(a.text, told) {
			t.Errorf("the metrics repeat what a client said: %s", told)
		}
	}
	for process, s := range map[string]scrape{"api": a, "consumer": c} {
		problems, err := promlint.New(strings.NewReader(s.text)).Lint()
		if err != nil {
			t.Error(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", process, p.Metric, p.Text)
		}
	}
	checkMetricsTable(t, map[string]scrape{"api": a, "consumer": c})
}

// checkMetricsTable compares the table in docs/metrics.md with what the processes tell.
func checkMetricsTable(t *testing.T, told map[string]scrape) {
	t.Helper()
	help := regexp.MustCompile(`(?m)^# HELP (exportd_\w+) (.*)\n# TYPE \w+ (\w+)\n\w+(?:\{(.*?)\})? `)
	label := regexp.MustCompile(`(\w+)="`)
	rows, processes := map[string]string{}, map[string][]string{}
	for _, process := range []string{"api", "consumer"} {
		for _, m := range help.FindAllStringSubmatch(told[process].text, -1) {
			var labels []string
			for _, l := range label.FindAllStringSubmatch(m[4], -1) {
				if l[1] != "le" {
					labels = append(labels, l[1])
				}
			}
			rows[m[1]] = fmt.Sprintf("%s | %s | %s |", m[3], strings.Join(labels, ", "), m[2])
			processes[m[1]] = append(processes[m[1]], process)
		}
	}
	var want strings.Builder
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range rows {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Fprintf(&want, "| `%s` | %s | %s\n", name, strings.Join(processes[name], ", "), rows[name])
	}
	doc, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(doc)) {
		if strings.HasPrefix(line, "| `exportd_") {
			got.WriteString(line)
		}
	}
	if got.String() != want.String() {
		t.Errorf("the table in docs/metrics.md is not what is told; it should be:\n%s", want.String())
	}
}

// Services that take connections and never say a word.
func TestAScrapeNeitherWaitsNorFailsWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	w := &world{t: t, environ: []string{
		"EXPORTD_DATABASE_URL=postgres://u:p@" + silent.Addr().String() + "/d?sslmode=disable", "EXPORTD_BROKER_URLS=stomp://" + silent.Addr().String(),
		"EXPORTD_S3_BUCKET=bucket", "EXPORTD_S3_ENDPOINT=http://" + silent.Addr().String(), "EXPORTD_S3_REGION=us-east-1", "EXPORTD_HTTP_ADDR=127.0.0.1:0", "EXPORTD_DRAIN_TIMEOUT=1s",
	}}
	api, consumer := w.start(w.environ, "api"), w.start(w.environ, "consumer")
	eventually(t, 30*time.Second, func() (bool, string) {
		for _, s := range []*server{api, consumer} {
			began := time.Now()
			text := s.scrape(t).text
			if took := time.Since(began); took > 5*time.Second { // two readings of 250 ms, and a busy machine
				t.Errorf("a scrape took %s", took)
			}
			if !strings.Contains(text, "exportd_build_info{") {
				t.Errorf("got %s", text)
			}
		}
		a := api.scrape(t)
		if n, told := a.series[`exportd_jobs{status="SUBMITTED"}`]; told {
			t.Errorf("%v jobs are said to be there", n)
		}
		a.want(t, map[string]float64{`exportd_state_read_timestamp_seconds{of="database"}`: 0, `exportd_state_read_timestamp_seconds{of="queues"}`: 0})
		return a.series[`exportd_state_read_failures_total{of="database"}`] > 0, a.text
	})
}
