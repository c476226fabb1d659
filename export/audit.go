package export

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"
)

// Actor is somebody who asks for something. Forwarded and UserAgent are their own words.
type Actor struct {
	Tenant    string
	Role      string // submitter or operator; empty: nobody known
	Token     string // the first digits of the token's sha256, to find its line in the tokens file; empty without tokens
	Address   string
	Forwarded string // for whom a proxy says it asks
	UserAgent string
	Via       string // api, or console
	RequestID string
	TraceID   string
}

// Order is what an Actor wants done. The store leaves an audit line of it in the transaction that does it.
type Order struct {
	Actor
	Action string          // the operation's name in the API
	Filter json.RawMessage // by which the job was found, if it was
}

// AuditLine is an order that was done, or something that was refused.
type AuditLine struct {
	ID int64
	At time.Time
	Order
	JobID, JobTenant string
	Chunks           *int   // put back, or cancelled; of an order that was done
	Status           int    // of HTTP; of an order that was done 0
	Problem          string // why it was refused
}

// AuditFilter picks lines. The zero value of a field leaves it out.
type AuditFilter struct {
	Tenant, Token, Action, JobID string
	From, To                     time.Time // at or after, and before
}

// AuditPlace is where a list of lines goes on: behind that one. Lists run from the newest to the oldest.
type AuditPlace struct {
	At time.Time
	ID int64
}

type orderKey struct{}

// WithOrder says on whose order the store is called.
func WithOrder(ctx context.Context, o Order) context.Context {
	return context.WithValue(ctx, orderKey{}, o)
}

// OrderOf is the order of the context; one of nobody if it has none.
func OrderOf(ctx context.Context) Order {
	o, _ := ctx.Value(orderKey{}).(Order)
	return o
}

// Words makes a stranger's text fit for one line of at most n bytes: valid UTF-8 without what controls a terminal, cut between characters.
func Words(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if len(s) <= n {
		return s
	}
	cut := 0
	for i := range s {
		if i > n-len("…") {
			break
		}
		cut = i
	}
	return s[:cut] + "…"
}
