package export

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"
)

// Class says what a failure means for the chunk that met it.
type Class int

const (
	// Transient: try again later, at the cost of an attempt. Also everything unknown.
	Transient Class = iota
	// Permanent: trying again cannot help.
	Permanent
	// Outage: a shared dependency does not answer, throttles or is full. Believed only when a probe without a chunk fails too; then the
	// chunk is given back without spending an attempt. Otherwise it counts as Transient.
	Outage
)

func (c Class) String() string { return [...]string{"transient", "permanent", "outage"}[c] }

// Failure is an error whose class and stable code are known. Adapters make them from SQLSTATEs and S3 codes, never from texts.
type Failure struct {
	Class Class
	Code  string // stable, upper case: SQL_42883, S3_NO_SUCH_BUCKET, STALLED
	// Dependency is "source" or "s3" when Class is Outage.
	Dependency string
	Err        error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// ErrOnceMore is in the chain of a failure that costs no attempt at first: the same would go well at once.
var ErrOnceMore = errors.New("to be tried again at once")

// Codes of failures that no dependency reports.
const (
	CodeInternal   = "INTERNAL"    // unknown
	CodeWorkerLost = "WORKER_LOST" // the lease ran out and nobody settled
	CodeTimeout    = "TIMEOUT"     // EXPORTD_CHUNK_TIMEOUT
	CodeStalled    = "STALLED"     // EXPORTD_STALL_TIMEOUT
)

// FailureOf finds the Failure in err's chain; an unknown error is Transient with CodeInternal.
func FailureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Failure{Class: Transient, Code: CodeTimeout, Err: err}
	}
	return &Failure{Class: Transient, Code: CodeInternal, Err: err}
}

// MaxErrorText is the length in bytes of the error texts that are stored and sent.
const MaxErrorText = 4096

// ErrorText makes the text of an error fit for storage: valid UTF-8 without NUL, at most MaxErrorText bytes, cut between characters.
func ErrorText(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) <= MaxErrorText {
		return s
	}
	cut := MaxErrorText - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
