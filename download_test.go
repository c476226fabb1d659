package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"exportd/client"
	"exportd/export"
)

// store is an API with one job, and the bucket that its links lead to.
type store struct {
	t      *testing.T
	url    string
	chunks []map[string]any
	files  map[string][]byte // by chunk key
	// serve, if set, answers the n-th request for a file; false leaves it to the bucket.
	serve func(n int, chunkKey string, w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	links    int
	requests []string // chunk key and range, in the order of arrival
}

func newStore(t *testing.T) *store {
	s := &store{t: t, files: map[string][]byte{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *store) add(key, date string, content []byte, change map[string]any) (chunkKey string) {
	chunkKey = "key=" + key + ":date=" + date
	sum := sha256.Sum256(content)
	ch := map[string]any{"chunkKey": chunkKey, "key": key, "effectiveDate": date, "status": "DONE", "s3Path": "s3://b/x.csv",
		"byteCount": len(content), "checksum": hex.EncodeToString(sum[:])}
	for name, value := range change {
		ch[name] = value
	}
	s.chunks = append(s.chunks, ch)
	s.files[chunkKey] = content
	return chunkKey
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(v any) {
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Error(err)
		}
	}
	switch path := r.URL.Path; {
	case path == "/jobs/J1":
		answer(map[string]any{"jobId": "J1", "status": "COMPLETED", "total": len(s.chunks), "done": len(s.chunks)})
	case path == "/jobs/J1/chunks":
		answer(map[string]any{"chunks": s.chunks})
	case strings.HasPrefix(path, "/jobs/J1/files/"):
		s.mu.Lock()
		s.links++
		link := fmt.Sprintf("%s/bucket?n=%d&chunk=%s", s.url, s.links, url.QueryEscape(strings.TrimPrefix(path, "/jobs/J1/files/")))
		s.mu.Unlock()
		answer(map[string]any{"url": link, "expiresAt": "2026-01-02T10:15:00Z"})
	default:
		if r.Header.Get("Authorization") != "" {
			s.t.Error("the token was sent to the bucket")
		}
		chunkKey := r.URL.Query().Get("chunk")
		s.mu.Lock()
		n := len(s.requests)
		s.requests = append(s.requests, strings.TrimSpace(chunkKey+" "+r.Header.Get("Range")))
		s.mu.Unlock()
		if s.serve == nil || !s.serve(n, chunkKey, w, r) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.files[chunkKey]))
		}
	}
}

// download runs the command.
func (s *store) download(dir string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(s.t.Context(), append([]string{"download", "J1", dir}, args...), nil, &o, &e, []string{"EXPORTD_URL=" + s.url, "EXPORTD_TOKEN=t"})
	return code, o.String(), e.String()
}

func content(n int) []byte { return bytes.Repeat([]byte("0123456789abcde\n"), n) }

// tree are the paths of all files below a folder, relative to it, with their contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDownloadNamesFilesSoThatNoneLeavesTheFolder(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	want := map[string]string{}
	for i, key := range []string{"ABC", "abc", "../../x", "..", ".", "a/b", `a\b`, "%2F", "%2f", "a b", "☃", "-rf", "CON", "~x", strings.Repeat("☃", 22), "x_20250101.csv", "a\x00b"} {
		text := content(i + 1)
		s.add(key, "20250101", text, nil)
		want[export.EncodeKey(key)+"_20250101.csv"] = string(text)
	}
	s.add("ABC", "20250102", content(50), map[string]any{"s3Path": "s3://b/x.csv.gz"})
	s.add("ABC", "20250103", content(51), map[string]any{"s3Path": "s3://b/x.csv.zst"})
	want["ABC_20250102.csv.gz"], want["ABC_20250103.csv.zst"] = string(content(50)), string(content(51))
	around := t.TempDir()
	code, out, errs := s.download(filepath.Join(around, "made", "here"))
	if code != 0 || errs != "" || !strings.HasPrefix(out, "19 files fetched") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	got := tree(t, around)
	if len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
	for name, text := range want {
		if got[filepath.Join("made", "here", name)] != text {
			t.Errorf("no %s, or another", name)
		}
	}
	code, out, _ = s.download(filepath.Join(around, "made", "here"))
	if code != 0 || !strings.HasPrefix(out, "0 files fetched") || !strings.Contains(out, "19 were there") || len(s.requests) != 19 {
		t.Errorf("again: code %d, printed %q, %d requests", code, out, len(s.requests))
	}
}

func TestDownloadTakesNothingOfTheAPIForGranted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.add("A", "20250101", content(1), map[string]any{"effectiveDate": "../../../tmp/x"})
	s.add("B", "20250101", content(1), map[string]any{"s3Path": "s3://b/x.sh"})
	s.add("C", "20250101", content(1), map[string]any{"key": ""})
	s.add("D", "20250101", content(1), map[string]any{"checksum": ""})
	s.add("E", "20250101", content(1), map[string]any{"byteCount": -1})
	s.add("F", "20250101", content(1), nil)
	dir := t.TempDir()
	code, out, errs := s.download(dir, "--json")
	if code != 1 || strings.Count(errs, "\n") != 6 || strings.Count(out, `"outcome":"failed"`) != 5 || strings.Count(out, `"outcome":"fetched"`) != 1 {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if files := tree(t, dir); len(files) != 1 {
		t.Errorf("left %v", files)
	}
}

func TestDownloadContinuesAPart(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	whole := content(1000)
	a, b := s.add("A", "20250101", whole, nil), s.add("B", "20250101", whole, nil)
	c, d := s.add("C", "20250101", whole, nil), s.add("D", "20250101", whole, nil)
	dir := t.TempDir()
	for name, text := range map[string][]byte{
		"A_20250101.csv.part": whole[:7000],                              // goes on
		"B_20250101.csv.part": append([]byte("wrong"), whole[5:8000]...), // turns out to be another file's, and is fetched anew
		"C_20250101.csv.part": append(whole[:16000:16000], 'x'),          // too long
		"D_20250101.csv.part": whole,                                     // only to be renamed
		"D_20250101.csv":      []byte("old"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := s.download(dir, "--parallel", "1")
	if code != 0 || errs != "" {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	files := tree(t, dir)
	for _, key := range []string{"A", "B", "C", "D"} {
		if files[key+"_20250101.csv"] != string(whole) {
			t.Errorf("%s is not the file", key)
		}
	}
	want := []string{a + " bytes=7000-", b + " bytes=8000-", b, c}
	if fmt.Sprint(s.requests) != fmt.Sprint(want) || len(files) != 4 {
		t.Errorf("asked for %q, want %q and nothing of %s; left %d files", s.requests, want, d, len(files))
	}
}

func TestDownloadRefusesAFileThatIsNotTheRecordedOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change map[string]any
		given  []byte
		says   string
	}{
		"other bytes": {nil, append(content(9), content(1)[1:]...), "its sha256 is not"},
		"shorter":     {nil, content(9), "its sha256 is not"},
		"longer":      {nil, content(11), "its sha256 is not"},
		"superseded":  {map[string]any{"superseded": true}, content(11), "made anew by a later job"},
	} {
		s := newStore(t)
		bad := s.add("A", "20250101", content(10), c.change)
		s.add("B", "20250101", content(10), nil)
		s.files[bad] = c.given
		dir := t.TempDir()
		code, out, errs := s.download(dir)
		if code != 1 || !strings.Contains(errs, bad) || !strings.Contains(errs, c.says) || !strings.Contains(out, "1 file fetched") || !strings.Contains(out, "1 FAILED") {
			t.Errorf("%s: code %d, printed %q, %q", name, code, out, errs)
		}
		if files := tree(t, dir); len(files) != 1 || files["B_20250101.csv"] == "" || len(s.requests) != 2 {
			t.Errorf("%s: left %d files after %d requests", name, len(files), len(s.requests))
		}
	}
}

func TestDownloadTriesAgainWhereThatMayHelp(t *testing.T) {
	t.Parallel()
	whole := content(10000)
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	half := func(w http.ResponseWriter, r *http.Request) { // what is sent before the connection breaks
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = w.Write(whole[:80000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, c := range map[string]struct {
		answers []func(http.ResponseWriter, *http.Request)
		ranges  string
	}{
		"errors of the store":  {[]func(http.ResponseWriter, *http.Request){status(500), status(503)}, "[  ]"},
		"an expired link":      {[]func(http.ResponseWriter, *http.Request){status(403)}, "[ ]"},
		"a broken connection":  {[]func(http.ResponseWriter, *http.Request){half}, "[ bytes=80000-]"},
		"a range that is none": {[]func(http.ResponseWriter, *http.Request){half, status(416)}, "[ bytes=80000- ]"},
		"no ranges": {[]func(http.ResponseWriter, *http.Request){half, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(whole)
		}}, "[ bytes=80000-]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.add("A", "20250101", whole, nil)
			var ranges []string
			s.serve = func(n int, _ string, w http.ResponseWriter, r *http.Request) bool {
				ranges = append(ranges, r.Header.Get("Range"))
				if n >= len(c.answers) {
					return false
				}
				c.answers[n](w, r)
				return true
			}
			dir := t.TempDir()
			code, out, errs := s.download(dir)
			if code != 0 || errs != "" || tree(t, dir)["A_20250101.csv"] != string(whole) || fmt.Sprint(ranges) != c.ranges || s.links != len(ranges) {
				t.Errorf("code %d, printed %q, %q; asked for %q with %d links, want %s", code, out, errs, ranges, s.links, c.ranges)
			}
		})
	}
}

func TestDownloadGivesUpAStoreThatBreaksOffWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.add("A", "20250101", content(100), nil)
	s.serve = func(_ int, _ string, w http.ResponseWriter, _ *http.Request) bool { // never goes on: always the same beginning
		w.Header().Set("Content-Length", "1600")
		_, _ = w.Write(content(1))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	var told int64
	f := fetcher{api: client.Client{URL: s.url}, jobID: "J1", http: newFileClient(1), tell: func(n int64) { told += n }}
	into, err := openFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	f.into = into
	var ch client.Chunk
	raw, _ := json.Marshal(s.chunks[0])
	if err := json.Unmarshal(raw, &ch); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.fetch(t.Context(), ch, "A.csv"); err == nil || told != 0 || len(s.requests) > 2*fileTries {
		t.Errorf("%v after %d requests, %d bytes said to be there", err, len(s.requests), told)
	}
}

func TestDownloadGivesUpWhenNothingComesAnyMore(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 500 {
		s.add(fmt.Sprintf("K%d", i), "20250101", content(1), nil)
	}
	s.serve = func(_ int, _ string, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	code, out, errs := s.download(t.TempDir(), "--parallel", "10")
	if code != 1 || !strings.Contains(out, "not tried any more") || strings.Count(errs, "403") > 3*mostInARow {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
}

func TestDownloadsIntoOneFolderKeepEachOtherOut(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.add("A", "20250101", content(10), nil)
	dir := t.TempDir()
	first, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := s.download(dir); code != 1 || !strings.Contains(errs, "another exportd download") {
		t.Errorf("code %d, printed %q", code, errs)
	}
	first.Close()
	if code, _, errs := s.download(dir); code != 0 {
		t.Errorf("code %d, printed %q", code, errs)
	}
}

func TestDownloadFollowsNoLinkOutOfTheFolder(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.add("A", "20250101", content(10), nil)
	s.add("B", "20250101", content(10), nil)
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"A_20250101.csv.part", "B_20250101.csv"} {
		if err := os.Symlink(outside, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	code, _, errs := s.download(dir)
	text, _ := os.ReadFile(outside)
	if code != 1 || strings.Count(errs, "\n") != 2 || string(text) != "precious" {
		t.Errorf("code %d, printed %q, outside is %q", code, errs, text)
	}
}

func TestInterruptedDownloadSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.add("A", "20250101", content(1000), nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.serve = func(_ int, _ string, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "16000")
		_, _ = w.Write(content(10))
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		return true
	}
	var errs bytes.Buffer
	if code := run(ctx, []string{"download", "J1", t.TempDir()}, nil, io.Discard, &errs, []string{"EXPORTD_URL=" + s.url}); code != 130 || !strings.Contains(errs.String(), "again to go on") {
		t.Errorf("code %d, printed %q", code, &errs)
	}
}

func TestKeysThatDifferInCaseGetNamesOfTheirOwnWhereTheFolderFoldsIt(t *testing.T) {
	sum := strings.Repeat("0", 64)
	chunk := func(key string) client.Chunk {
		return client.Chunk{Key: key, EffectiveDate: "20250101", S3Path: "s3://b/x.csv", Checksum: sum}
	}
	chunks := []client.Chunk{chunk("ABC"), chunk("abc"), chunk("X"), chunk("%2f"), chunk("%2F")}
	seen := map[string]bool{}
	for _, name := range fileNames(chunks, true) {
		folded := strings.ToLower(name.text)
		if name.err != nil || seen[folded] {
			t.Errorf("%q again, or %v", name.text, name.err)
		}
		seen[folded] = true
	}
	if !seen["x_20250101.csv"] {
		t.Errorf("a key without a rival has another name than in the bucket: %v", seen)
	}
	if names := fileNames(chunks, false); names[0].text != "ABC_20250101.csv" || names[1].text != "abc_20250101.csv" {
		t.Errorf("names %v", names)
	}
}
