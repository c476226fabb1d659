package s3out

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"exportd/export"
)

// Capabilities is what a store was seen to do.
type Capabilities struct {
	ConditionalPut      bool // PutObject obeys If-None-Match and If-Match
	ConditionalComplete bool // so does CompleteMultipartUpload, and the upload outlives a condition that failed
	ConditionalDelete   bool // DeleteObject obeys If-Match
	Checksums           bool // x-amz-checksum-crc32c is accepted
}

const selfTestTimeout = time.Minute

// SelfTest writes, reads and removes a probe object, and tries what the store does with conditions that must fail. Its result rules the uploads
// that follow. Callers at the same time share one run.
func (s *Store) SelfTest(ctx context.Context) (Capabilities, error) {
	result := s.selfTest.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), selfTestTimeout)
		defer cancel()
		caps, err := s.tryOut(ctx)
		if ctx.Err() != nil {
			err = s.failure(export.Outage, "S3_TIMEOUT", "trying out "+s.URI(s.probes)+": not done within "+selfTestTimeout.String(), err)
		}
		if err != nil {
			return Capabilities{}, err
		}
		s.caps.Store(&caps)
		level := slog.LevelInfo
		if !caps.ConditionalPut || !caps.ConditionalComplete {
			level = slog.LevelWarn // two writers of one object are told apart only by a look before and after
		}
		s.log.Log(ctx, level, "object store tried out", "bucket", s.bucket, "conditionalPut", caps.ConditionalPut,
			"conditionalComplete", caps.ConditionalComplete, "conditionalDelete", caps.ConditionalDelete, "checksums", caps.Checksums)
		return caps, nil
	})
	select {
	case r := <-result:
		return r.Val.(Capabilities), r.Err
	case <-ctx.Done():
		return Capabilities{}, stopped(ctx, "trying out "+s.URI(s.probes))
	}
}

// capabilities runs the self-test before the first upload; one that failed is tried again by the next.
func (s *Store) capabilities(ctx context.Context) (Capabilities, error) {
	if caps := s.caps.Load(); caps != nil {
		return *caps, nil
	}
	return s.SelfTest(ctx)
}

// trial is one probe object.
type trial struct {
	*Store
	key  string
	data *part
	caps Capabilities
}

func (s *Store) tryOut(ctx context.Context) (caps Capabilities, err error) {
	if err := s.Probe(ctx); err != nil {
		return caps, err
	}
	content := []byte("exportd asks whether this store can be written, read and deleted\n")
	t := &trial{Store: s, key: s.probes + rand.Text(), data: newPart(content)}
	defer t.data.release()
	defer func() {
		if err == nil {
			return
		}
		// The first error is the one to tell; what is left is a small object under _probe/.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		_, _ = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &t.key})
	}()
	etag, err := t.firstPut(ctx)
	if err != nil {
		return caps, err
	}
	if err := t.readBack(ctx, content); err != nil {
		return caps, err
	}
	if t.caps.ConditionalPut, err = t.conditions(ctx, t.put, &etag); err != nil {
		return caps, err
	}
	err = t.multipart(ctx, &etag)
	if t.caps.Checksums && unwelcome(err) {
		t.caps.Checksums = false
		err = t.multipart(ctx, &etag)
	}
	if err != nil {
		return caps, err
	}
	return t.caps, t.remove(ctx)
}

// firstPut finds out whether the checksum header is welcome.
func (t *trial) firstPut(ctx context.Context) (etag string, err error) {
	t.caps.Checksums = true
	etag, err = t.put(ctx, nil, nil)
	if unwelcome(err) {
		t.caps.Checksums = false
		etag, err = t.put(ctx, nil, nil)
	}
	if err != nil {
		return "", t.fail(ctx, "writing", t.key, err)
	}
	return etag, nil
}

// unwelcome says whether the store refused a request for a header in it, and not for what may be otherwise next time.
func unwelcome(err error) bool {
	code, status := answer(err)
	switch status {
	case http.StatusBadRequest:
		r, known := byCode[code]
		return !known || r.class == export.Permanent
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return true
	}
	return false
}

func (t *trial) readBack(ctx context.Context, want []byte) error {
	r, info, err := t.Get(ctx, t.key)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1))
	if err != nil {
		return t.fail(ctx, "reading", t.key, err)
	}
	if !bytes.Equal(got, want) || info.Size != int64(len(want)) {
		return t.failure(export.Permanent, "S3_UNFAITHFUL", "reading "+t.URI(t.key)+": the store returns other bytes than were written", nil)
	}
	return nil
}

type write func(ctx context.Context, ifMatch, ifNoneMatch *string) (etag string, err error)

// conditions says whether a write is refused with 412 when it should be, and goes through when it should. etag is that of the object, and
// follows it.
func (t *trial) conditions(ctx context.Context, w write, etag *string) (honoured bool, err error) {
	other := aws.String(`"00000000000000000000000000000000"`)
	for _, try := range []struct {
		ifMatch, ifNoneMatch *string
		refuse               bool
	}{{nil, aws.String("*"), true}, {other, nil, true}, {etag, nil, false}} {
		got, err := w(ctx, try.ifMatch, try.ifNoneMatch)
		_, status := answer(err)
		switch {
		case err == nil:
			*etag = got
			if try.refuse {
				return false, nil
			}
		case status == http.StatusPreconditionFailed && try.refuse:
		case unwelcome(err), status == http.StatusPreconditionFailed, status == http.StatusNotFound:
			return false, nil // does not know the header, compares ETags in a way of its own, or has dropped the multipart upload
		default:
			return false, t.fail(ctx, "writing", t.key, err)
		}
	}
	return true, nil
}

func (t *trial) put(ctx context.Context, ifMatch, ifNoneMatch *string) (etag string, err error) {
	in := &s3.PutObjectInput{Bucket: &t.bucket, Key: &t.key, Body: t.body(), ContentLength: &t.data.size, IfMatch: ifMatch, IfNoneMatch: ifNoneMatch}
	if t.caps.Checksums {
		in.ChecksumCRC32C = aws.String(t.data.checksum())
	}
	out, err := t.client.PutObject(ctx, in, t.withBody...)
	if err != nil {
		return "", err
	}
	return quoted(out.ETag), nil
}

func (t *trial) body() *body { return &body{part: t.data, moved: new(atomic.Int64)} }

// multipart tries the conditions on one upload of one small part.
func (t *trial) multipart(ctx context.Context, etag *string) error {
	create := &s3.CreateMultipartUploadInput{Bucket: &t.bucket, Key: &t.key}
	upload := &s3.UploadPartInput{Bucket: &t.bucket, Key: &t.key, PartNumber: aws.Int32(1), Body: t.body(), ContentLength: &t.data.size}
	if t.caps.Checksums {
		create.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
		upload.ChecksumCRC32C = aws.String(t.data.checksum())
	}
	created, err := t.client.CreateMultipartUpload(ctx, create)
	if err != nil {
		return t.fail(ctx, "starting a multipart upload of", t.key, err)
	}
	upload.UploadId = created.UploadId
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		_ = t.AbortUpload(ctx, t.key, *created.UploadId) // nothing to abort in the good case
	}()
	uploaded, err := t.client.UploadPart(ctx, upload, t.withBody...)
	if err != nil {
		return t.fail(ctx, "uploading a part of", t.key, err)
	}
	parts := []types.CompletedPart{{PartNumber: upload.PartNumber, ETag: uploaded.ETag, ChecksumCRC32C: upload.ChecksumCRC32C}}
	t.caps.ConditionalComplete, err = t.conditions(ctx, func(ctx context.Context, ifMatch, ifNoneMatch *string) (string, error) {
		out, err := t.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &t.bucket, Key: &t.key, UploadId: created.UploadId,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}, IfMatch: ifMatch, IfNoneMatch: ifNoneMatch})
		if err != nil {
			return "", err
		}
		return quoted(out.ETag), nil
	}, etag)
	return err
}

// remove tries a delete that must be refused, then really deletes.
func (t *trial) remove(ctx context.Context) error {
	_, err := t.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &t.bucket, Key: &t.key, IfMatch: aws.String(`"00000000000000000000000000000000"`)})
	_, status := answer(err)
	t.caps.ConditionalDelete = status == http.StatusPreconditionFailed
	if err != nil && !t.caps.ConditionalDelete && !unwelcome(err) {
		return t.fail(ctx, "removing", t.key, err)
	}
	if _, err := t.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &t.bucket, Key: &t.key}); err != nil {
		return t.fail(ctx, "removing", t.key, err)
	}
	if _, found, err := t.Head(ctx, t.key); err != nil {
		return err
	} else if found {
		return t.failure(export.Permanent, "S3_UNFAITHFUL", fmt.Sprintf("removing %s: the object is still there", t.URI(t.key)), nil)
	}
	return nil
}
