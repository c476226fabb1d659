package export

import (
	"regexp"
	"time"
)

// JobStatus is the state of a job.
type JobStatus string

const (
	// Submitted: stored, nothing claimed yet.
	Submitted JobStatus = "SUBMITTED"
	// InProgress: a chunk has been claimed. Moved on by whoever settles the last chunk, or by the sweeper.
	InProgress JobStatus = "IN_PROGRESS"
	// Cancelling: between the order to cancel and the end of the last running chunk. Moved on like InProgress.
	Cancelling JobStatus = "CANCELLING"
	// Completed: every chunk is DONE. Final.
	Completed JobStatus = "COMPLETED"
	// Failed: a chunk was dead-lettered. Moved on only by a re-drive.
	Failed JobStatus = "FAILED"
	// Cancelled: ended by order. Moved on only by a re-drive.
	Cancelled JobStatus = "CANCELLED"
)

// Ended says whether the job has an outcome that everyone may see.
func (s JobStatus) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// OnFailure says what a dead-lettered chunk does to the rest of its job.
type OnFailure string

const (
	// FailFast: the first dead-lettered chunk cancels what has not started and stops what runs.
	FailFast OnFailure = "FAIL_FAST"
	// Continue: every chunk is tried; the job fails at its end.
	Continue OnFailure = "CONTINUE"
)

// Compression of the file.
type Compression string

const (
	None Compression = "NONE"
	Gzip Compression = "GZIP"
	Zstd Compression = "ZSTD"
)

// Extension of the file name, with its dot.
func (c Compression) Extension() string {
	switch c {
	case Gzip:
		return ".csv.gz"
	case Zstd:
		return ".csv.zst"
	default:
		return ".csv"
	}
}

// Job is a submission as its owner sees it. The chunk counts add up to Total.
type Job struct {
	ID        string
	Tenant    string
	Status    JobStatus
	Run       int // 1, and one more with every re-drive
	Total     int
	Pending   int
	Running   int
	Retrying  int
	Done      int
	Failed    int
	Cancelled int

	FilesGenerated int
	FilesReused    int
	RowCount       int64
	ByteCount      int64
	ErrorMessage   string

	CreatedAt   time.Time
	UpdatedAt   time.Time
	StartedAt   *time.Time
	CompletedAt *time.Time
}

var jobID = regexp.MustCompile(`^J[0-9]{8}_[0-9]{6,18}$`)

// ValidJobID says whether s has the form J<yyyymmdd>_<number, at least 6 digits>.
func ValidJobID(s string) bool { return jobID.MatchString(s) }
