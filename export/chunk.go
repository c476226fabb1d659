package export

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ChunkStatus is the state of one chunk.
type ChunkStatus string

const (
	// Pending: owed a run. Moved on by a claim, or by cancel and fail-fast. Its debt survives every crash.
	Pending ChunkStatus = "PENDING"
	// Running: a claim is current. Moved on by its owner; when the lease is over by the next claim or the sweeper.
	Running ChunkStatus = "RUNNING"
	// RetryWait: owed a run at next_retry_at. Moved on like Pending.
	RetryWait ChunkStatus = "RETRY_WAIT"
	// Done: the file exists and its facts are recorded. Final.
	Done ChunkStatus = "DONE"
	// DeadLetter: not tried again by itself. Moved on only by a re-drive.
	DeadLetter ChunkStatus = "DLQ"
	// ChunkCancelled: its job ended first. Moved on only by a re-drive.
	ChunkCancelled ChunkStatus = "CANCELLED"
)

// Open says whether the chunk can still change by itself.
func (s ChunkStatus) Open() bool { return s == Pending || s == Running || s == RetryWait }

// Ref names a chunk: a job, a key and an effective date.
type Ref struct {
	JobID string
	Key   string
	Date  Date
}

// ChunkKey is the chunk's name within its job: key=<KEY>:date=<YYYYMMDD>.
func (r Ref) ChunkKey() string { return "key=" + r.Key + ":date=" + r.Date.String() }

// String is for logs and errors.
func (r Ref) String() string { return r.JobID + "/" + r.ChunkKey() }

// Compare orders refs as the database locks them: by job, then by chunk key, bytewise.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(strings.Compare(r.JobID, o.JobID), strings.Compare(r.ChunkKey(), o.ChunkKey()))
}

// ParseChunkKey is the inverse of Ref.ChunkKey. The key may hold any character, ':' and '=' too: the date is always the last part.
func ParseChunkKey(s string) (key string, date Date, err error) {
	rest, ok := strings.CutPrefix(s, "key=")
	i := strings.LastIndex(rest, ":date=")
	if !ok || i < 0 {
		return "", 0, fmt.Errorf("%q is not of the form key=<KEY>:date=<YYYYMMDD>", s)
	}
	if date, err = ParseDate(rest[i+len(":date="):]); err != nil {
		return "", 0, err
	}
	return rest[:i], date, nil
}

// ErrStale is returned to whoever acts under a claim that is not current any more: change nothing, upload nothing more, park nothing.
var ErrStale = errors.New("stale claim: the chunk is not ours any more")

// ErrEnding is the cause with which the chunks of a cancelled or failing job are stopped.
var ErrEnding = errors.New("the job is ending")

// Claim is a worker's time-limited right to run a chunk.
type Claim struct {
	ID string // UUID drawn by the worker: the fencing token
	Ref
	Attempt   int       // 1 for the first; counted at the claim
	StartedAt time.Time // database clock
	Job       ClaimJob
	ObjectKey string // of the chunk's file
	Recorded  *File  // the newest one known under that key; nil if there is none
	// Previous is the claim that this one took over; nil if the chunk was waiting.
	Previous *Overtaken
}

// ClaimJob is what a worker needs to know of the chunk's job.
type ClaimJob struct {
	CreatedAt   time.Time // database clock
	Compression Compression
	Reuse       bool
	RequestID   string
	Traceparent string
}

// Overtaken is a claim whose lease ran out, as its row tells it. Its object may be there all the same: after the last step of an upload the owner
// may have died before it could settle. Facts are known if it announced them; those of an object written in one part are on the object as well.
type Overtaken struct {
	ClaimID   string
	StartedAt time.Time // database clock
	ObjectKey string
	UploadID  string // of its multipart upload; "" if it had begun none
	Facts     *Facts
}

// Facts describe the bytes of a file.
type Facts struct {
	Rows   int64  // data rows, without the header line
	Bytes  int64  // of the object, after compression
	SHA256 string // of the object, hex
}

// File is an object in the bucket as the database knows it.
type File struct {
	ObjectKey string
	Facts
	ETag           string // opaque
	ClaimID        string // the claim that wrote it
	ClaimStartedAt time.Time
}

// Debt is a chunk that is owed a run: what the relay publishes.
type Debt struct {
	ID int64 // of this debt; a later debt of the same chunk has another
	Ref
	Attempt     int // the number that the next claim will get
	Priority    int // 0 to 9
	Sends       int // how often it was published before
	RequestID   string
	Traceparent string
}

// Refusal says why a chunk was not claimed. None of them asks the worker for anything but to forget the message.
type Refusal string

const (
	RefusedUnknown Refusal = "unknown" // no such chunk
	RefusedRunning Refusal = "running" // somebody else's lease is current
	RefusedWaiting Refusal = "waiting" // its retry is not due
	RefusedEnding  Refusal = "ending"  // its job is ending
	RefusedEnded   Refusal = "ended"   // DONE, DLQ or CANCELLED
)

// Renewal is the answer to the renewal of one claim.
type Renewal int

const (
	RenewalLost   Renewal = iota // the claim is not current any more; also the answer for claims of which nothing is known
	RenewalLocked                // current, but its row is locked by a settlement or a neighbour: ask again
	Renewed                      // until a lease from now
)
