package s3out_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"exportd/s3out"
	"exportd/s3out/embedded"
	"exportd/s3out/locals3"
	"exportd/s3out/s3test"
)

// suite stops the S3 before the look for leaks.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer s3test.Stop()
	return s.M.Run()
}

func TestMain(m *testing.M) {
	if os.Getenv("AWS_ACCESS_KEY_ID") == "" { // the embedded S3 takes any, but the SDK wants some
		os.Setenv("AWS_ACCESS_KEY_ID", locals3.AccessKey)
		os.Setenv("AWS_SECRET_ACCESS_KEY", locals3.SecretKey)
	}
	goleak.VerifyTestMain(suite{m})
}

const (
	partSize  = 5 << 20 // the least that S3 takes
	smallPart = 100_000 // of stores that do not mind
)

// everyStore runs a test on a fresh bucket of the real S3, of the embedded one, and of one that ignores conditions.
func everyStore(t *testing.T, test func(t *testing.T, s *s3out.Store)) {
	t.Parallel()
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, s3test.Open(t, func(c *s3out.Config) { c.PartSize = partSize }))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, openEmbedded(t, embeddedS3(t).Endpoint()))
	})
	t.Run("unconditional", func(t *testing.T) {
		t.Parallel()
		p := newProxy(t, embeddedS3(t).Endpoint())
		p.use(ignoreConditions)
		test(t, openEmbedded(t, p.endpoint))
	})
}

func embeddedS3(t testing.TB) *embedded.Server { return listen(t, t.TempDir()) }

func listen(t testing.TB, dir string) *embedded.Server {
	t.Helper()
	e, err := embedded.Listen("127.0.0.1:0", dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func openEmbedded(t testing.TB, endpoint string) *s3out.Store {
	t.Helper()
	s := open(t, s3out.Config{Bucket: "bucket", BasePath: "exports", Endpoint: endpoint, CreateBucket: true})
	s.SetPartSize(smallPart)
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func open(t testing.TB, cfg s3out.Config) *s3out.Store {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	s, err := s3out.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// content is n bytes that differ from block to block.
func content(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return b
}

// start begins an upload and writes data in pieces of odd sizes.
func start(t testing.TB, s *s3out.Store, opts s3out.UploadOptions, data []byte) *s3out.Upload {
	t.Helper()
	u := s.NewUpload(t.Context(), opts)
	t.Cleanup(func() { abort(t, u) })
	for len(data) > 0 {
		n := min(len(data), 1+rand.IntN(150_000))
		if wrote, err := u.Write(data[:n]); err != nil || wrote != n {
			t.Fatalf("Write(%d bytes) = %d, %v", n, wrote, err)
		}
		data = data[n:]
	}
	return u
}

func finish(t testing.TB, u *s3out.Upload) (bytes int64, sha string) {
	t.Helper()
	bytes, sha, err := u.Finish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return bytes, sha
}

func commit(t testing.TB, u *s3out.Upload, c s3out.Condition) (etag string) {
	t.Helper()
	etag, err := u.Commit(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return etag
}

func abort(t testing.TB, u *s3out.Upload) {
	t.Helper()
	if err := u.Abort(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// upload writes a whole object.
func upload(t testing.TB, s *s3out.Store, key string, data []byte, c s3out.Condition) (etag string) {
	t.Helper()
	u := start(t, s, s3out.UploadOptions{Key: key}, data)
	finish(t, u)
	return commit(t, u, c)
}

func read(t testing.TB, s *s3out.Store, key string) []byte {
	t.Helper()
	r, _, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func head(t testing.TB, s *s3out.Store, key string) (s3out.ObjectInfo, bool) {
	t.Helper()
	info, found, err := s.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return info, found
}

func keys(t testing.TB, s *s3out.Store, prefix string) (all []string) {
	t.Helper()
	for o, err := range s.ListObjects(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o.Key)
	}
	return all
}

// wantContents checks that the bucket holds this object with these bytes and no open upload of it.
func wantContents(t testing.TB, s *s3out.Store, key string, data []byte) {
	t.Helper()
	if !bytes.Equal(read(t, s, key), data) {
		t.Errorf("%s holds other bytes", key)
	}
	wantNoUploads(t, s)
}

func wantNoUploads(t testing.TB, s *s3out.Store) {
	t.Helper()
	for u, err := range s.ListUploads(t.Context(), "") {
		t.Errorf("open upload of %s (%v)", u.Key, err)
	}
}
