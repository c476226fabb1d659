package export

import "time"

// Cell is a chunk in the picture of its job.
type Cell struct {
	Key    string
	Date   Date
	Status ChunkStatus
}

// FailedChunk is a chunk whose last attempt failed.
type FailedChunk struct {
	Ref
	Tenant    string
	JobStatus JobStatus
	Status    ChunkStatus
	Attempts  int
	FailedAt  *time.Time // nil while it will be tried again
	ErrorCode string
	Error     string // its beginning
}

// Activity is what ended in each minute of the last hour, oldest first.
type Activity struct {
	Minutes []Minute
	Partial bool // more was under way than can be counted at once
}

// Minute counts the chunks that ended in it.
type Minute struct {
	At           time.Time
	Done, Failed int
}

// Counts is an installation at a glance, or a tenant.
type Counts struct {
	Jobs map[JobStatus]int // those that are open, and those that ended within a day
	Dead int               // dead letters
	More bool              // only the newest ones were looked at
}
