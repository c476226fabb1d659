package export

import (
	"crypto/sha256"
	"encoding/json"
	"strconv"
)

// DefaultPriority is the priority of a submission that names none.
const DefaultPriority = 4

// Item is a key with its effective dates.
type Item struct {
	Key   string
	Dates []Date
}

// Submission is what a client orders. As [DecodeSubmission] returns it, it is normalised: one item per key, keys ascending bytewise, dates
// ascending without repeats, defaults filled in.
type Submission struct {
	Items          []Item
	Compression    Compression
	OnFailure      OnFailure
	Reuse          bool
	Priority       int    // 0 to 9
	CallbackURL    string // empty: none
	IdempotencyKey string // empty: none
}

// SubmitRequest is a submission and where it came from.
type SubmitRequest struct {
	Tenant string
	Submission
	RequestID   string
	Traceparent string // W3C form; empty: none
}

// Total is the number of chunks.
func (s *Submission) Total() int {
	n := 0
	for i := range s.Items {
		n += len(s.Items[i].Dates)
	}
	return n
}

// Refs names the chunks, in the order of the items and their dates.
func (s *Submission) Refs(jobID string) []Ref {
	refs := make([]Ref, 0, s.Total())
	for _, it := range s.Items {
		for _, d := range it.Dates {
			refs = append(refs, Ref{JobID: jobID, Key: it.Key, Date: d})
		}
	}
	return refs
}

// Canonical is the submission as JSON, without its idempotency key: equal submissions give equal bytes, and DecodeSubmission reads them back.
// Hashes of it are stored, so a field that is added later must be left out while it has its default.
func (s *Submission) Canonical() []byte {
	size := 256 + len(s.CallbackURL)
	for i := range s.Items {
		size += len(s.Items[i].Key) + len(`{"key":"","effectiveDates":[]},`) + len(`"20250131",`)*len(s.Items[i].Dates)
	}
	b := make([]byte, 0, size)
	b = append(b, `{"items":[`...)
	for i, it := range s.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"key":`...)
		b = appendJSONString(b, it.Key)
		b = append(b, `,"effectiveDates":[`...)
		for j, d := range it.Dates {
			if j > 0 {
				b = append(b, ',')
			}
			b = append(b, '"')
			b = strconv.AppendInt(b, int64(d), 10) // years 1900 to 9999: always eight digits
			b = append(b, '"')
		}
		b = append(b, `]}`...)
	}
	b = append(b, `],"output":{"format":"CSV","compression":`...)
	b = appendJSONString(b, string(s.Compression))
	b = append(b, `},"onFailure":`...)
	b = appendJSONString(b, string(s.OnFailure))
	b = append(b, `,"reuse":`...)
	b = strconv.AppendBool(b, s.Reuse)
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, int64(s.Priority), 10)
	if s.CallbackURL != "" {
		b = append(b, `,"callbackUrl":`...)
		b = appendJSONString(b, s.CallbackURL)
	}
	return append(b, '}')
}

func appendJSONString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			quoted, _ := json.Marshal(s)
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// Hash tells requests apart: the same request after normalisation has the same hash.
func (s *Submission) Hash() [sha256.Size]byte { return sha256.Sum256(s.Canonical()) }
