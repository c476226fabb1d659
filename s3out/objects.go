package s3out

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"exportd/export"
)

// ObjectInfo is what the store knows of an object. A listing leaves Metadata empty.
type ObjectInfo struct {
	Key          string
	Size         int64
	ETag         string // opaque, always quoted
	Metadata     map[string]string
	ContentType  string
	LastModified time.Time
}

// Head looks an object up. Without the right to list the bucket some stores answer 403 for an object that is absent: that is a Permanent
// failure, neither "absent" nor "there".
func (s *Store) Head(ctx context.Context, key string) (info ObjectInfo, found bool, err error) {
	small, cancel := s.small(ctx)
	defer cancel()
	out, err := s.client.HeadObject(small, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err == nil {
		return ObjectInfo{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: quoted(out.ETag), Metadata: decode(out.Metadata),
			ContentType: aws.ToString(out.ContentType), LastModified: aws.ToTime(out.LastModified)}, true, nil
	}
	_, status := answer(err)
	if status == http.StatusForbidden || status == http.StatusBadRequest {
		err = s.explain(small, key, err)
	}
	code, status := answer(err)
	switch {
	case ctx.Err() == nil && status == http.StatusNotFound && code != "NoSuchBucket":
		return ObjectInfo{}, false, nil
	case ctx.Err() == nil && status == http.StatusForbidden && (code == "AccessDenied" || named(code, status)):
		text := fmt.Sprintf("reading %s: cannot read: the credentials need s3:GetObject and s3:ListBucket%s", s.URI(key), detail(err))
		return ObjectInfo{}, false, s.failure(export.Permanent, "S3_ACCESS_DENIED", text, err)
	}
	return ObjectInfo{}, false, s.fail(ctx, "reading", key, err)
}

// explain asks again with GET for one byte, because the answer to a HEAD has no body that would hold the error's code.
func (s *Store) explain(ctx context.Context, key string, head error) error {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, Range: aws.String("bytes=0-0")})
	if err != nil {
		return err
	}
	out.Body.Close()
	return head
}

// Get reads an object. The caller closes the reader; ctx holds until then.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, ObjectInfo, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return nil, ObjectInfo{}, s.fail(ctx, "reading", key, err)
	}
	return out.Body, ObjectInfo{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: quoted(out.ETag), Metadata: decode(out.Metadata),
		ContentType: aws.ToString(out.ContentType), LastModified: aws.ToTime(out.LastModified)}, nil
}

// PutSmall writes an object that is in memory anyway, a manifest. Errors are those of Upload.Commit.
func (s *Store) PutSmall(ctx context.Context, key, contentType string, content []byte, metadata map[string]string, cond Condition) (etag string, err error) {
	p := newPart(content)
	defer p.release()
	return s.putObject(ctx, UploadOptions{Key: key, ContentType: contentType}, p, new(atomic.Int64), maps.Clone(metadata), cond)
}

// Delete removes an object if it has the ETag ifMatch; an empty ifMatch removes whatever is there. An absent object is success, another ETag
// ErrPrecondition.
func (s *Store) Delete(ctx context.Context, key, ifMatch string) error {
	in := &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key}
	if ifMatch != "" {
		caps, err := s.capabilities(ctx)
		if err != nil {
			return err
		}
		info, found, err := s.Head(ctx, key) // also with conditional deletes: not every store takes the condition on an absent object
		switch {
		case err != nil:
			return err
		case !found:
			return nil
		case info.ETag != quoted(&ifMatch):
			return s.refusal(lastStep{key: key, cond: Condition{IfMatch: ifMatch}}, nil)
		}
		if caps.ConditionalDelete {
			in.IfMatch = aws.String(quoted(&ifMatch))
		}
	}
	small, cancel := s.small(ctx)
	defer cancel()
	_, err := s.client.DeleteObject(small, in)
	code, status := answer(err)
	switch {
	case err == nil, status == http.StatusNotFound && code != "NoSuchBucket":
		return nil
	case status == http.StatusPreconditionFailed, status == http.StatusConflict:
		return s.refusal(lastStep{key: key, cond: Condition{IfMatch: ifMatch}}, err)
	}
	return s.fail(ctx, "removing", key, err)
}

// AbortUpload removes a multipart upload and its parts. One that is gone already is success.
func (s *Store) AbortUpload(ctx context.Context, key, uploadID string) error {
	small, cancel := s.small(ctx)
	defer cancel()
	_, err := s.client.AbortMultipartUpload(small, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: &key, UploadId: &uploadID})
	if code, status := answer(err); err == nil || code == "NoSuchUpload" || status == http.StatusNotFound && code != "NoSuchBucket" {
		return nil
	}
	return s.fail(ctx, "aborting the multipart upload of", key, err)
}

// OpenUpload is a multipart upload that was neither completed nor aborted.
type OpenUpload struct {
	Key       string
	UploadID  string
	Initiated time.Time // by the store's clock
}

// ListUploads yields the open multipart uploads under a key prefix. It ends with the first error.
func (s *Store) ListUploads(ctx context.Context, prefix string) iter.Seq2[OpenUpload, error] {
	return func(yield func(OpenUpload, error) bool) {
		for page, err := range s.uploadPages(ctx, prefix) {
			if err != nil {
				yield(OpenUpload{}, err)
				return
			}
			for _, u := range openUploads(page) {
				if !yield(u, nil) {
					return
				}
			}
		}
	}
}

// ListObjects yields the objects under a key prefix, in the order of their keys. It ends with the first error.
func (s *Store) ListObjects(ctx context.Context, prefix string) iter.Seq2[ObjectInfo, error] {
	return func(yield func(ObjectInfo, error) bool) {
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(ObjectInfo{}, s.fail(ctx, "listing", prefix, err))
				return
			}
			for _, o := range page.Contents {
				info := ObjectInfo{Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ETag: quoted(o.ETag), LastModified: aws.ToTime(o.LastModified)}
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

// Presign makes a URL that anyone may GET until expiresAt, which comes before now + ttl if the credentials end earlier. Clients save the object
// as filename. The URL is a secret: it belongs into no log.
func (s *Store) Presign(ctx context.Context, key, filename string, ttl time.Duration) (url string, expiresAt time.Time, err error) {
	creds, err := s.creds.Retrieve(ctx)
	if err != nil {
		return "", time.Time{}, s.fail(ctx, "signing a link to", key, err)
	}
	now := s.now()
	const most = 7 * 24 * time.Hour // S3's limit
	expiresAt = now.Add(min(ttl, most))
	if creds.CanExpire && creds.Expires.Before(expiresAt) {
		expiresAt = creds.Expires
	}
	if !expiresAt.After(now) {
		return "", time.Time{}, s.failure(export.Transient, "S3_CREDENTIALS", "signing a link to "+s.URI(key)+": the credentials have expired", nil)
	}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &key}
	if filename != "" {
		in.ResponseContentDisposition = optional(mime.FormatMediaType("attachment", map[string]string{"filename": filename}))
	}
	req, err := s3.NewPresignClient(s.client).PresignGetObject(ctx, in, s3.WithPresignExpires(expiresAt.Sub(now)))
	if err != nil {
		return "", time.Time{}, s.fail(ctx, "signing a link to", key, err)
	}
	return req.URL, expiresAt, nil
}

// Probe asks, cheaply and without a file, whether the store answers and the bucket is there and may be listed.
func (s *Store) Probe(ctx context.Context) error {
	small, cancel := s.small(ctx)
	defer cancel()
	// Not HeadBucket: it needs the right to list the whole bucket, and its refusals have no code.
	_, err := s.client.ListObjectsV2(small, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &s.probes, MaxKeys: aws.Int32(1)})
	if code, _ := answer(err); code == "NoSuchBucket" && s.create {
		return s.createBucket(ctx)
	}
	if err != nil {
		return s.fail(ctx, "listing", s.probes, err)
	}
	return nil
}

func (s *Store) createBucket(ctx context.Context) error {
	in := &s3.CreateBucketInput{Bucket: &s.bucket}
	if region := s.client.Options().Region; region != "us-east-1" && s.client.Options().BaseEndpoint == nil {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(region)}
	}
	small, cancel := s.small(ctx)
	defer cancel()
	_, err := s.client.CreateBucket(small, in)
	var mine *types.BucketAlreadyOwnedByYou
	if err == nil || errors.As(err, &mine) {
		return nil
	}
	return s.fail(ctx, "creating the bucket", "", err)
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// quoted makes ETags comparable: in XML some stores leave the quotes away.
func quoted(etag *string) string {
	e := aws.ToString(etag)
	if e == "" || strings.HasSuffix(e, `"`) {
		return e
	}
	return `"` + e + `"`
}
