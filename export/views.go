package export

import "time"

// Place is where a list of jobs goes on: behind the job created then, with that ID. Lists run from the newest to the oldest.
type Place struct {
	CreatedAt time.Time
	JobID     string
}

// JobFilter picks jobs. The zero value of a field leaves it out.
type JobFilter struct {
	Tenant string
	Status JobStatus
	Key    string    // jobs with a chunk of the key
	From   time.Time // created at or after
	To     time.Time // created before
}

// RedriveFilter picks ended jobs that have chunks to re-drive.
type RedriveFilter struct {
	JobFilter
	ErrorCode string // jobs with a dead-lettered or cancelled chunk of the code
}

// Redrivable is a job that a RedriveFilter picked.
type Redrivable struct {
	JobID  string
	Chunks int // to be put back
}

// ChunkFilter picks chunks of a job. The zero value of a field leaves it out.
type ChunkFilter struct {
	Status ChunkStatus
	Key    string
}

// ChunkView is a chunk as the owner of its job sees it.
type ChunkView struct {
	Ref
	Status      ChunkStatus
	Attempts    int
	NextRetryAt *time.Time // when RETRY_WAIT
	StartedAt   *time.Time // of the last attempt
	CompletedAt *time.Time
	ObjectKey   string // when DONE
	Facts              // when DONE
	Reused      bool
	Superseded  bool // its file has been made anew since
	ErrorCode   string
	Error       string
}

// ChunkFile is the file of a chunk that is DONE. It never changes, nor is it ever none again.
type ChunkFile struct {
	Key       string
	Date      Date
	ObjectKey string
	Facts
	Reused bool
}

// Attempt is one claim of a chunk.
type Attempt struct {
	Number    int
	Worker    string
	StartedAt *time.Time
	EndedAt   *time.Time // nil while it runs
	Outcome   string     // RUNNING, DONE, RETRY, GIVEN_BACK, LOST, DLQ or CANCELLED
	ErrorCode string
	Error     string
}

// Worker is a live member of the fleet.
type Worker struct {
	ID          string
	Host        string
	Version     string
	Concurrency int
	InFlight    int // as of its last heartbeat
	StartedAt   time.Time
	HeartbeatAt time.Time
	Chunks      []WorkerChunk // that it holds a claim of
}

// WorkerChunk is a chunk at work.
type WorkerChunk struct {
	JobID     string
	ChunkKey  string
	StartedAt time.Time
}

// QueueDepth is what the broker says of a queue. Without Known the numbers mean nothing, and Reason says why.
type QueueDepth struct {
	Queue                         string
	Known                         bool
	Reason                        string
	Messages, InFlight, Consumers int64
}
