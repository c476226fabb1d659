package s3out_test

import (
	"context"
	"testing"
	"time"

	"exportd/s3out"
)

func TestLeftoversOfACertainAgeAreFoundAndRemoved(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		const key, probe = "exports/left", "exports/_probe/left"
		id := ""
		up := s.NewUpload(t.Context(), s3out.UploadOptions{Key: key, Created: func(_ context.Context, uploadID string) error {
			id = uploadID
			return nil
		}})
		defer up.Abort(t.Context())
		if _, err := up.Write(make([]byte, partSize+1)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.PutSmall(t.Context(), probe, "text/plain", []byte("left"), nil, s3out.Condition{}); err != nil {
			t.Fatal(err)
		}
		old := func(age time.Duration) (uploads []string, probes bool) {
			for u, err := range s.OldUploads(t.Context(), "exports/", age) {
				if err != nil {
					t.Fatal(err)
				}
				uploads = append(uploads, u.UploadID)
			}
			if err := s.RemoveOldProbes(t.Context(), age); err != nil {
				t.Fatal(err)
			}
			_, probes, err := s.Head(t.Context(), probe)
			if err != nil {
				t.Fatal(err)
			}
			return uploads, probes
		}
		if uploads, probes := old(time.Minute); len(uploads) > 0 || !probes {
			t.Errorf("too young, and yet: uploads %q, probe object still there: %t", uploads, probes)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			uploads, probes := old(time.Second)
			if len(uploads) == 1 && uploads[0] == id && !probes {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("uploads %q, want %q; probe object still there: %t", uploads, id, probes)
			}
		}
	})
}
