package s3out

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"exportd/export"
)

// Condition guards the write of an object: it must have this ETag, or, if IfMatch is empty, be absent.
type Condition struct{ IfMatch string }

// ErrPrecondition: the object is not what the Condition demanded, somebody else has written or removed it. Nothing was changed.
var ErrPrecondition = errors.New("the object is not what the condition demands")

// CommitError is a last step that did not go through: the condition failed, or the answer was lost and nobody knows. It carries the *export.Failure
// of the step, and the context's error if that ended it.
type CommitError struct {
	Err          error
	precondition bool
	ambiguous    bool
}

func (e *CommitError) Error() string { return e.Err.Error() }
func (e *CommitError) Unwrap() error { return e.Err }

// Is makes a failed condition ErrPrecondition.
func (e *CommitError) Is(target error) bool { return e.precondition && target == ErrPrecondition }

// Precondition says that the condition did not hold. After an attempt whose answer was lost this can be because of our own write: look at the
// object.
func (e *CommitError) Precondition() bool { return e.precondition }

// Ambiguous says that the write may or may not have happened, or may still happen: look at the object.
func (e *CommitError) Ambiguous() bool { return e.ambiguous }

// lastStep is the write that makes an object visible.
type lastStep struct {
	key         string
	cond        Condition
	conditional bool              // the store honours conditions on this request
	metadata    map[string]string // what the object will have
	size        int64
	do          func(ctx context.Context, ifMatch, ifNoneMatch *string) (etag *string, err error)
}

func (s *Store) take(ctx context.Context, step lastStep) (etag string, err error) {
	if ctx.Err() != nil {
		return "", stopped(ctx, "writing "+s.URI(step.key))
	}
	var ifMatch, ifNoneMatch *string
	switch {
	case !step.conditional:
		if err := s.lookBefore(ctx, step); err != nil {
			return "", err
		}
	case step.cond.IfMatch != "":
		ifMatch = aws.String(quoted(&step.cond.IfMatch))
	default:
		ifNoneMatch = aws.String("*")
	}
	var doubt atomic.Bool
	tag, err := step.do(context.WithValue(ctx, doubtKey{}, &doubt), ifMatch, ifNoneMatch)
	if err != nil {
		return "", s.commitError(ctx, step, doubt.Load(), err)
	}
	if !step.conditional {
		return s.lookAfter(ctx, step)
	}
	return quoted(tag), nil
}

func (s *Store) commitError(ctx context.Context, step lastStep, doubt bool, err error) error {
	code, status := answer(err)
	failure := s.fail(ctx, "writing", step.key, err)
	switch {
	case status == http.StatusPreconditionFailed, status == http.StatusConflict,
		status == http.StatusNotFound && step.cond.IfMatch != "" && code != "NoSuchBucket" && code != "NoSuchUpload":
		return s.refusal(step, err)
	case doubt, uncertain(status), status != 0 && status < 300, code == "NoSuchUpload":
		return &CommitError{Err: failure, ambiguous: true}
	}
	return failure
}

func (s *Store) refusal(step lastStep, err error) *CommitError {
	want := "is there already"
	if step.cond.IfMatch != "" {
		want = "is gone or no longer has the ETag " + step.cond.IfMatch
	}
	text := fmt.Sprintf("writing %s: the object %s", s.URI(step.key), want)
	return &CommitError{Err: s.failure(export.Transient, "S3_PRECONDITION", text, err), precondition: true}
}

// lookBefore and lookAfter stand in for a store without conditional writes.
func (s *Store) lookBefore(ctx context.Context, step lastStep) error {
	info, found, err := s.Head(ctx, step.key)
	if err != nil {
		return err
	}
	if found != (step.cond.IfMatch != "") || found && info.ETag != quoted(&step.cond.IfMatch) {
		return s.refusal(step, nil)
	}
	return nil
}

// lookAfter compares metadata and size, not the ETag: some stores answer a write with another ETag than a HEAD.
func (s *Store) lookAfter(ctx context.Context, step lastStep) (etag string, err error) {
	info, found, err := s.Head(ctx, step.key)
	if err != nil {
		return "", &CommitError{Err: err, ambiguous: true}
	}
	if !found || info.Size != step.size {
		return "", s.refusal(step, nil)
	}
	for k, v := range step.metadata {
		if info.Metadata[k] != v {
			return "", s.refusal(step, nil)
		}
	}
	return info.ETag, nil
}

// putObject writes a whole object from a part. It may be called again.
func (s *Store) putObject(ctx context.Context, o UploadOptions, p *part, moved *atomic.Int64, metadata map[string]string, cond Condition) (etag string, err error) {
	caps, err := s.capabilities(ctx)
	if err != nil {
		return "", err
	}
	return s.take(ctx, lastStep{key: o.Key, cond: cond, conditional: caps.ConditionalPut, metadata: metadata, size: p.size,
		do: func(ctx context.Context, ifMatch, ifNoneMatch *string) (*string, error) {
			b := &body{part: p, moved: moved}
			in := &s3.PutObjectInput{Bucket: &s.bucket, Key: &o.Key, Body: b, ContentLength: &p.size, Metadata: encode(metadata),
				ContentType: optional(o.ContentType), ContentEncoding: optional(o.ContentEncoding), IfMatch: ifMatch, IfNoneMatch: ifNoneMatch}
			if caps.Checksums {
				in.ChecksumCRC32C = aws.String(p.checksum())
			}
			out, err := s.client.PutObject(ctx, in, s.withBody...)
			if err != nil {
				b.move(0)
				return nil, err
			}
			return out.ETag, nil
		}})
}

func (u *Upload) complete(ctx context.Context, cond Condition) (etag string, err error) {
	s := u.store
	caps, err := s.capabilities(ctx)
	if err != nil {
		return "", err
	}
	return s.take(ctx, lastStep{key: u.opts.Key, cond: cond, conditional: caps.ConditionalComplete, metadata: u.opts.Metadata, size: u.size,
		do: func(ctx context.Context, ifMatch, ifNoneMatch *string) (*string, error) {
			out, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &s.bucket, Key: &u.opts.Key, UploadId: &u.id,
				MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts}, IfMatch: ifMatch, IfNoneMatch: ifNoneMatch})
			if err != nil {
				return nil, err
			}
			return out.ETag, nil
		}})
}

// doubtingClient notes, for a request whose context asks for it, that an attempt may have had its effect although no answer says so. The SDK
// repeats attempts, and the last one's error does not tell what became of the ones before.
type doubtingClient struct{ *http.Client }

type doubtKey struct{}

func (c doubtingClient) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(req)
	if doubt, ok := req.Context().Value(doubtKey{}).(*atomic.Bool); ok {
		var op *net.OpError
		switch {
		case err != nil && !(errors.As(err, &op) && op.Op == "dial"):
			doubt.Store(true)
		case err == nil && uncertain(resp.StatusCode):
			doubt.Store(true)
		}
	}
	return resp, err
}

// uncertain says whether such an answer can come after the request had its effect.
func uncertain(status int) bool {
	return status == http.StatusInternalServerError || status == http.StatusBadGateway || status == http.StatusGatewayTimeout
}
