package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Janitor removes what processes left in the bucket that were killed between a request to it and the note of its answer: multipart uploads of which
// nobody knows, and probe objects. Every consumer runs one; they may work at once.
type Janitor struct {
	Store interface {
		// UploadsInUse says which of the uploads belong to claims that have not ended: whoever takes those over needs them.
		UploadsInUse(ctx context.Context, ids []string) ([]string, error)
	}
	Bucket interface {
		// OldUploads lists multipart uploads begun at least age ago, by the clock of the bucket.
		OldUploads(ctx context.Context, prefix string, age time.Duration) ([]OpenUpload, error)
		AbortUpload(ctx context.Context, key, uploadID string) error
		RemoveOldProbes(ctx context.Context, age time.Duration) error
	}
	BasePath     string
	ChunkTimeout time.Duration
	Lease        time.Duration
	Log          *slog.Logger
}

// age is more than what is under way can reach, be it a chunk or a manifest.
func (j *Janitor) age() time.Duration { return max(j.ChunkTimeout, pinStuck) + j.Lease }

// OpenUpload is a multipart upload that was neither completed nor aborted.
type OpenUpload struct{ Key, ID string }

// Run tidies up, several times in the age of what it removes, until ctx ends.
func (j *Janitor) Run(ctx context.Context) {
	pause := min(j.age()/4, 10*time.Minute)
	for sleep(ctx, pause-rand.N(pause/4+1)) {
		if err := j.Tidy(ctx); err != nil && ctx.Err() == nil {
			j.Log.Warn("tidy up the bucket", "error", err)
		}
	}
}

// Tidy does it once.
func (j *Janitor) Tidy(ctx context.Context) error {
	old, err := j.Bucket.OldUploads(ctx, strings.Trim(j.BasePath, "/")+"/", j.age())
	if err != nil {
		return err
	}
	var errs []error
	if len(old) > 0 {
		ids := make([]string, len(old))
		for i, u := range old {
			ids[i] = u.ID
		}
		used, err := j.Store.UploadsInUse(ctx, ids)
		if err != nil {
			return err
		}
		for _, u := range old {
			if slices.Contains(used, u.ID) {
				continue
			}
			err := j.Bucket.AbortUpload(ctx, u.Key, u.ID)
			if err == nil {
				j.Log.Warn("aborted a multipart upload that nobody ended", "key", u.Key, "uploadId", u.ID)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, j.Bucket.RemoveOldProbes(ctx, j.age()))...)
}
