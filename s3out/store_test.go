package s3out_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exportd/export"
	"exportd/s3out"
	"exportd/s3out/s3test"
)

func TestAConfigurationThatCannotWorkIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := s3out.Open(t.Context(), s3out.Config{Endpoint: "localhost:9000", PartSize: 1000})
	for _, want := range []string{"bucket", "localhost:9000", "part size"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want a word on %q", err, want)
		}
	}
}

func TestEveryAnswerOfAStoreHasAClassAndACode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   string // "" is an answer without a body
		class  export.Class
		want   string
	}{
		{404, "NoSuchBucket", export.Permanent, "S3_NO_SUCH_BUCKET"},
		{403, "AccessDenied", export.Permanent, "S3_ACCESS_DENIED"},
		{403, "InvalidAccessKeyId", export.Permanent, "S3_INVALID_ACCESS_KEY_ID"},
		{403, "SignatureDoesNotMatch", export.Permanent, "S3_SIGNATURE_DOES_NOT_MATCH"},
		{400, "EntityTooLarge", export.Permanent, "S3_ENTITY_TOO_LARGE"},
		{400, "InvalidArgument", export.Permanent, "S3_INVALID_ARGUMENT"},
		{301, "PermanentRedirect", export.Permanent, "S3_PERMANENT_REDIRECT"},
		{501, "", export.Permanent, "S3_NOT_IMPLEMENTED"},
		{403, "", export.Permanent, "S3_HTTP_403"},
		{400, "ExpiredToken", export.Transient, "S3_EXPIRED_TOKEN"},
		{403, "RequestTimeTooSkewed", export.Transient, "S3_REQUEST_TIME_TOO_SKEWED"},
		{400, "RequestTimeout", export.Transient, "S3_REQUEST_TIMEOUT"},
		{307, "TemporaryRedirect", export.Transient, "S3_TEMPORARY_REDIRECT"},
		{400, "SomethingNew", export.Transient, "S3_SOMETHING_NEW"},
		{503, "SlowDown", export.Outage, "S3_SLOW_DOWN"},
		{503, "", export.Outage, "S3_SERVICE_UNAVAILABLE"},
		{500, "InternalError", export.Outage, "S3_INTERNAL_ERROR"},
		{500, "NobodyKnows", export.Outage, "S3_NOBODY_KNOWS"},
		{502, "", export.Outage, "S3_HTTP_502"},
		{507, "XMinioStorageFull", export.Outage, "S3_XMINIO_STORAGE_FULL"},
		{507, "", export.Outage, "S3_HTTP_507"},
		{429, "", export.Outage, "S3_TOO_MANY_REQUESTS"},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.code == "" {
					w.WriteHeader(c.status)
					return
				}
				answerError(w, c.status, c.code)
			}))
			defer server.Close()
			s := open(t, s3out.Config{Bucket: "bucket", Endpoint: server.URL})
			wantFailure(t, s.Probe(t.Context()), c.class, c.want)
		})
	}
}

func wantFailure(t *testing.T, err error, class export.Class, code string) {
	t.Helper()
	f := export.FailureOf(err)
	if err == nil || f.Class != class || f.Code != code || (f.Dependency == "s3") != (class == export.Outage) {
		t.Errorf("%v: %v, %s, dependency %q; want %v, %s", err, f.Class, f.Code, f.Dependency, class, code)
	}
	if err != nil && !strings.Contains(err.Error(), "s3://bucket/") {
		t.Errorf("%q does not say where", err)
	}
}

func TestAStoreThatIsAwayIsAnOutage(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := "http://" + l.Addr().String() // accepts, by the kernel, and never answers
	defer l.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	cutting := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cutting.Close()
	strange := httptest.NewUnstartedServer(http.NotFoundHandler())
	strange.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	strange.StartTLS()
	defer strange.Close()
	for endpoint, code := range map[string]string{
		silent:                             "S3_TIMEOUT",
		"http://" + closed.Addr().String(): "S3_REFUSED",
		"http://nowhere.invalid":           "S3_DNS",
		cutting.URL:                        "S3_CONNECTION_LOST",
		strange.URL:                        "S3_TLS",
	} {
		t.Run(code, func(t *testing.T) {
			s := open(t, s3out.Config{Bucket: "bucket", Endpoint: endpoint, AnswerTimeout: 100 * time.Millisecond})
			wantFailure(t, s.Probe(t.Context()), export.Outage, code)
		})
	}
}

func TestTheCallersContextComesBackUntouched(t *testing.T) {
	t.Parallel()
	s := openEmbedded(t, embeddedS3(t).Endpoint())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(export.ErrEnding)
	for name, err := range map[string]error{
		"Probe":  s.Probe(ctx),
		"Delete": s.Delete(ctx, "k", ""),
		"Head":   func() error { _, _, err := s.Head(ctx, "k"); return err }(),
		"PutSmall": func() error {
			_, err := s.PutSmall(ctx, "k", "", nil, nil, s3out.Condition{})
			return err
		}(),
	} {
		var f *export.Failure
		if !errors.Is(err, context.Canceled) || !errors.Is(err, export.ErrEnding) || errors.As(err, &f) {
			t.Errorf("%s = %v", name, err)
		}
	}
}

func TestWrongCredentialsAndAMissingBucketAreToldInPlainWords(t *testing.T) { // not parallel: it changes the environment
	cfg := s3test.Config(t)
	missing := cfg
	missing.Bucket = "bucket-that-is-not-there"
	err := open(t, missing).Probe(t.Context())
	if f := export.FailureOf(err); f.Code != "S3_NO_SUCH_BUCKET" || !strings.Contains(err.Error(), "the bucket bucket-that-is-not-there does not exist") {
		t.Errorf("Probe = %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if _, err := open(t, cfg).SelfTest(t.Context()); export.FailureOf(err).Code != "S3_SIGNATURE_DOES_NOT_MATCH" {
		t.Errorf("SelfTest = %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
	if _, err := open(t, cfg).SelfTest(t.Context()); export.FailureOf(err).Class != export.Permanent || !strings.Contains(err.Error(), "access key") {
		t.Errorf("SelfTest = %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	err = open(t, cfg).Probe(t.Context())
	if f := export.FailureOf(err); f.Code != "S3_CREDENTIALS" || f.Class != export.Outage {
		t.Errorf("Probe = %v (%s)", err, f.Code)
	}
}

// H5-21.
func TestTheLimitOfAnUploadIsPermanentAndNamed(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]struct {
		parts int
		bytes int64
	}{"parts": {3, 1 << 40}, "bytes": {1000, 3 * smallPart}} {
		s := openEmbedded(t, embeddedS3(t).Endpoint())
		s.SetLimits(limit.parts, limit.bytes)
		data := content(3 * smallPart)
		upload(t, s, "exports/fits", data, s3out.Condition{})
		u := start(t, s, s3out.UploadOptions{Key: "exports/too-large"}, data)
		_, err := u.Write([]byte{1})
		if err == nil {
			_, _, err = u.Finish(t.Context())
		}
		f := export.FailureOf(err)
		if err == nil || f.Class != export.Permanent || f.Code != "S3_OBJECT_TOO_LARGE" || !strings.Contains(err.Error(), fmt.Sprint(limit.bytes)) {
			t.Errorf("%s: %v", name, err)
		}
		abort(t, u)
		wantNoUploads(t, s)
	}
}

func TestTenThousandPartsOfTheSmallestSizeReachTheLargestObject(t *testing.T) {
	s := open(t, s3out.Config{Bucket: "bucket", Endpoint: "http://127.0.0.1:1", PartSize: partSize})
	var total int64
	for i := range s3out.MaxParts {
		total += s.PartLimit(i)
	}
	if total < s3out.MaxObjectSize || s.PartLimit(999) != partSize || s.PartLimit(s3out.MaxParts-1) > 5<<30 {
		t.Errorf("%d bytes in all, part 1000 %d, the last %d", total, s.PartLimit(999), s.PartLimit(s3out.MaxParts-1))
	}
}

// H5-69.
func TestALinkSaysWhenItReallyEnds(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		session, ttl, want time.Duration
	}{
		"a long session": {12 * time.Hour, time.Hour, time.Hour},
		"a short one":    {time.Minute, time.Hour, time.Minute},
		"over a week":    {30 * 24 * time.Hour, 30 * 24 * time.Hour, 7 * 24 * time.Hour},
		"one that ended": {-time.Second, time.Hour, 0},
	} {
		s := open(t, s3out.Config{Bucket: "bucket", Endpoint: "http://127.0.0.1:1"})
		s.SetClock(func() time.Time { return now })
		s.SetCredentials(now.Add(c.session))
		url, at, err := s.Presign(t.Context(), "exports/a%20b.csv", "a\"\r\nb é.csv", c.ttl)
		if c.want == 0 {
			if f := export.FailureOf(err); err == nil || f.Class != export.Transient {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || at.Sub(now) != c.want || !strings.Contains(url, fmt.Sprintf("X-Amz-Expires=%d&", int(c.want.Seconds()))) ||
			!strings.Contains(url, "/exports/a%2520b.csv?") || strings.ContainsAny(url, "\r\n\" ") {
			t.Errorf("%s: %s until %v, %v", name, url, at, err)
		}
	}
}

func TestPayloadsAreSignedOnlyWhereTheTransportIsNotTrusted(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]bool{"http://127.0.0.1:1": true, "http://localhost:1": true, "http://[::1]:1": true, "https://s3.example": true,
		"http://s3.example": false, "http://10.0.0.1:9000": false} {
		if got := s3out.Trusted(endpoint); got != want {
			t.Errorf("%s: %v", endpoint, got)
		}
	}
	s := openEmbedded(t, embeddedS3(t).Endpoint())
	s.SignPayloads()
	data := content(2*smallPart + 1)
	upload(t, s, "exports/signed", data, s3out.Condition{})
	wantContents(t, s, "exports/signed", data)
}

func TestTheEmbeddedStoreKeepsObjectsAsFilesAtTheirKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := listen(t, dir)
	s := openEmbedded(t, e.Endpoint())
	upload(t, s, "exports/2025/01/31/A%2FB_20250131.csv", []byte("rows"), s3out.Condition{})
	upload(t, s, "exports/2025/01/31/big.csv", content(smallPart+1), s3out.Condition{})
	got, err := os.ReadFile(filepath.Join(dir, "bucket/exports/2025/01/31/A%2FB_20250131.csv"))
	if err != nil || string(got) != "rows" {
		t.Errorf("%q, %v", got, err)
	}
	info, _ := head(t, s, "exports/2025/01/31/big.csv")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	s = openEmbedded(t, listen(t, dir).Endpoint()) // another run on the same folder
	again, found := head(t, s, "exports/2025/01/31/big.csv")
	if !found || again.Size != info.Size {
		t.Errorf("%+v, want the size of %+v", again, info)
	}
	upload(t, s, "exports/2025/01/31/big.csv", []byte("small"), s3out.Condition{IfMatch: again.ETag})
	for _, key := range []string{"../out", "a//b", "a/./b", "a/../../b", "/a", "a/"} {
		if _, err := s.PutSmall(t.Context(), key, "", []byte("x"), nil, s3out.Condition{}); export.FailureOf(err).Code != "S3_INVALID_ARGUMENT" {
			t.Errorf("%q: %v", key, err)
		}
	}
	if found, err := filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil || len(found) != 1 {
		t.Errorf("%v, %v: want the bucket only", found, err)
	}
}
