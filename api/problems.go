package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

// problem is an error as clients see it: RFC 9457.
type problem struct {
	_ struct{} `additionalProperties:"true"`

	Type      string  `json:"type" example:"/problems/validation" doc:"Stable name of the kind of problem."`
	Title     string  `json:"title" example:"The request is not valid" doc:"The kind in words."`
	Status    int     `json:"status" example:"400"`
	Detail    string  `json:"detail" example:"1 fault, see errors" doc:"What happened this time."`
	RequestID string  `json:"requestId" example:"req-7f3a" doc:"Name of this request in our logs."`
	Errors    []fault `json:"errors,omitempty" nullable:"false" doc:"Every fault of the request, up to a hundred."`

	header http.Header
}

// fault is one thing wrong with a request: a place in the body, a header or a parameter.
type fault struct {
	_ struct{} `additionalProperties:"true"`

	Pointer   *string `json:"pointer,omitempty" example:"/items/0/effectiveDates/1" doc:"JSON pointer into the body; empty means the body as a whole."`
	Header    string  `json:"header,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Detail    string  `json:"detail" example:"\"20250230\" is not a day of the calendar"`
}

// huma asks for these.
func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) GetHeaders() http.Header   { return p.header }
func (p *problem) ContentType(string) string { return problemMedia }

const problemMedia = "application/problem+json"

// kind is a line of the table of problems.
type kind struct {
	name   string // the type is /problems/<name>
	status int
	title  string
}

var (
	kindBadRequest    = kind{"bad-request", http.StatusBadRequest, "The request cannot be read"}
	kindValidation    = kind{"validation", http.StatusBadRequest, "The request is not valid"}
	kindUnauthorized  = kind{"unauthorized", http.StatusUnauthorized, "A valid bearer token is needed"}
	kindForbidden     = kind{"forbidden", http.StatusForbidden, "This is not allowed"}
	kindNotFound      = kind{"not-found", http.StatusNotFound, "There is nothing here"}
	kindNoMethod      = kind{"method-not-allowed", http.StatusMethodNotAllowed, "The method is not allowed here"}
	kindEnded         = kind{"conflict", http.StatusConflict, "The state does not allow it"}
	kindTimeout       = kind{"request-timeout", http.StatusRequestTimeout, "The request took too long to arrive"}
	kindTooLarge      = kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large"}
	kindMediaType     = kind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body must be JSON"}
	kindTooManyChunks = kind{"too-many-chunks", http.StatusUnprocessableEntity, "The job has too many chunks"}
	kindMismatch      = kind{"idempotency-mismatch", http.StatusUnprocessableEntity, "The idempotency key was used with another request"}
	kindCallback      = kind{"callback-refused", http.StatusUnprocessableEntity, "The callback URL cannot be called"}
	kindTooMany       = kind{"too-many-requests", http.StatusTooManyRequests, "The client asks for too much at once"}
	kindUnavailable   = kind{"unavailable", http.StatusServiceUnavailable, "Not available at the moment"}
	kindInternal      = kind{"internal", http.StatusInternalServerError, "Something went wrong on our side"}
)

// kinds is the table, for those who read about it.
var kinds = []kind{
	kindBadRequest, kindValidation, kindUnauthorized, kindForbidden, kindNotFound, kindNoMethod, kindTimeout, kindEnded, kindTooLarge, kindMediaType,
	kindTooManyChunks, kindMismatch, kindCallback, kindTooMany, kindInternal, kindUnavailable,
}

func (k kind) problemType() string { return "/problems/" + k.name }

// Errors of this package, told apart by identity.
var (
	errNoRoute     = errors.New("there is no such resource")
	errNoMethod    = errors.New("see the header Allow")
	errNoToken     = errors.New("send a valid token: Authorization: Bearer <token>")
	errCrossOrigin = errors.New("a browser sent this request for another site")
	errOtherHost   = errors.New("this server answers requests for localhost only, and Host names another; to serve others start it with EXPORTD_TOKENS_FILE, or with EXPORTD_AUTH=none")
	errSlowBody    = errors.New("the body did not arrive in time")
	errBrokenBody  = errors.New("the body ended early or was not sent as HTTP demands")
	errTooLarge    = errors.New("the body is larger than allowed")
	errNotOperator = errors.New("this is for operators")
	errNotDone     = errors.New("the chunk is not DONE: it has no file")
	errNotEnded    = errors.New("the job has not ended: its manifest is not written yet")
	errNoManifest  = errors.New("the job has no manifest: it could not be written, or was removed")
	errMediaType   = errors.New("send Content-Type: application/json, in UTF-8 and without Content-Encoding")
)

// table turns errors into problems. The first line that fits counts; its detail, if empty, is the error's text.
var table = []struct {
	err    error
	kind   kind
	detail string
	header http.Header
}{
	{errNoRoute, kindNotFound, "", nil},
	{errNoMethod, kindNoMethod, "", nil},
	{errNoToken, kindUnauthorized, "", http.Header{"Www-Authenticate": {`Bearer realm="exportd"`}}},
	{errCrossOrigin, kindForbidden, "", nil},
	{errOtherHost, kindForbidden, "", nil},
	{errNotOperator, kindForbidden, "", nil},
	{errNotDone, kindEnded, "", nil},
	{errNotEnded, kindEnded, "", nil},
	{errNoManifest, kindNotFound, "", nil},
	{errSlowBody, kindTimeout, "", http.Header{"Connection": {"close"}}},
	{errBrokenBody, kindBadRequest, "", http.Header{"Connection": {"close"}}},
	{errTooLarge, kindTooLarge, "", http.Header{"Connection": {"close"}}},
	{errMediaType, kindMediaType, "", http.Header{"Accept": {"application/json"}}},
	{export.ErrNotFound, kindNotFound, "there is no such job or chunk", nil},
	{export.ErrEnded, kindEnded, "", nil},
	{export.ErrIdempotencyMismatch, kindMismatch, "use another key for another request", nil},
	{context.DeadlineExceeded, kindUnavailable, "no answer in time; a submission may have taken effect: repeat it with the same Idempotency-Key", http.Header{"Retry-After": {"5"}}},
	{context.Canceled, kindUnavailable, "the client left", nil},
}

// problem finds the problem of an error and logs what the client is not told.
func (a *API) problem(ctx context.Context, err error) *problem {
	r := requestOf(ctx)
	p := problemOf(err)
	p.RequestID = r.id
	r.problem = p.Type
	if p.Status >= http.StatusInternalServerError && ctx.Err() == nil {
		a.Log.ErrorContext(ctx, "request failed", "requestId", r.id, "error", err)
	}
	return p
}

func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if invalid, ok := errors.AsType[*export.Invalid](err); ok {
		return invalidProblem(invalid)
	}
	for _, line := range table {
		if errors.Is(err, line.err) {
			p := newProblem(line.kind, line.detail)
			switch {
			case line.err == export.ErrEnded: // wrapped with the state of the job
				p.Detail = strings.TrimSuffix(err.Error(), ": "+line.err.Error())
			case p.Detail == "":
				p.Detail = line.err.Error()
			}
			p.header = line.header.Clone()
			return p
		}
	}
	if export.FailureOf(err).Class == export.Outage {
		p := newProblem(kindUnavailable, "a dependency does not answer; try again later")
		p.header = http.Header{"Retry-After": {"5"}}
		return p
	}
	return newProblem(kindInternal, "the log knows more under the requestId")
}

func newProblem(k kind, detail string) *problem {
	return &problem{Type: k.problemType(), Title: k.title, Status: k.status, Detail: detail}
}

func invalidProblem(invalid *export.Invalid) *problem {
	k := kindValidation
	if invalid.TooMany > 0 {
		k = kindTooManyChunks
	}
	p := newProblem(k, "1 fault, see errors")
	if n := len(invalid.Faults) + invalid.More; n > 1 {
		p.Detail = fmt.Sprintf("%d faults, see errors", n)
	}
	if invalid.More > 0 {
		p.Detail += fmt.Sprintf(" for the first %d", len(invalid.Faults))
	}
	for _, f := range invalid.Faults {
		p.Errors = append(p.Errors, fault{Pointer: &f.Pointer, Detail: f.Detail})
	}
	return p
}

// humaProblem gives huma's own errors (of parameters, mostly) the common form.
func humaProblem(requestID string, status int, message string, errs []error) *problem {
	k := kindBadRequest
	if status >= http.StatusInternalServerError {
		k, message = kindInternal, "the log knows more under the requestId"
	}
	p := newProblem(k, message)
	p.RequestID = requestID
	for _, err := range errs {
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok && k != kindInternal {
			p.Errors = append(p.Errors, fault{Parameter: d.Location, Detail: d.Message})
		}
	}
	return p
}

// fail answers with the problem of err, outside of huma.
func (a *API) fail(c *gin.Context, err error) {
	p := a.problem(c.Request.Context(), err)
	for name, values := range p.header {
		c.Writer.Header()[name] = values
	}
	body, _ := json.Marshal(p)
	c.Abort()
	c.Data(p.Status, problemMedia, body)
}
