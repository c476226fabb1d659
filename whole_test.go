package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

type jobAnswer struct {
	JobID, Status, S3BasePath     string
	Total, Done, FilesGenerated   int
	RowCount, ByteCount           int64
	Pending, Running, FilesReused int
}

func submit(t *testing.T, api *server, body string) jobAnswer {
	t.Helper()
	status, answer := call(t, http.MethodPost, api.addr+"/jobs", body)
	if status != http.StatusAccepted {
		t.Fatalf("got %d %s", status, answer)
	}
	return decodeJob(t, answer)
}

func decodeJob(t *testing.T, answer string) (j jobAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(answer), &j); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return j
}

// waitFor waits until the job has the status.
func waitFor(t *testing.T, api *server, id, status string) (j jobAnswer) {
	t.Helper()
	eventually(t, 30*time.Second, func() (bool, string) {
		_, answer := call(t, http.MethodGet, api.addr+"/jobs/"+id, "")
		j = decodeJob(t, answer)
		return j.Status == status, answer
	})
	return j
}

func waitReady(t *testing.T, s *server) {
	t.Helper()
	eventually(t, 20*time.Second, func() (bool, string) {
		status, answer := call(t, http.MethodGet, s.addr+"/readyz", "")
		return status == http.StatusOK, answer
	})
}

const threeChunks = `{"items": [{"key": "3", "effectiveDates": ["20250215", "20250315"]}, {"key": "0", "effectiveDates": ["20250215"]}]}`

func TestJobRunsFromHTTPToTheBucket(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if code, out, errs := w.command(w.environ, "migrate"); code != exitOK || !strings.Contains(out, "applied") {
		t.Fatalf("migrate: %d %s %s", code, out, errs)
	}
	api := w.start(w.environ, "api")
	consumers := []*server{w.start(w.environ, "consumer"), w.start(w.environ, "consumer")}
	for _, s := range append(consumers, api) {
		waitReady(t, s)
	}

	j := submit(t, api, threeChunks)
	if j.Total != 3 || j.Status != "SUBMITTED" {
		t.Errorf("got %+v", j)
	}
	j = waitFor(t, api, j.JobID, "COMPLETED")
	if j.Done != 3 || j.FilesGenerated != 3 || j.RowCount != 6 {
		t.Errorf("got %+v", j)
	}
	for key, want := range map[string]string{
		"exports/2025/02/15/3_20250215.csv": "n,day\n1,2025-02-15\n2,2025-02-15\n3,2025-02-15\n",
		"exports/2025/03/15/3_20250315.csv": "n,day\n1,2025-03-15\n2,2025-03-15\n3,2025-03-15\n",
		"exports/2025/02/15/0_20250215.csv": "n,day\n",
	} {
		if got := w.object(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if manifest := w.object("exports/_manifests/" + j.JobID + ".json"); !strings.Contains(manifest, "COMPLETED") {
		t.Errorf("manifest: %s", manifest)
	}
	status, metrics := call(t, http.MethodGet, consumers[0].addr+"/metrics", "")
	if status != http.StatusOK || !strings.Contains(metrics, "exportd_claims_ended_total") {
		t.Errorf("metrics: %d %s", status, metrics)
	}
	if status, _ := call(t, http.MethodGet, consumers[0].addr+"/jobs/"+j.JobID, ""); status != http.StatusNotFound {
		t.Errorf("a consumer serves jobs: %d", status)
	}
	for _, s := range append(consumers, api) {
		if code := s.stop(); code != exitOK {
			t.Errorf("stopped with %d", code)
		}
	}
}

func TestJobRunsWithoutABroker(t *testing.T) {
	t.Parallel()
	w := setup(t)
	environ := w.with("EXPORTD_DISPATCH=database", "EXPORTD_BROKER_URLS=")
	if code, _, errs := w.command(environ, "migrate"); code != exitOK {
		t.Fatal(errs)
	}
	api, consumer := w.start(environ, "api"), w.start(environ, "consumer")
	waitReady(t, consumer)
	j := waitFor(t, api, submit(t, api, threeChunks).JobID, "COMPLETED")
	if j.Done != 3 {
		t.Errorf("got %+v", j)
	}
}

func TestMigrateShowsAndAppliesWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if code, out, _ := w.command(w.environ, "migrate", "status"); code != exitFailed || !strings.Contains(out, "missing") {
		t.Errorf("before: %d %s", code, out)
	}
	if code, out, errs := w.command(w.environ, "migrate"); code != exitOK || !strings.Contains(out, "applied") {
		t.Errorf("migrate: %d %s %s", code, out, errs)
	}
	if code, out, _ := w.command(w.environ, "migrate"); code != exitOK || !strings.Contains(out, "nothing to do") {
		t.Errorf("again: %d %s", code, out)
	}
	if code, out, _ := w.command(w.environ, "migrate", "status"); code != exitOK || strings.Contains(out, "missing") {
		t.Errorf("after: %d %s", code, out)
	}
}

func TestVersionNamesItselfCommitAndGo(t *testing.T) {
	t.Parallel()
	code, out, _ := (&world{t: t}).command(nil, "version")
	if code != exitOK || !strings.Contains(out, "exportd ") || !strings.Contains(out, "commit") || !strings.Contains(out, "go1.") {
		t.Errorf("got %d %s", code, out)
	}
}
