package s3out_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"exportd/s3out"
	"exportd/s3out/s3test"
)

// BenchmarkUpload writes objects as a chunk does, and as the bare SDK does from bytes that are in memory already.
func BenchmarkUpload(b *testing.B) {
	cfg := s3test.Config(b)
	store := open(b, cfg)
	if _, err := store.SelfTest(b.Context()); err != nil {
		b.Fatal(err)
	}
	base, err := config.LoadDefaultConfig(b.Context(), config.WithRegion("us-east-1"))
	if err != nil {
		b.Fatal(err)
	}
	bare := s3.NewFromConfig(base, func(o *s3.Options) { o.BaseEndpoint, o.UsePathStyle = &cfg.Endpoint, true })
	for _, size := range []int{1 << 10, 1_000_000, 100_000_000} {
		data := content(size)
		key := fmt.Sprint("exports/", size)
		b.Run(fmt.Sprintf("exportd/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			var etag string
			for b.Loop() {
				u := store.NewUpload(b.Context(), s3out.UploadOptions{Key: key})
				for rest := data; len(rest) > 0; {
					n := min(len(rest), 32<<10)
					if _, err := u.Write(rest[:n]); err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
				finish(b, u)
				etag = commit(b, u, s3out.Condition{IfMatch: etag})
				abort(b, u)
			}
			if err := store.Delete(b.Context(), key, ""); err != nil {
				b.Fatal(err)
			}
		})
		b.Run(fmt.Sprintf("bare/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := bare.PutObject(b.Context(), &s3.PutObjectInput{Bucket: &cfg.Bucket, Key: &key, Body: bytes.NewReader(data)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
