package api_test

import (
	"testing"

	"exportd/api"
	"exportd/export"
)

func TestHostileRequestsAreRefusedAndStoreNothing(t *testing.T) {
	t.Parallel()
	withTokens := tenants(t)
	w := setup(t, func(c *api.Config) { withTokens(c); c.MaxBody = 8 << 20 })
	w.do("POST", "/jobs", oneChunk, as("t1")...)
	w.store.change(job(1), func(j *export.Job) { j.Status, j.Pending, j.Done = export.Completed, 0, 1 })
	attacks := served().Attacks(map[string]string{"jobId": job(1), "chunkKey": "key=ABC:date=20250215"})
	if len(attacks) < 2500 {
		t.Errorf("only %d attacks", len(attacks))
	}
	for _, fault := range served().Storm(attacks, w.addr, nil, "Authorization: Bearer op") {
		t.Error(fault)
	}
	if all := w.store.all(); len(all) != 1 || all[0].job.Status != export.Completed {
		t.Errorf("%d jobs: %+v", len(all), all)
	}
}
