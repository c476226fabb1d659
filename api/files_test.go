package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

// bucket signs links to any object, and holds the manifest of the first job.
type bucket struct{}

func (bucket) Presign(_ context.Context, key, filename string, ttl time.Duration) (string, time.Time, error) {
	if strings.Contains(key, "AWAY") {
		return "", time.Time{}, &export.Failure{Class: export.Outage, Code: "S3_SLOW_DOWN", Err: errors.New("secret of the bucket")}
	}
	return "https://s3.example/" + key + "?name=" + filename + "&ttl=" + ttl.String(), day.Add(ttl), nil
}

func (bucket) Open(_ context.Context, key string) (io.ReadCloser, int64, error) {
	if key != "exports/_manifests/J20260102_000001.json" {
		return nil, 0, export.ErrNotFound
	}
	return io.NopCloser(strings.NewReader(manifest)), int64(len(manifest)), nil
}

const manifest = `{"jobId":"J20260102_000001","run":1,"outcome":"FAILED","chunks":[
{"key":"ABC","effectiveDate":"20250215","status":"DLQ","reused":false,"errorCode":"SQL_22012","error":"division by zero"}
]}
`

func done(key string) func(*export.ChunkView) {
	return func(c *export.ChunkView) {
		c.Status, c.ObjectKey, c.Facts = export.Done, key, export.Facts{Rows: 2, Bytes: 20, SHA256: "abc"}
	}
}

func TestAFileIsALinkForAWhile(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	path := first + "/files/key=ABC%3Adate=20250215"
	w.do("GET", path, "", as("t1")...).problem(t, 409, "conflict")
	w.store.changeChunk(job(1), 0, done("exports/2025/02/15/ABC_20250215.csv.gz"))
	link := "https://s3.example/exports/2025/02/15/ABC_20250215.csv.gz?name=ABC_20250215.csv.gz&ttl=15m0s"
	for _, accept := range []string{"", "*/*", "text/csv", "application/json;q=0"} {
		if a := w.do("GET", path, "", append(as("t1"), "Accept", accept)...); a.StatusCode != 307 || a.Header.Get("Location") != link || a.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%q: %d %v", accept, a.StatusCode, a.Header)
		}
	}
	for _, accept := range []string{"application/json", "text/html, application/json;q=0.9"} {
		a := w.do("GET", path, "", append(as("op"), "Accept", accept)...)
		if diff := cmp.Diff(map[string]any{"url": link, "expiresAt": "2026-01-02T10:15:00.000Z"}, a.json(t)); diff != "" || a.StatusCode != 200 {
			t.Errorf("%d %s", a.StatusCode, diff)
		}
	}
	w.do("GET", path, "", as("t2")...).problem(t, 404, "not-found")
	w.do("GET", path, "").problem(t, 401, "unauthorized")
	w.do("GET", first+"/files/key=ABC:date=20250216", "", as("t1")...).problem(t, 404, "not-found")
	w.store.changeChunk(job(1), 0, done("AWAY"))
	if a := w.do("GET", path, "", as("t1")...); strings.Contains(string(a.body), "secret") {
		t.Errorf("%s", a.body)
	} else {
		a.problem(t, 503, "unavailable")
	}
	if strings.Contains(w.log.String(), "s3.example") {
		t.Error("a link is in the log")
	}
}

func TestTheManifestIsThereOnceTheJobHasEnded(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	for range 2 {
		w.do("POST", "/jobs", oneChunk, as("t1")...)
	}
	w.do("GET", first+"/manifest", "", as("t1")...).problem(t, 409, "conflict")
	for n := range 2 {
		w.store.change(job(n+1), func(j *export.Job) { j.Status = export.Failed })
	}
	a := w.do("GET", first+"/manifest", "", as("t1")...)
	if a.StatusCode != 200 || string(a.body) != manifest || a.Header.Get("Content-Type") != "application/json" || a.ContentLength != int64(len(manifest)) {
		t.Errorf("%d %v %s", a.StatusCode, a.Header, a.body)
	}
	w.do("GET", "/jobs/"+job(2)+"/manifest", "", as("t1")...).problem(t, 404, "not-found")
	w.do("GET", first+"/manifest", "", as("t2")...).problem(t, 404, "not-found")
	w.do("GET", first+"/manifest", "").problem(t, 401, "unauthorized")
}

func TestAJobShowsItsFilesWhenAsked(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", `{"items":[{"key":"ABC","effectiveDates":["20250215","20250216"]}]}`)
	if a := w.do("GET", first+"?include=files", ""); string(a.body[len(a.body)-len(`"dataContent":[]}`)-1:]) != `"dataContent":[]}`+"\n" {
		t.Errorf("%s", a.body)
	}
	tag := w.do("GET", first+"?include=files", "").Header.Get("ETag")
	if a := w.do("GET", first+"?include=files", "", "If-None-Match", tag); a.StatusCode != 304 || len(a.body) > 0 {
		t.Errorf("unchanged: %d %s", a.StatusCode, a.body)
	}
	w.store.changeChunk(job(1), 1, done("exports/2025/02/16/ABC_20250216.csv"))
	w.store.change(job(1), func(j *export.Job) { j.Pending, j.Done = 1, 1 })
	a := w.do("GET", first+"?include=files", "", "If-None-Match", tag)
	want := []any{map[string]any{
		"key": "ABC", "effectiveDate": "20250216", "s3Path": "s3://bucket/exports/2025/02/16/ABC_20250216.csv", "rowCount": 2., "byteCount": 20., "checksum": "abc", "reused": false,
	}}
	if diff := cmp.Diff(want, a.json(t)["dataContent"]); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(string(w.do("GET", first, "").body), "dataContent") {
		t.Error("unasked")
	}
	w.do("GET", first+"?include=all", "").problem(t, 400, "bad-request")
}
