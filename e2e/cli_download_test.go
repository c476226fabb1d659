package e2e

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"exportd/e2e/stack"
	"exportd/export"
	"exportd/s3out"
)

// bucketBehind is an address for the bucket through which no more than so many bytes of a file pass until it is open.
func (w *world) bucketBehind(most int) (address string, open func()) {
	w.t.Helper()
	target, err := url.Parse(w.S3.Endpoint)
	if err != nil {
		w.t.Fatal(err)
	}
	opened := make(chan struct{})
	open = sync.OnceFunc(func() { close(opened) })
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // the host stays: it is signed
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, r.In.Host
		},
		FlushInterval: -1,
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodGet {
				resp.Body = &held{ReadCloser: resp.Body, left: most, opened: opened, gone: resp.Request.Context().Done()}
			}
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	w.t.Cleanup(s.Close)
	w.t.Cleanup(open)
	return s.URL, open
}

// held is a body that stands still after so many bytes.
type held struct {
	io.ReadCloser
	left         int
	opened, gone <-chan struct{}
}

func (h *held) Read(b []byte) (int, error) {
	if h.left == 0 {
		select {
		case <-h.opened:
		case <-h.gone:
			return 0, errors.New("the reader left")
		}
		return h.ReadCloser.Read(b)
	}
	n, err := h.ReadCloser.Read(b[:min(len(b), h.left)])
	h.left -= n
	return n, err
}

func TestAKilledDownloadGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	address, open := w.bucketBehind(3 << 20)
	w.startAPI("EXPORTD_S3_ENDPOINT=" + address)
	w.startConsumer()
	job := w.completed(stack.Submission{Items: items("BIG_8")})
	dir := filepath.Join(t.TempDir(), "files")
	first := w.background(t, "download", job.JobID, dir)
	part := filepath.Join(dir, "BIG_8_20200131.csv.part")
	w.eventually("3 MiB are there", func() bool {
		info, err := os.Stat(part)
		return err == nil && info.Size() == 3<<20
	})
	if code, _, errs := w.person("", "download", job.JobID, dir); code != 1 || !strings.Contains(errs, "another exportd download") {
		t.Errorf("a second one meanwhile: code %d, printed %q", code, errs)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.end(t)
	open()
	code, out, errs := w.person("", "download", job.JobID, dir)
	if code != 0 || errs != "" || !strings.HasPrefix(out, "1 file fetched (5.43 MB)") { // of 8.58, for 3.15 were there
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	w.sameAsBucket(job, dir)
	if code, out, errs = w.person("", "download", job.JobID, dir); code != 0 || !strings.Contains(out, "1 were there already") {
		t.Errorf("again: code %d, printed %q, %q", code, out, errs)
	}
}

// sameAsBucket compares the files of a folder with the objects of a job.
func (w *world) sameAsBucket(job stack.Job, dir string) {
	w.t.Helper()
	rows, err := w.conn().Query(w.t.Context(), `select s3_object_key from job_chunk where job_id = $1 and status = 'DONE'`, job.JobID)
	if err != nil {
		w.t.Fatal(err)
	}
	var keys []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(keys) {
		w.t.Errorf("%d files for %d objects: %v", len(entries), len(keys), err)
	}
	for _, key := range keys {
		object, _, err := w.bucket().Get(w.t.Context(), key)
		if err != nil {
			w.t.Fatal(err)
		}
		want, err := io.ReadAll(object)
		object.Close()
		got, readErr := os.ReadFile(filepath.Join(dir, filepath.Base(key)))
		if err != nil || readErr != nil || !bytes.Equal(got, want) {
			w.t.Errorf("%s is another file: %v %v", key, err, readErr)
		}
	}
}

func TestDownloadKeepsHostileKeysInItsFolderAndRefusesSpoiltFiles(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	keys := []string{"ROWS_1/../../x", "..", "ROWS_2 %2F", "ROWS_2 /", `ROWS_3\..\x`, "rows_1", "ROWS_1", "ROWS_4 ☃:date=20200131", "-rf", "~", "$(id)", "ROWS_5;'\""}
	job := w.completed(stack.Submission{Items: items(keys...), Output: &stack.Output{Compression: "ZSTD"}})
	around := t.TempDir()
	dir := filepath.Join(around, "in", "files")
	code, out, errs := w.person("", "download", job.JobID, dir, "--parallel", "3")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "12 files fetched") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	w.sameAsBucket(job, dir)
	if beside, err := os.ReadDir(around); err != nil || len(beside) != 1 {
		t.Errorf("beside the folder: %v, %v", beside, err)
	}

	spoilt := export.ObjectKey(w.S3.BasePath, "ROWS_1", 20200131, export.Zstd)
	w.overwrite(spoilt, "spoilt")
	if err := os.WriteFile(filepath.Join(dir, "ROWS_1_20200131.csv.zst"), []byte("spoilt here too"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = w.person("", "download", job.JobID, dir)
	if code != 1 || !strings.Contains(errs, "key=ROWS_1:date=20200131: ") || !strings.Contains(errs, "sha256") || strings.Count(errs, "\n") != 1 || !strings.Contains(out, "11 were there") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, _, errs := w.person("", "download", "J20200101_000000", dir); code != 5 {
		t.Errorf("an unknown job: code %d, %q", code, errs)
	}
}

// overwrite puts another object in the place of one.
func (w *world) overwrite(key, content string) {
	w.t.Helper()
	if err := w.bucket().Delete(w.t.Context(), key, ""); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.bucket().PutSmall(w.t.Context(), key, "text/csv", []byte(content), nil, s3out.Condition{}); err != nil {
		w.t.Fatal(err)
	}
}
