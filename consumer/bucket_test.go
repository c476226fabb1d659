package consumer_test

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"

	"exportd/consumer"
)

// bucket is an object store in memory with conditional writes. before, if set, is called with each step ("commit", "head", …) and its key before the step
// takes place, without the lock: it may block, write other objects, or fail the step. after is called when a commit has taken place: its error is a
// lost answer.
type bucket struct {
	mu      sync.Mutex
	objects map[string]object
	uploads map[string]string // open multipart uploads: id → key
	n       int

	partSize int // more than that is a multipart upload
	before   func(step, key string) error
	after    func(key string) error
	probe    func() error
}

type object struct {
	body     string
	etag     string
	metadata map[string]string
}

func newBucket() *bucket {
	return &bucket{objects: map[string]object{}, uploads: map[string]string{}, partSize: 1 << 20}
}

func (b *bucket) step(step, key string) error {
	if b.before == nil {
		return nil
	}
	return b.before(step, key)
}

func (b *bucket) get(key string) (object, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[key]
	return o, ok
}

func (b *bucket) put(key, body string, metadata map[string]string) object {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.putLocked(key, body, metadata)
}

func (b *bucket) putLocked(key, body string, metadata map[string]string) object {
	o := object{body, fmt.Sprintf("%x", md5.Sum([]byte(body))), metadata}
	b.objects[key] = o
	return o
}

func (b *bucket) NewUpload(ctx context.Context, o consumer.UploadOptions) consumer.Upload {
	return &memUpload{bucket: b, ctx: ctx, o: o}
}

func (b *bucket) Head(_ context.Context, key string) (consumer.Object, bool, error) {
	if err := b.step("head", key); err != nil {
		return consumer.Object{}, false, err
	}
	o, ok := b.get(key)
	return consumer.Object{Size: int64(len(o.body)), ETag: o.etag, Metadata: o.metadata}, ok, nil
}

func (b *bucket) AbortUpload(_ context.Context, key, id string) error {
	if err := b.step("abort", key); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.uploads, id)
	return nil
}

func (b *bucket) Delete(_ context.Context, key, ifMatch string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects[key].etag == ifMatch {
		delete(b.objects, key)
	}
	return nil
}

func (b *bucket) Probe(context.Context) error {
	if b.probe == nil {
		return nil
	}
	return b.probe()
}

type memUpload struct {
	bucket *bucket
	ctx    context.Context
	o      consumer.UploadOptions
	buf    strings.Builder
	id     string
}

func (u *memUpload) Write(p []byte) (int, error) {
	u.buf.Write(p)
	if u.id == "" && u.buf.Len() > u.bucket.partSize {
		u.bucket.mu.Lock()
		u.bucket.n++
		u.id = fmt.Sprintf("upload-%d", u.bucket.n)
		u.bucket.uploads[u.id] = u.o.Key
		u.bucket.mu.Unlock()
		if err := u.o.Created(u.ctx, u.id); err != nil {
			return 0, err
		}
	}
	return len(p), u.ctx.Err()
}

func (u *memUpload) Finish(context.Context) (int64, string, error) {
	sum := sha256.Sum256([]byte(u.buf.String()))
	return int64(u.buf.Len()), hex.EncodeToString(sum[:]), u.ctx.Err()
}

// condition is a commit that was refused, or whose answer was lost.
type condition struct{ precondition, ambiguous bool }

func (c condition) Error() string {
	return fmt.Sprintf("commit: precondition %t, ambiguous %t", c.precondition, c.ambiguous)
}
func (c condition) Precondition() bool { return c.precondition }
func (c condition) Ambiguous() bool    { return c.ambiguous }

func (u *memUpload) Commit(ctx context.Context, ifMatch string, extra map[string]string) (string, error) {
	if err := u.bucket.step("commit", u.o.Key); err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	o, err := u.commit(ifMatch, extra)
	if err != nil {
		return "", err
	}
	if u.bucket.after != nil {
		if err := u.bucket.after(u.o.Key); err != nil {
			return "", err
		}
	}
	return o.etag, nil
}

// commit compares and writes in one step, as a store does.
func (u *memUpload) commit(ifMatch string, extra map[string]string) (object, error) {
	metadata := maps.Clone(u.o.Metadata)
	u.bucket.mu.Lock()
	defer u.bucket.mu.Unlock()
	if u.id != "" {
		if _, open := u.bucket.uploads[u.id]; !open {
			return object{}, condition{ambiguous: true}
		}
	} else {
		maps.Copy(metadata, extra)
	}
	if u.bucket.objects[u.o.Key].etag != ifMatch {
		return object{}, condition{precondition: true}
	}
	delete(u.bucket.uploads, u.id)
	return u.bucket.putLocked(u.o.Key, u.buf.String(), metadata), nil
}

func (u *memUpload) Abort(context.Context) error {
	if u.id == "" {
		return nil
	}
	return u.bucket.AbortUpload(context.Background(), u.o.Key, u.id)
}

func (u *memUpload) Moved() int64 { return 0 }

// sourceFunc is an export function in Go.
type sourceFunc struct {
	export func(ctx context.Context, key string, w io.Writer) (int64, error)
	probe  func() error
}

func (s sourceFunc) Probe(context.Context) error {
	if s.probe == nil {
		return nil
	}
	return s.probe()
}

var errGone = errors.New("the wire was cut")
