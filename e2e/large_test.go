package e2e

import (
	"testing"
	"time"

	"exportd/db"
	"exportd/e2e/stack"
	"exportd/export"
	"exportd/s3out"
)

// A large file streams: a consumer holds parts of it, never the whole. The speed beside that of the same query put straight into the same store is only logged:
//
//	go test ./e2e -run MillionRows -v
func TestAMillionRowsStreamThroughABoundedMemory(t *testing.T) {
	w := setup(t, own{plain: true}) // the race detector takes several times the memory
	const key, defaults = "ROWS_1000000", "EXPORTD_PART_SIZE=8MiB"
	w.startAPI()
	consumer := w.startConsumer(defaults, "EXPORTD_CONCURRENCY=8")
	job := w.completed(stack.Submission{Items: items(key)})
	peak, err := consumer.PeakMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows, %d bytes, peak memory %d MiB", job.RowCount, job.ByteCount, peak>>20)
	if job.RowCount != 1_000_000 || peak > 100<<20 {
		t.Errorf("peak memory %d MiB; %+v", peak>>20, job)
	}
	through := time.Duration(w.number(`select (extract(epoch from completed_at - started_at) * 1000)::int from job_chunk`)) * time.Millisecond
	w.checkInvariants()
	if !raceDetector() {
		straight := w.straight(key)
		t.Logf("through exportd %s, straight %s: %.2f of its speed", through, straight, straight.Seconds()/through.Seconds())
	}
}

// straight takes the time of the rows' way into the bucket without jobs, claims and messages.
func (w *world) straight(key string) time.Duration {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	source, err := db.OpenSource(ctx, db.SourceConfig{URL: w.Database, Function: "export_rows"})
	if err != nil {
		w.t.Fatal(err)
	}
	defer source.Close()
	bucket := w.bucket()
	if _, err := bucket.SelfTest(ctx); err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	up := bucket.NewUpload(ctx, s3out.UploadOptions{Key: "straight", ContentType: "text/csv"})
	if _, err := source.Export(ctx, key, export.Date(20200131), up); err != nil {
		w.t.Fatal(err)
	}
	if _, _, err := up.Finish(ctx); err != nil {
		w.t.Fatal(err)
	}
	if _, err := up.Commit(ctx, s3out.Condition{}, nil); err != nil {
		w.t.Fatal(err)
	}
	return time.Since(began)
}
