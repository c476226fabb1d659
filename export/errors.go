package export

import "errors"

// ErrNotFound: there is no such job or chunk, or it belongs to another tenant.
var ErrNotFound = errors.New("not found")

// ErrIdempotencyMismatch: the idempotency key was used before, with another request.
var ErrIdempotencyMismatch = errors.New("the idempotency key was used with another request")

// ErrEnded: the job has ended, or is just ending, in a way that rules the order out.
var ErrEnded = errors.New("the job has ended")
