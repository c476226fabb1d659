package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
)

const idempotencyHeader = "Idempotency-Key"

type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"257" example:"req-550e8400" doc:"Bare or quoted, at most 255 bytes. The same key with the same request gives the first answer again, for 7 days."`

	gin *gin.Context
}

// Resolve keeps hold of the request: its body is read by our rules, not huma's.
func (in *submitInput) Resolve(ctx huma.Context) []error {
	in.gin = humagin.Unwrap(ctx)
	return nil
}

type submitOutput struct {
	Location   string `header:"Location" example:"/jobs/J20260102_000123"`
	RetryAfter int    `header:"Retry-After" example:"1" doc:"Seconds to wait before the first look at the job."`
	Replayed   string `header:"Idempotency-Replayed" doc:"true when this is the first answer again."`
	Body       JobView
}

func (a *API) registerSubmit(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "submitJob", Method: http.MethodPost, Path: "/jobs", Tags: []string{"jobs"},
		Summary:            "Submit a job",
		Description:        "Each key with each of its dates is one chunk, and one file. Nothing is stored when anything is wrong, and every fault is named. Repeat a request whose answer was lost with the same idempotency key.",
		DefaultStatus:      http.StatusAccepted,
		SkipValidateParams: true,
		Responses:          responses(http.StatusAccepted, "The job is stored and will run").problems(kindValidation, kindTimeout, kindTooLarge, kindMediaType, kindTooManyChunks, kindMismatch, kindCallback, kindUnavailable),
	}, a.submit)
	// Documented after the fact: huma reads, by its own rules, every body that it knows of.
	h.OpenAPI().Paths["/jobs"].Post.RequestBody = submissionDoc(h)
}

func (a *API) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	body, err := a.readJSON(in.gin)
	if err != nil {
		return nil, err
	}
	submission, err := export.DecodeSubmission(body, a.Limits)
	submission.IdempotencyKey, err = mergeKeys(submission.IdempotencyKey, in.gin.Request.Header.Values(idempotencyHeader), err)
	if err != nil {
		return nil, err
	}
	if err := a.checkCallback(submission.CallbackURL); err != nil {
		return nil, err
	}
	r := requestOf(ctx)
	// A client that leaves now must not undo half of it: from here the store has its own time.
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeouts.Submit)
	defer cancel()
	storing, traceparent, end := a.traceSubmission(storing, r.traceparent)
	job, replayed, err := a.Store.Submit(storing, export.SubmitRequest{
		Tenant: r.caller.tenant, Submission: submission, RequestID: r.id, Traceparent: traceparent,
	})
	if a.Trace != nil {
		end(err, slog.String("exportd.job", job.ID), slog.Int("exportd.chunks", job.Total), slog.Bool("exportd.replayed", replayed))
	}
	if err != nil {
		return nil, err
	}
	a.metrics.submission(replayed, job.Total)
	a.Log.Info("job submitted", "jobId", job.ID, "chunks", job.Total, "replayed", replayed, "requestId", r.id, "tenant", r.caller.tenant,
		"role", r.caller.role(), "token", r.caller.fingerprint(), "address", r.sender.address)
	if a.Wake != nil {
		a.Wake()
	}
	out := &submitOutput{Location: "/jobs/" + job.ID, RetryAfter: 1, Body: a.jobView(asSubmitted(job))}
	if replayed {
		out.Replayed = strconv.FormatBool(true)
	}
	return out, nil
}

// asSubmitted is the job as it was when it was stored, so that a replay is the first answer again, however far the job has come.
func asSubmitted(j export.Job) export.Job {
	return export.Job{
		ID: j.ID, Tenant: j.Tenant, Status: export.Submitted, Total: j.Total, Pending: j.Total, CreatedAt: j.CreatedAt, UpdatedAt: j.CreatedAt,
	}
}

// mergeKeys joins the key of the body with those of the header. Faults are added to those that the body has already.
func mergeKeys(key string, headers []string, bodyErr error) (string, error) {
	invalid := &export.Invalid{}
	if bodyErr != nil && !errors.As(bodyErr, &invalid) {
		return "", bodyErr
	}
	var wrong []fault
	for _, header := range headers {
		fromHeader, err := parseIdempotencyKey(header)
		switch {
		case err != nil:
			wrong = append(wrong, fault{Header: idempotencyHeader, Detail: err.Error()})
		case key != "" && key != fromHeader:
			wrong = append(wrong, fault{Header: idempotencyHeader, Detail: "differs from the other idempotency key of this request"})
		default:
			key = fromHeader
		}
	}
	if len(wrong) > 0 {
		invalid.TooMany = 0 // no longer the only fault
		p := invalidProblem(invalid)
		p.Errors = append(p.Errors, wrong...)
		p.Detail = strconv.Itoa(len(p.Errors)+invalid.More) + " faults, see errors"
		return "", p
	}
	return key, bodyErr
}

var errQuotedKey = errors.New(`must be a bare key or a quoted string: "key"`)

// parseIdempotencyKey reads the header's value: a structured-field string (RFC 9651, section 4.2.5), or the bare key.
func parseIdempotencyKey(value string) (string, error) {
	value = strings.TrimSpace(value)
	if inner, quoted := strings.CutPrefix(value, `"`); quoted {
		var b strings.Builder
		for i := 0; ; i++ {
			if i >= len(inner) {
				return "", errQuotedKey
			}
			c := inner[i]
			if c == '"' {
				if i != len(inner)-1 {
					return "", errQuotedKey
				}
				break
			}
			if c == '\\' {
				i++
				if i >= len(inner) || inner[i] != '"' && inner[i] != '\\' {
					return "", errQuotedKey
				}
				c = inner[i]
			}
			b.WriteByte(c)
		}
		value = b.String()
	}
	return value, export.CheckIdempotencyKey(value)
}
