package s3out

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"exportd/export"
)

// UploadOptions describe the object to write.
type UploadOptions struct {
	Key             string
	ContentType     string
	ContentEncoding string
	Metadata        map[string]string // keys in lower case

	// Created is called when the object has become a multipart upload, before its first part. An error ends the upload.
	Created func(ctx context.Context, uploadID string) error
}

// Upload is one object being written: Write…, Finish, Commit (again after ErrPrecondition), and in any case Abort. One goroutine uses it; only
// Moved may be called from others.
type Upload struct {
	store  *Store
	opts   UploadOptions
	ctx    context.Context // of whoever writes; ended by Abort
	cancel context.CancelFunc

	sending context.Context // of the parts: one that is on its way when ctx ends goes on, see Abort
	cutOff  context.CancelFunc

	part   *part // being filled; nil after release
	sha    hash.Hash
	size   int64
	moved  atomic.Int64
	closed bool  // by Finish
	err    error // the first failure, repeated by every later call

	id     string // of the multipart upload; "" as long as there is none
	summed bool   // its parts carry checksums
	parts  []types.CompletedPart

	creation     chan created // of the multipart upload's ID; nil if none is awaited
	stopCreation context.CancelFunc

	flight chan error // of the part on its way; nil if there is none
	cut    bool       // a part may have been cut off on its way
}

// NewUpload starts the writing of an object; no request is made before the first part is full. Ending the context ends a Write that waits, and no further part is
// sent. Whoever calls NewUpload must call Abort.
func (s *Store) NewUpload(ctx context.Context, opts UploadOptions) *Upload {
	u := &Upload{store: s, opts: opts, part: new(part), sha: sha256.New()}
	u.opts.Metadata = maps.Clone(opts.Metadata)
	u.ctx, u.cancel = context.WithCancel(ctx)
	u.sending, u.cutOff = context.WithCancel(context.WithoutCancel(ctx))
	return u
}

// Moved counts the bytes handed to the store so far. It falls when a request is repeated; a change is a sign of life.
func (u *Upload) Moved() int64 { return u.moved.Load() }

var errClosed = errors.New("s3out: write to a finished upload")

// Write keeps b, and sends the part before as soon as another begins. It waits while two parts are full. The error of a part shows at the next
// Write or at Finish.
func (u *Upload) Write(b []byte) (n int, err error) {
	switch {
	case u.err != nil:
		return 0, u.err
	case u.closed || u.part == nil:
		return 0, errClosed
	}
	select {
	case err := <-u.flight:
		u.err = u.landed(err)
	default:
	}
	for len(b) > 0 && u.err == nil {
		limit := u.store.partLimit(len(u.parts))
		if u.part.size >= limit {
			u.err = u.ship()
			continue
		}
		c := u.part.write(b, limit, u.sha)
		b, n, u.size = b[c:], n+c, u.size+int64(c)
		if u.size > u.store.maxObject {
			u.err = u.tooLarge()
		}
	}
	return n, u.err
}

// partLimit is the size of part i, counted from 0. The first thousand are alike (some stores want all alike), the later ones grow so that
// 10 000 parts of the smallest size reach 5 TiB.
func (s *Store) partLimit(i int) int64 {
	const alike, step = 1000, 144 << 10
	return s.partSize + int64(max(0, i-alike))*step
}

// ship puts the filled part on its way, after the one before has arrived.
func (u *Upload) ship() error {
	if u.id == "" {
		if err := u.create(); err != nil {
			return err
		}
	}
	if err := u.land(); err != nil {
		return err
	}
	if u.ctx.Err() != nil {
		return u.stopped()
	}
	if len(u.parts) == u.store.maxParts {
		return u.tooLarge()
	}
	number := int32(len(u.parts) + 1)
	p := u.part
	p.sum(u.sha) // a part need not end with a full block
	u.part = new(part)
	u.parts = append(u.parts, types.CompletedPart{PartNumber: &number})
	u.flight = make(chan error, 1)
	go u.send(p, &u.parts[number-1], u.flight)
	return nil
}

// land waits for the part on its way, until ctx ends.
func (u *Upload) land() error {
	if u.flight == nil {
		return nil
	}
	select {
	case err := <-u.flight:
		return u.landed(err)
	case <-u.ctx.Done():
		return u.stopped()
	}
}

func (u *Upload) landed(err error) error {
	u.flight, u.cut = nil, err != nil
	return err
}

func (u *Upload) stopped() error { return stopped(u.ctx, "uploading "+u.store.URI(u.opts.Key)) }

type created struct {
	id  string
	err error
}

// create makes the object a multipart upload. The request runs on when the upload's context ends, because an upload whose ID never arrived could
// not be aborted: Abort waits for it.
func (u *Upload) create() error {
	s := u.store
	caps, err := s.capabilities(u.ctx)
	if err != nil {
		return err
	}
	in := &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: &u.opts.Key, Metadata: encode(u.opts.Metadata),
		ContentType: optional(u.opts.ContentType), ContentEncoding: optional(u.opts.ContentEncoding)}
	if u.summed = caps.Checksums; u.summed {
		in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32c
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(u.ctx))
	u.creation, u.stopCreation = make(chan created, 1), cancel
	go func(result chan<- created) {
		small, done := s.small(ctx)
		defer done()
		out, err := s.client.CreateMultipartUpload(small, in)
		if err != nil {
			result <- created{err: s.fail(ctx, "starting a multipart upload of", u.opts.Key, err)}
			return
		}
		result <- created{id: aws.ToString(out.UploadId)}
	}(u.creation)
	select {
	case c := <-u.creation:
		u.created(c)
		if c.err != nil {
			return c.err
		}
	case <-u.ctx.Done():
		return u.stopped()
	}
	if u.opts.Created != nil {
		return u.opts.Created(u.ctx, u.id)
	}
	return nil
}

func (u *Upload) created(c created) {
	u.id = c.id
	u.stopCreation()
	u.creation = nil
}

// send uploads a part and gives its blocks back. The SDK lets go of the body before it returns.
func (u *Upload) send(p *part, done *types.CompletedPart, result chan<- error) {
	defer p.release()
	s := u.store
	b := &body{part: p, moved: &u.moved}
	in := &s3.UploadPartInput{Bucket: &s.bucket, Key: &u.opts.Key, UploadId: &u.id, PartNumber: done.PartNumber, Body: b, ContentLength: &p.size}
	if u.summed {
		in.ChecksumCRC32C = aws.String(p.checksum())
	}
	out, err := s.client.UploadPart(u.sending, in, s.withBody...)
	if err != nil {
		b.move(0)
		result <- s.fail(u.sending, fmt.Sprintf("uploading part %d of", *done.PartNumber), u.opts.Key, err)
		return
	}
	done.ETag, done.ChecksumCRC32C = out.ETag, in.ChecksumCRC32C
	result <- nil
}

// Finish ends the writing: all but the last step of the upload is done, and nothing is visible yet.
func (u *Upload) Finish(ctx context.Context) (bytes int64, sha256hex string, err error) {
	if u.err != nil {
		return 0, "", u.err
	}
	if u.part == nil {
		return 0, "", errClosed
	}
	if !u.closed {
		defer context.AfterFunc(ctx, u.cancel)()
		if u.err = u.finish(ctx); u.err != nil {
			if ctx.Err() != nil {
				u.err = stopped(ctx, "uploading "+u.store.URI(u.opts.Key))
			}
			return 0, "", u.err
		}
		u.closed = true
	}
	return u.size, hex.EncodeToString(u.sha.Sum(nil)), nil
}

func (u *Upload) finish(ctx context.Context) error {
	u.part.sum(u.sha)
	if u.id == "" {
		_, err := u.store.capabilities(ctx) // here, and not between the announcement of the object and its write
		return err
	}
	if u.part.size > 0 {
		if err := u.ship(); err != nil {
			return err
		}
	}
	return u.land()
}

// Commit is the last step, the one that makes the object visible. extra is metadata that was not known before; a multipart upload cannot take it.
// After ErrPrecondition it may be called again with another condition; after an ambiguous error with the same.
func (u *Upload) Commit(ctx context.Context, cond Condition, extra map[string]string) (etag string, err error) {
	switch {
	case u.err != nil:
		return "", u.err
	case !u.closed || u.part == nil:
		return "", errors.New("s3out: commit of an upload that is not finished, or is over")
	case u.id != "":
		etag, err = u.complete(ctx, cond)
	default:
		metadata := maps.Clone(u.opts.Metadata)
		if metadata == nil {
			metadata = map[string]string{}
		}
		maps.Copy(metadata, extra)
		etag, err = u.store.putObject(ctx, u.opts, u.part, &u.moved, metadata, cond)
	}
	if err == nil {
		u.id = ""
		u.end()
	}
	return etag, err
}

// end gives everything back. It may be called again.
func (u *Upload) end() {
	u.cancel()
	u.cutOff()
	if u.part != nil {
		u.part.release()
		u.part = nil
	}
}

// lastPart is how long Abort lets a part arrive that is on its way. One that the store is still receiving survives an abort (docs of AbortMultipartUpload), and
// nobody knows when the store notices that a request was cut off.
const lastPart = 2 * time.Second

// Abort removes what is left of the upload: nothing after a Commit that went through. It may be called again. It waits for the request on its way
// and takes a short time of its own even if ctx has ended. What it cannot reach, the store being away, is left
// for a later call or the janitor; for the janitor alone one whose creation was never answered.
func (u *Upload) Abort(ctx context.Context) error {
	if u.flight != nil {
		late := time.AfterFunc(lastPart, u.cutOff)
		_ = u.landed(<-u.flight) // nobody wants the part any more
		late.Stop()
	}
	u.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if u.creation != nil {
		defer context.AfterFunc(ctx, u.stopCreation)()
		u.created(<-u.creation)
	}
	if u.id == "" {
		return nil
	}
	err := u.store.AbortUpload(ctx, u.opts.Key, u.id)
	if err == nil && u.cut {
		err = u.store.AbortUpload(ctx, u.opts.Key, u.id)
	}
	if err == nil {
		u.id = ""
	}
	return err
}

func (u *Upload) tooLarge() error {
	text := fmt.Sprintf("uploading %s: more than the limit of %d bytes or %d parts (part size %d)", u.store.URI(u.opts.Key), u.store.maxObject,
		u.store.maxParts, u.store.partSize)
	return u.store.failure(export.Permanent, "S3_OBJECT_TOO_LARGE", text, nil)
}
