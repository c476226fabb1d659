package s3out_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"exportd/export"
	"exportd/s3out"
)

// A buffer that went back to the pool while a request still read it would send another upload's bytes, which the store's look at the checksum
// turns into BadDigest, and the race detector into a race.
func TestBuffersAreNotReusedWhileARequestReadsThem(t *testing.T) {
	t.Parallel()
	p := newProxy(t, embeddedS3(t).Endpoint())
	s := openEmbedded(t, p.endpoint)
	if _, err := s.SelfTest(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.use(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if r.Method == http.MethodPut {
			switch rand.IntN(6) {
			case 0: // an answer before the body was read
				answerError(w, http.StatusInternalServerError, "InternalError")
				return
			case 1: // the connection breaks in the middle of the body
				io.CopyN(io.Discard, r.Body, 20_000)
				panic(http.ErrAbortHandler)
			}
		}
		forward.ServeHTTP(w, r)
	})
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		written = map[string][]byte{}
	)
	for i := range 16 {
		workers.Go(func() {
			for j := range 6 {
				key, data := fmt.Sprintf("exports/%d-%d", i, j), content(rand.IntN(4*smallPart))
				etag, err := tryUpload(t.Context(), s, key, data, rand.IntN(3) == 0)
				if err == nil && etag != "" {
					mu.Lock()
					written[key] = data
					mu.Unlock()
				}
				if err != nil && export.FailureOf(err).Code == "S3_BAD_DIGEST" {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	workers.Wait()
	p.use(nil)
	if len(written) == 0 {
		t.Fatal("no upload went through")
	}
	for key, data := range written {
		if !bytes.Equal(read(t, s, key), data) {
			t.Errorf("%s holds other bytes", key)
		}
	}
	wantNoUploads(t, s)
}

// tryUpload ends its context in the middle of things if told to.
func tryUpload(ctx context.Context, s *s3out.Store, key string, data []byte, cancelled bool) (etag string, err error) {
	if cancelled {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		defer cancel()
	}
	u := s.NewUpload(ctx, s3out.UploadOptions{Key: key})
	defer u.Abort(ctx)
	if _, err := u.Write(data); err != nil {
		return "", err
	}
	if _, _, err := u.Finish(ctx); err != nil {
		return "", err
	}
	return u.Commit(ctx, s3out.Condition{}, nil)
}
