package consumer

import (
	"context"
	"io"
	"time"

	"exportd/export"
)

// store is what the consumer asks of the truth database. Errors other than the export package's own are taken as "no answer": the call is repeated, so every
// call here must be repeatable.
type store interface {
	Claim(ctx context.Context, ref export.Ref, claimID string) (*export.Claim, export.Refusal, error)
	Renew(ctx context.Context, claims []*export.Claim) (map[string]export.Renewal, error)
	RecordUpload(ctx context.Context, c *export.Claim, objectKey, uploadID string) error
	Announce(ctx context.Context, c *export.Claim, objectKey string, facts export.Facts) error
	Done(ctx context.Context, c *export.Claim, f export.File, reused bool) error
	Retry(ctx context.Context, c *export.Claim, why *export.Failure, delay time.Duration) error
	GiveBack(ctx context.Context, c *export.Claim, why *export.Failure, delay time.Duration) error
	DeadLetter(ctx context.Context, c *export.Claim, why *export.Failure) error
	FileOf(ctx context.Context, ref export.Ref, claimID, objectKey string) (*export.File, error)
	// FileNeeded says whether the registry names the file, or a claim for the same one is at work.
	FileNeeded(ctx context.Context, c *export.Claim, f export.File) (bool, error)
	EndingJobs(ctx context.Context, jobs []string) ([]string, error)
	Heartbeat(ctx context.Context, host, version string, concurrency, inFlight int) error
	Goodbye(ctx context.Context) error
	TakeDebts(ctx context.Context, limit int, age time.Duration) ([]export.Debt, error)
	ReturnDebts(ctx context.Context, unsent []export.Debt) error
	ParkAsItCame(ctx context.Context, m export.Message) error
}

// source runs the export function. It writes at least once a second while rows arrive, so that a stream that does not move can be seen.
type source interface {
	Export(ctx context.Context, key string, date export.Date, w io.Writer) (rows int64, err error)
	Probe(ctx context.Context) error
}

// Objects is the bucket.
type Objects interface {
	NewUpload(ctx context.Context, o UploadOptions) Upload
	Head(ctx context.Context, key string) (o Object, found bool, err error)
	// AbortUpload is no error when there is no such upload.
	AbortUpload(ctx context.Context, key, uploadID string) error
	// Delete removes the object if its ETag is still the one given.
	Delete(ctx context.Context, key, ifMatch string) error
	Probe(ctx context.Context) error
}

// UploadOptions of one object.
type UploadOptions struct {
	Key, ContentType, ContentEncoding string
	Metadata                          map[string]string
	// Created is called with the ID of a multipart upload before its first part; its error ends the upload.
	Created func(ctx context.Context, uploadID string) error
}

// Upload is an object of which nothing is visible before Commit.
type Upload interface {
	io.Writer
	// Finish ends the writing and answers the facts of the bytes; only the last step is left.
	Finish(ctx context.Context) (bytes int64, sha256 string, err error)
	// Commit makes the object visible if the one at its key still has the ETag ifMatch, or if there is none when ifMatch is empty. An error with
	// Precondition() or Ambiguous() true asks the caller to look at the object; Commit may then be called again. extra is further metadata, for
	// objects written in one part.
	Commit(ctx context.Context, ifMatch string, extra map[string]string) (etag string, err error)
	// Abort leaves nothing behind; after a Commit that succeeded it does nothing.
	Abort(ctx context.Context) error
	// Moved counts the bytes that the store has taken.
	Moved() int64
}

// Object is what a HEAD tells.
type Object struct {
	Size     int64
	ETag     string
	Metadata map[string]string
}

// Intake hands out messages of the work queue. After Drain it hands out nothing more and holds acknowledgements back until Close.
type Intake interface {
	Deliveries() <-chan Delivery
	Pause()
	Resume()
	Drain()
	Close(ctx context.Context) error
}

// Delivery is one message. Ack it once, after the database has what it led to.
type Delivery interface {
	Message() export.Message
	Ack() error
}
