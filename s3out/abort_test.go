package s3out_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"exportd/s3out"
)

// The store would go on receiving a part that was cut off, for who knows how long, and keep the upload for it that was aborted meanwhile.
func TestAPartOnItsWayArrivesBeforeItsUploadIsAborted(t *testing.T) {
	p := newProxy(t, embeddedS3(t).Endpoint())
	s := openEmbedded(t, p.endpoint)
	begun, gate, status := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	p.use(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if !isPart(r) || !strings.HasSuffix(r.URL.Path, "/late") {
			forward.ServeHTTP(w, r)
			return
		}
		close(begun)
		<-gate
		rec := httptest.NewRecorder()
		forward.ServeHTTP(rec, r)
		status <- rec.Code
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes())
	})
	ctx, cancel := context.WithCancel(t.Context())
	u := s.NewUpload(ctx, s3out.UploadOptions{Key: "exports/late"})
	if _, err := u.Write(content(s.PartSize() + 1)); err != nil {
		t.Fatal(err)
	}
	<-begun
	cancel()
	if _, err := u.Write(content(2 * s.PartSize())); !errors.Is(err, context.Canceled) {
		t.Errorf("Write waits for the part after the end of its context: %v", err)
	}
	close(gate)
	abort(t, u)
	if code := <-status; code != http.StatusOK {
		t.Errorf("the part was cut off: %d", code)
	}
	wantNoUploads(t, s)
	for _, r := range p.requests() {
		if strings.HasSuffix(r.path, "/late") && r.query.Get("partNumber") > "1" {
			t.Error("a further part was sent")
		}
	}
}

func TestAPartThatDoesNotArriveIsCutOffByAnAbort(t *testing.T) {
	p := newProxy(t, embeddedS3(t).Endpoint())
	s := openEmbedded(t, p.endpoint)
	cut := make(chan struct{})
	p.use(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if !isPart(r) || !strings.HasSuffix(r.URL.Path, "/never") {
			forward.ServeHTTP(w, r)
			return
		}
		io.Copy(io.Discard, r.Body) // the end of a connection is noticed only after it
		<-r.Context().Done()
		close(cut)
	})
	u := s.NewUpload(t.Context(), s3out.UploadOptions{Key: "exports/never"})
	if _, err := u.Write(content(s.PartSize() + 1)); err != nil {
		t.Fatal(err)
	}
	abort(t, u)
	<-cut
	wantNoUploads(t, s)
}
