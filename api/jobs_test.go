package api_test

import (
	"strings"
	"testing"
	"time"

	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

func TestGetShowsTheJob(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	started := day.Add(123456 * time.Microsecond)
	w.store.change("J20260102_000001", func(j *export.Job) {
		*j = export.Job{
			ID: j.ID, Tenant: j.Tenant, Status: export.Failed, Run: 1, Total: 21, Pending: 1, Running: 2, Retrying: 3, Done: 4, Failed: 5, Cancelled: 6,
			FilesGenerated: 3, FilesReused: 1, RowCount: 1 << 40, ByteCount: 1 << 41, ErrorMessage: "Chunk failed <b>",
			CreatedAt: day, UpdatedAt: day.Add(time.Minute), StartedAt: &started, CompletedAt: &day,
		}
	})
	a := w.do("GET", "/jobs/J20260102_000001", "")
	want := map[string]any{
		"jobId": "J20260102_000001", "status": "FAILED", "total": 21., "pending": 1., "running": 2., "retrying": 3., "done": 4., "failed": 5.,
		"cancelled": 6., "filesGenerated": 3., "filesReused": 1., "rowCount": float64(1 << 40), "byteCount": float64(1 << 41),
		"s3BasePath": "s3://bucket/exports", "errorMessage": "Chunk failed <b>", "createdAt": "2026-01-02T10:00:00.000Z",
		"updatedAt": "2026-01-02T10:01:00.000Z", "startedAt": "2026-01-02T10:00:00.123Z", "completedAt": "2026-01-02T10:00:00.000Z",
	}
	if diff := cmp.Diff(want, a.json(t)); diff != "" || a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, diff)
	}
	for _, path := range []string{"/jobs/J20260102_000002", "/jobs/x", "/jobs/a%2Fb", "/jobs/J20260102_000001%00"} {
		w.do("GET", path, "").problem(t, 404, "not-found")
	}
}

func TestUnchangedJobIsA304(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	w.do("POST", "/jobs", oneChunk)
	a := w.do("GET", "/jobs/J20260102_000001", "")
	tag := a.Header.Get("ETag")
	if !strings.HasPrefix(tag, `W/"`) || a.Header.Get("Cache-Control") != "private, no-cache" {
		t.Fatalf("%v", a.Header)
	}
	for _, match := range []string{tag, strings.TrimPrefix(tag, "W/"), `"x", ` + tag, "*"} {
		if b := w.do("GET", "/jobs/J20260102_000001", "", "If-None-Match", match); b.StatusCode != 304 || len(b.body) != 0 || b.Header.Get("ETag") != tag {
			t.Errorf("%s: %d %v %s", match, b.StatusCode, b.Header, b.body)
		}
	}
	w.store.change("J20260102_000001", func(j *export.Job) { j.Pending, j.Running = 0, 1 }) // UpdatedAt does not move with the counts
	if b := w.do("GET", "/jobs/J20260102_000001", "", "If-None-Match", tag); b.StatusCode != 200 || b.Header.Get("ETag") == tag {
		t.Errorf("after a change: %d", b.StatusCode)
	}
}
