package e2e

import (
	"testing"

	"exportd/e2e/stack"
	"exportd/export"
)

func TestFilesAreWhatCopyGivesInEveryCompression(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	dates := []string{"20200131", "20240229", "20251231"}
	all := []stack.Item{
		{Key: "ROWS_1", EffectiveDates: dates}, {Key: "ROWS_5000", EffectiveDates: dates}, {Key: "EMPTY", EffectiveDates: dates[:1]},
		{Key: "NASTY", EffectiveDates: dates}, {Key: "BIG_12", EffectiveDates: dates[:1]},
		{Key: `ROWS_3 a/b+c%2F"d'e\é`, EffectiveDates: dates[:1]}, {Key: "ROWS_2:date=20200101", EffectiveDates: dates[:1]},
	}
	for _, compression := range []string{"NONE", "GZIP", "ZSTD"} {
		job := w.completed(stack.Submission{Items: all, Output: &stack.Output{Compression: compression}})
		if job.Total != 13 || job.Done != 13 || job.FilesGenerated != 13 || job.RowCount != 3+15000+12+12288+3+2 {
			t.Errorf("%s: got %+v", compression, job)
		}
	}
	if n := w.number(`select count(*) from job_chunk where attempts <> 1`); n > 0 {
		t.Errorf("%d chunks needed more than one attempt", n)
	}
	key := export.ObjectKey(w.S3.BasePath, "ROWS_1", 20240229, export.None)
	o, found, err := w.bucket().Head(t.Context(), key)
	if err != nil || !found || o.ContentType != "text/csv; charset=utf-8" || o.Metadata["rows"] != "1" || len(o.Metadata["sha256"]) != 64 {
		t.Errorf("%s: %+v, %v, %v", key, o, found, err)
	}
	if key != "exports/2024/02/29/ROWS_1_20240229.csv" {
		t.Errorf("the key is %s", key)
	}
	w.checkInvariants()
}
