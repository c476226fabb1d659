package export

import "time"

// Ending is a job whose outcome is pinned: it ends once its manifest is written.
type Ending struct {
	JobID   string
	Run     int
	Outcome JobStatus // COMPLETED, FAILED or CANCELLED
}

// ManifestChunk is one chunk as the manifest lists it.
type ManifestChunk struct {
	ChunkKey  string
	Key       string
	Date      Date
	Status    ChunkStatus
	ObjectKey string // when DONE
	Facts
	Reused    bool
	ErrorCode string // when not DONE
	Error     string
}

// ExpiredClaim is a claim whose lease is over and whose chunk will not be tried again: out of attempts, or its job is ending.
type ExpiredClaim struct {
	Ref
	Overtaken
	Overdue   time.Duration // since its lease was over; an hour at most
	Attempts  int
	RequestID string
}
