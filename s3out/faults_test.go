package s3out_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exportd/export"
	"exportd/s3out"
	"exportd/s3out/s3test"
)

// behindProxy gives a store whose requests to the real S3 pass a proxy. Its self-test has passed.
func behindProxy(t *testing.T, change ...func(*s3out.Config)) (*s3out.Store, *proxy) {
	t.Helper()
	cfg := s3test.Config(t)
	p := newProxy(t, cfg.Endpoint)
	cfg.Endpoint, cfg.PartSize = p.endpoint, partSize
	for _, c := range change {
		c(&cfg)
	}
	s := open(t, cfg)
	if _, err := s.SelfTest(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, p
}

// once makes a fault happen to the first request that matches.
func once(match func(*http.Request) bool, f fault) fault {
	var done atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if match(r) && done.CompareAndSwap(false, true) {
			f(w, r, forward)
			return
		}
		forward.ServeHTTP(w, r)
	}
}

func always(match func(*http.Request) bool, f fault) fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		if match(r) {
			f(w, r, forward)
			return
		}
		forward.ServeHTTP(w, r)
	}
}

// H5-54.
func TestARequestRefusedAfterItsBodyIsRepeatedFromTheBuffer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match func(*http.Request) bool
		size  int
	}{"PutObject": {isPut, 100_000}, "UploadPart": {isPart, 3*partSize + 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := behindProxy(t)
			p.use(once(c.match, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				io.Copy(io.Discard, r.Body)
				answerError(w, http.StatusInternalServerError, "InternalError")
			}))
			data := content(c.size)
			upload(t, s, "exports/repeated", data, s3out.Condition{})
			wantContents(t, s, "exports/repeated", data)
		})
	}
}

func TestALostAnswerOfTheLastStepIsAmbiguousOrFindsItsOwnWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match func(*http.Request) bool
		size  int
	}{"PutObject": {isPut, 100_000}, "CompleteMultipartUpload": {isComplete, partSize + 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := behindProxy(t)
			drop := func(_ http.ResponseWriter, r *http.Request, forward http.Handler) { dropAnswer(r, forward) }
			data := content(c.size)
			for key, f := range map[string]fault{"exports/once": once(c.match, drop), "exports/always": always(c.match, drop)} {
				p.use(f)
				u := start(t, s, s3out.UploadOptions{Key: key, Metadata: map[string]string{"claim": "mine"}}, data)
				finish(t, u)
				_, err := u.Commit(t.Context(), s3out.Condition{}, nil)
				var e interface {
					Ambiguous() bool
					Precondition() bool
				}
				switch {
				case err == nil && key == "exports/once" && c.size > partSize: // some stores repeat the answer to a Complete
				case !errors.As(err, &e) || !e.Ambiguous() && !e.Precondition():
					t.Fatalf("Commit to %s = %v, want an ambiguous error or a failed condition", key, err)
				case key == "exports/always" && !e.Ambiguous():
					t.Errorf("no answer ever came, yet Commit = %v", err)
				default:
					if f := export.FailureOf(err); f.Class == export.Permanent || f.Code == export.CodeInternal {
						t.Errorf("%s: %v (%s)", key, f.Class, f.Code)
					}
				}
				p.use(nil)
				if info, found := head(t, s, key); !found || info.Metadata["claim"] != "mine" {
					t.Errorf("the object is not there: %+v", info)
				}
				abort(t, u)
				wantContents(t, s, key, data)
			}
		})
	}
}

func TestAnErrorInOrAfterTheHeadOfAGoodAnswerIsAmbiguous(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	for name, f := range map[string]func(http.ResponseWriter){
		"cut": func(w http.ResponseWriter) {
			w.Write([]byte(`<?xml version="1.0"?><CompleteMultipartUploadResult><Buck`))
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"error": func(w http.ResponseWriter) { answerError(w, http.StatusOK, "InternalError") },
	} {
		p.use(always(isComplete, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { f(w) }))
		u := start(t, s, s3out.UploadOptions{Key: "exports/" + name}, content(partSize+1))
		finish(t, u)
		_, err := u.Commit(t.Context(), s3out.Condition{}, nil)
		var e *s3out.CommitError
		if !errors.As(err, &e) || !e.Ambiguous() {
			t.Errorf("%s: Commit = %v", name, err)
		}
		p.use(nil)
		abort(t, u)
	}
}

func TestARefusalIsNotAmbiguous(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	for _, c := range []struct {
		status int
		code   string
		class  export.Class
		want   string
	}{
		{http.StatusForbidden, "AccessDenied", export.Permanent, "S3_ACCESS_DENIED"},
		{http.StatusServiceUnavailable, "SlowDown", export.Outage, "S3_SLOW_DOWN"},
		{http.StatusNotFound, "NoSuchBucket", export.Permanent, "S3_NO_SUCH_BUCKET"},
	} {
		p.use(always(isPut, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			answerError(w, c.status, c.code)
		}))
		u := start(t, s, s3out.UploadOptions{Key: "exports/refused"}, content(10))
		finish(t, u)
		_, err := u.Commit(t.Context(), s3out.Condition{IfMatch: `"x"`}, nil)
		var e *s3out.CommitError
		f := export.FailureOf(err)
		if errors.As(err, &e) || f.Class != c.class || f.Code != c.want {
			t.Errorf("%s: Commit = %T %v (%v, %s)", c.code, err, err, f.Class, f.Code)
		}
	}
}

func TestAStalledStoreStopsMovingAndLetsGoWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	p.use(always(isPart, func(http.ResponseWriter, *http.Request, http.Handler) {
		arrived <- struct{}{}
		<-release // neither reads nor answers
		panic(http.ErrAbortHandler)
	}))
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	u := s.NewUpload(ctx, s3out.UploadOptions{Key: "exports/stalled"})
	written := make(chan error)
	go func() {
		_, err := u.Write(content(4 * partSize))
		written <- err
	}()
	<-arrived
	select {
	case err := <-written:
		t.Fatalf("Write went on: %v", err)
	default:
	}
	if u.Moved() >= partSize {
		t.Errorf("%d bytes moved into a store that reads none", u.Moved())
	}
	cancel()
	if err := <-written; !errors.Is(err, context.Canceled) {
		t.Errorf("Write = %v", err)
	}
	p.use(nil)
	abort(t, u)
	wantNoUploads(t, s)
	if u.Moved() != 0 {
		t.Errorf("%d bytes moved, want those of the cut part taken back", u.Moved())
	}
}

func TestAnUploadCreatedWhileItsContextEndsIsAbortedToo(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	p.use(once(func(r *http.Request) bool { return r.URL.Query().Has("uploads") }, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		close(arrived)
		<-release
		forward.ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	u := s.NewUpload(ctx, s3out.UploadOptions{Key: "exports/created"})
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := u.Write(content(partSize + 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Write = %v", err)
	}
	close(release) // Write has returned before
	abort(t, u)
	wantNoUploads(t, s)
}

func TestAStoreThatNeverAnswersTheLastStepIsAmbiguousWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	arrived := make(chan struct{}, 1)
	p.use(always(isPut, func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	u := start(t, s, s3out.UploadOptions{Key: "exports/silent"}, content(10))
	finish(t, u)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := u.Commit(ctx, s3out.Condition{}, nil)
	var e *s3out.CommitError
	if !errors.As(err, &e) || !e.Ambiguous() || !errors.Is(err, context.Canceled) {
		t.Errorf("Commit = %v", err)
	}
}

// H5-42.
func TestAfterAStormOfSlowDownEverythingWorksAtOnce(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	p.use(always(func(r *http.Request) bool { return r.Method == http.MethodPut }, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		answerError(w, http.StatusServiceUnavailable, "SlowDown")
	}))
	put := func(i int) error {
		_, err := s.PutSmall(t.Context(), "exports/storm/"+string(rune('A'+i)), "text/plain", []byte("x"), nil, s3out.Condition{})
		return err
	}
	const workers = 32
	var storm sync.WaitGroup
	for i := range workers {
		storm.Go(func() {
			for range 3 { // 192 repeats: the SDK's bucket would be empty after a hundred
				f := export.FailureOf(put(i))
				if f.Class != export.Outage || f.Code != "S3_SLOW_DOWN" || f.Dependency != "s3" {
					t.Errorf("during the storm: %v (%v, %s)", f, f.Class, f.Code)
				}
			}
		})
	}
	storm.Wait()
	p.use(once(isPut, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		answerError(w, http.StatusServiceUnavailable, "SlowDown") // still repeated by the SDK
	}))
	for i := range workers {
		if err := put(i); err != nil {
			t.Fatalf("after the storm: %v", err)
		}
	}
}

// H5-53.
func TestAStoreThatRefusesChecksumHeadersGetsNone(t *testing.T) {
	t.Parallel()
	cfg := s3test.Config(t)
	p := newProxy(t, cfg.Endpoint)
	p.use(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		for k, v := range r.Header {
			if strings.HasPrefix(k, "X-Amz-Checksum-") || k == "X-Amz-Sdk-Checksum-Algorithm" || k == "X-Amz-Trailer" ||
				strings.Contains(v[0], "aws-chunked") || strings.HasPrefix(v[0], "STREAMING-") {
				io.Copy(io.Discard, r.Body)
				answerError(w, http.StatusNotImplemented, "NotImplemented")
				return
			}
		}
		forward.ServeHTTP(w, r)
	})
	cfg.Endpoint, cfg.PartSize = p.endpoint, partSize
	s := open(t, cfg)
	for key, size := range map[string]int{"exports/single": 1000, "exports/multipart": 2*partSize + 1} {
		data := content(size)
		upload(t, s, key, data, s3out.Condition{})
		wantContents(t, s, key, data)
	}
	if caps, err := s.SelfTest(t.Context()); err != nil || caps.Checksums || !caps.ConditionalPut || !caps.ConditionalComplete {
		t.Errorf("SelfTest = %+v, %v", caps, err)
	}
}

func TestDamagedBytesAreRefusedByTheStore(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	p.use(always(func(r *http.Request) bool { return isPut(r) || isPart(r) }, func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
		r.Body = &flipped{ReadCloser: r.Body}
		forward.ServeHTTP(w, r)
	}))
	u := start(t, s, s3out.UploadOptions{Key: "exports/damaged"}, content(1000))
	finish(t, u)
	_, err := u.Commit(t.Context(), s3out.Condition{}, nil)
	if f := export.FailureOf(err); err == nil || f.Code != "S3_BAD_DIGEST" || f.Class != export.Transient {
		t.Errorf("Commit = %v (%s)", err, f.Code)
	}
	if _, found := head(t, s, "exports/damaged"); found {
		t.Error("the damaged object is there")
	}
}

// flipped changes the first byte that comes through.
type flipped struct {
	io.ReadCloser
	done bool
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if n > 0 && !f.done {
		p[0] ^= 1
		f.done = true
	}
	return n, err
}

// H5-52.
func TestHeadTellsAbsentFromForbidden(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	upload(t, s, "exports/there", []byte("x"), s3out.Condition{})
	for _, c := range []struct {
		name   string
		status int
		get    string // code that GET explains with; "" forwards it
		class  export.Class
		code   string
	}{
		{"forbidden", http.StatusForbidden, "AccessDenied", export.Permanent, "S3_ACCESS_DENIED"},
		{"expired", http.StatusBadRequest, "ExpiredToken", export.Transient, "S3_EXPIRED_TOKEN"},
		{"redirect", http.StatusMovedPermanently, "", export.Permanent, "S3_HTTP_301"},
		{"away", http.StatusServiceUnavailable, "", export.Outage, "S3_SERVICE_UNAVAILABLE"},
	} {
		p.use(func(w http.ResponseWriter, r *http.Request, forward http.Handler) {
			switch {
			case r.Method == http.MethodHead:
				w.WriteHeader(c.status)
			case r.Method == http.MethodGet && c.get != "":
				answerError(w, c.status, c.get)
			default:
				forward.ServeHTTP(w, r)
			}
		})
		_, found, err := s.Head(t.Context(), "exports/there")
		f := export.FailureOf(err)
		if err == nil || found || f.Class != c.class || f.Code != c.code {
			t.Errorf("%s: found %v, %v (%v, %s)", c.name, found, err, f.Class, f.Code)
		}
	}
}

func TestAPartNumberThatTheStoreRefusesIsPermanent(t *testing.T) {
	t.Parallel()
	s, p := behindProxy(t)
	p.use(always(func(r *http.Request) bool { return isPart(r) && r.URL.Query().Get("partNumber") > "3" }, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		answerError(w, http.StatusBadRequest, "InvalidArgument")
	}))
	u := s.NewUpload(t.Context(), s3out.UploadOptions{Key: "exports/large"})
	_, err := u.Write(content(4*partSize + 1)) // the fourth part is on its way
	for deadline := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_, err = u.Write([]byte("x")) // far from filling another
	}
	if f := export.FailureOf(err); err == nil || f.Class != export.Permanent || f.Code != "S3_INVALID_ARGUMENT" {
		t.Errorf("Write = %v (%s)", err, f.Code)
	}
	abort(t, u)
	wantNoUploads(t, s)
}

func TestAFailedSelfTestIsTriedAgainByTheNextUpload(t *testing.T) {
	t.Parallel()
	cfg := s3test.Config(t)
	p := newProxy(t, cfg.Endpoint)
	p.use(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		answerError(w, http.StatusForbidden, "AccessDenied")
	})
	cfg.Endpoint = p.endpoint
	s := open(t, cfg)
	u := start(t, s, s3out.UploadOptions{Key: "exports/later"}, []byte("x"))
	if _, _, err := u.Finish(t.Context()); export.FailureOf(err).Code != "S3_ACCESS_DENIED" {
		t.Errorf("Finish = %v", err)
	}
	p.use(nil)
	upload(t, s, "exports/later", []byte("x"), s3out.Condition{})
	before := len(p.requests())
	upload(t, s, "exports/more", []byte("x"), s3out.Condition{})
	if n := len(p.requests()) - before; n != 1 {
		t.Errorf("an upload of one part took %d requests", n)
	}
}
