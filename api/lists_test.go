package api_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

// page is a list as the answer shows it: its names, and its cursor.
func (a answer) page(t *testing.T, list, name string) (names []string, next string) {
	t.Helper()
	if a.StatusCode != 200 {
		t.Fatalf("%s: %d %s", a.Request.URL, a.StatusCode, a.body)
	}
	body := a.json(t)
	names = []string{}
	for _, it := range body[list].([]any) {
		names = append(names, it.(map[string]any)[name].(string))
	}
	next, _ = body["nextCursor"].(string)
	return names, next
}

func job(n int) string { return fmt.Sprintf("J20260102_%06d", n) }

func TestJobsAreListedNewestFirstPageByPage(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	if a := w.do("GET", "/jobs", ""); string(a.body) != `{"jobs":[],"nextCursor":null}`+"\n" {
		t.Errorf("%s", a.body)
	}
	for range 5 {
		w.do("POST", "/jobs", oneChunk)
	}
	var seen []string
	cursor := ""
	for range 3 {
		names, next := w.do("GET", "/jobs?limit=2&cursor="+cursor, "").page(t, "jobs", "jobId")
		seen, cursor = append(seen, names...), next
		w.do("POST", "/jobs", oneChunk) // newer ones do not move the list
	}
	if diff := cmp.Diff([]string{job(5), job(4), job(3), job(2), job(1)}, seen); diff != "" || cursor != "" {
		t.Errorf("%s, cursor %q", diff, cursor)
	}
	one, list := w.do("GET", "/jobs/"+job(8), "").json(t), w.do("GET", "/jobs?limit=1", "").json(t)
	if diff := cmp.Diff(one, list["jobs"].([]any)[0]); diff != "" {
		t.Errorf("shown differently in the list: %s", diff)
	}
}

func TestJobsAreFiltered(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	w.do("POST", "/jobs", `{"items":[{"key":"a+b/é","effectiveDates":["20250215"]}]}`)
	w.do("POST", "/jobs", oneChunk)
	w.store.change(job(1), func(j *export.Job) { j.Status, j.CreatedAt = export.Failed, day.AddDate(0, 0, -1) })
	for query, want := range map[string][]string{
		"status=FAILED": {job(1)}, "status=COMPLETED": {}, "key=ABC": {job(3), job(1)}, "key=a%2Bb%2F%C3%A9": {job(2)}, "status=": {job(3), job(2), job(1)},
		"from=2026-01-02": {job(3), job(2)}, "to=2026-01-01": {job(1)}, "to=20260101": {job(1)}, "from=2026-01-02T11:00:02%2B01:00": {job(3)},
		"from=2026-01-02T11:00:02+01:00": {job(3)}, "to=2026-01-02T10:00:02Z": {job(2), job(1)}, "status=FAILED&key=ABC&tenant=default": {job(1)},
		"tenant=other": {}, "tenant=no%20name": {},
	} {
		if got, _ := w.do("GET", "/jobs?"+query, "").page(t, "jobs", "jobId"); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
}

func TestListsRefuseWhatTheyCannotRead(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	cursors := []string{"!", "AAAA", "j", "%00", strings.Repeat("A", 600)}
	for _, place := range []string{"", "x", "j", "j1", "j.J20260102_000001", "j1.x", "j99999999999999999999.J20260102_000001", "j9223372036854775807.J20260102_000001",
		"j-9223372036854775808.J20260102_000001", "c", "ckey=:date=20250215", "ckey=A\x00:date=20250215", "ckey=\xff:date=20250215", "ckey=A:date=2025"} {
		cursors = append(cursors, base64.RawURLEncoding.EncodeToString([]byte(place)))
	}
	for path, names := range map[string][]string{
		"/jobs":           {"status=DONE", "status=failed", "limit=0", "limit=201", "limit=x", "limit=-1", "limit=99999999999999999999", "key=%00", "key=%FF", "key=" + strings.Repeat("k", 129), "from=x", "to=20260230", "from=0000-01-01", "stauts=FAILED"},
		first + "/chunks": {"status=COMPLETED", "limit=0", "limit=201", "key=%0a", "tenant=x"},
	} {
		for _, c := range cursors {
			names = append(names, "cursor="+url.QueryEscape(c))
		}
		for _, query := range names {
			if c, ok := strings.CutPrefix(query, "cursor="); ok && c == "" {
				continue // none
			}
			p := w.do("GET", path+"?"+query, "").problem(t, 400, "bad-request")
			if name, _, _ := strings.Cut(query, "="); len(p.Errors) == 0 || p.Errors[0].Parameter != "query."+name {
				t.Errorf("%s?%s: %+v", path, query, p)
			}
		}
	}
	if p := w.do("GET", "/jobs?from=x&to=y&limit=0&cursor=z", "").problem(t, 400, "bad-request"); len(p.Errors) != 4 {
		t.Errorf("not every fault: %+v", p.Errors)
	}
}

func TestListsShowNothingOfOtherTenants(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	w.do("POST", "/jobs", oneChunk, as("t2")...)
	for token, want := range map[string][]string{"t1": {job(1)}, "t2": {job(2)}, "op": {job(2), job(1)}} {
		if got, _ := w.do("GET", "/jobs", "", as(token)...).page(t, "jobs", "jobId"); !slices.Equal(got, want) {
			t.Errorf("%s sees %v", token, got)
		}
	}
	if got, _ := w.do("GET", "/jobs?tenant=one", "", as("op")...).page(t, "jobs", "jobId"); !slices.Equal(got, []string{job(1)}) {
		t.Errorf("the operator sees %v of one", got)
	}
	if got, _ := w.do("GET", "/jobs?tenant=two", "", as("t2")...).page(t, "jobs", "jobId"); len(got) != 1 {
		t.Errorf("its own tenant: %v", got)
	}
	w.do("GET", "/jobs?tenant=one", "", as("t2")...).problem(t, 403, "forbidden")
	w.do("GET", "/jobs", "").problem(t, 401, "unauthorized")
	for _, path := range []string{"/chunks", "/chunks/key=ABC:date=20250215"} {
		w.do("GET", first+path, "", as("t2")...).problem(t, 404, "not-found")
		w.do("GET", first+path, "").problem(t, 401, "unauthorized")
		if a := w.do("GET", first+path, "", as("t1")...); a.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
		}
	}
}

func TestChunksAreListedAndFiltered(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", `{"items":[{"key":"A","effectiveDates":["20250101","20250102","20250103"]},{"key":"B/%:","effectiveDates":["20250101"]}]}`)
	retry := day.Add(time.Minute)
	w.store.changeChunk(job(1), 1, func(c *export.ChunkView) {
		c.Status, c.Attempts, c.StartedAt, c.CompletedAt, c.ObjectKey, c.Superseded = export.Done, 2, &day, &day, "exports/2025/01/02/A_20250102.csv", true
		c.Facts = export.Facts{Rows: 0, Bytes: 7, SHA256: "abc"}
	})
	w.store.changeChunk(job(1), 2, func(c *export.ChunkView) {
		c.Status, c.Attempts, c.NextRetryAt, c.ErrorCode, c.Error = export.RetryWait, 1, &retry, "STALLED", "no byte"
	})
	names, cursor := w.do("GET", first+"/chunks?limit=3", "").page(t, "chunks", "chunkKey")
	rest, end := w.do("GET", first+"/chunks?limit=3&cursor="+cursor, "").page(t, "chunks", "chunkKey")
	want := []string{"key=A:date=20250101", "key=A:date=20250102", "key=A:date=20250103", "key=B/%::date=20250101"}
	if diff := cmp.Diff(want, append(names, rest...)); diff != "" || end != "" {
		t.Errorf("%s %q", diff, end)
	}
	for query, want := range map[string]int{"status=DONE": 1, "status=DLQ": 0, "key=A": 3, "key=B%2F%25%3A": 1, "key=A&status=PENDING": 1, "key=C": 0} {
		if got, _ := w.do("GET", first+"/chunks?"+query, "").page(t, "chunks", "chunkKey"); len(got) != want {
			t.Errorf("%s: got %v", query, got)
		}
	}
	chunks := w.do("GET", first+"/chunks", "").json(t)["chunks"].([]any)
	diff := cmp.Diff([]any{
		map[string]any{
			"chunkKey": "key=A:date=20250102", "key": "A", "effectiveDate": "20250102", "status": "DONE", "attemptCount": 2., "nextRetryAt": nil,
			"startedAt": "2026-01-02T10:00:00.000Z", "completedAt": "2026-01-02T10:00:00.000Z", "s3Path": "s3://bucket/exports/2025/01/02/A_20250102.csv",
			"rowCount": 0., "byteCount": 7., "checksum": "abc", "reused": false, "superseded": true, "errorCode": nil, "errorMessage": nil,
		},
		map[string]any{
			"chunkKey": "key=A:date=20250103", "key": "A", "effectiveDate": "20250103", "status": "RETRY_WAIT", "attemptCount": 1., "nextRetryAt": "2026-01-02T10:01:00.000Z",
			"startedAt": nil, "completedAt": nil, "s3Path": nil, "rowCount": nil, "byteCount": nil, "checksum": nil, "reused": false, "superseded": false,
			"errorCode": "STALLED", "errorMessage": "no byte",
		},
	}, chunks[1:3])
	if diff != "" {
		t.Error(diff)
	}
}

func TestAChunkIsShownWithItsAttempts(t *testing.T) {
	t.Parallel()
	w := setup(t, tenants(t))
	w.do("POST", "/jobs", `{"items":[{"key":"a/%:+b","effectiveDates":["20250101"]}]}`, as("t1")...)
	s := w.store.all()[0]
	ended := day.Add(time.Second)
	s.attempts[s.chunks[0].ChunkKey()] = []export.Attempt{
		{Number: 1, Worker: "w-1", StartedAt: &day, EndedAt: &ended, Outcome: "RETRY", ErrorCode: "STALLED", Error: "no byte"},
		{Number: 2, Worker: "w-2", StartedAt: &ended, Outcome: "RUNNING"},
	}
	path := first + "/chunks/" + url.PathEscape(s.chunks[0].ChunkKey())
	got := w.do("GET", path, "", as("t1")...).json(t)
	want := []any{
		map[string]any{"number": 1., "started": "2026-01-02T10:00:00.000Z", "ended": "2026-01-02T10:00:01.000Z", "outcome": "RETRY", "errorCode": "STALLED", "error": "no byte"},
		map[string]any{"number": 2., "started": "2026-01-02T10:00:01.000Z", "ended": nil, "outcome": "RUNNING", "errorCode": nil, "error": nil},
	}
	if diff := cmp.Diff(want, got["attempts"]); diff != "" || got["key"] != "a/%:+b" || got["status"] != "PENDING" {
		t.Errorf("%v %s", got, diff)
	}
	if a := w.do("GET", path, "", as("op")...); !strings.Contains(string(a.body), `"worker":"w-2"`) {
		t.Errorf("the operator sees %s", a.body)
	}
	for _, other := range []string{"key=A:date=20250101", "x", "key=A:date=20250230", "key=%00:date=20250101", "key=%FF:date=20250101"} {
		w.do("GET", first+"/chunks/"+other, "", as("t1")...).problem(t, 404, "not-found")
	}
}
