package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
)

const (
	// mostRedriven is how many jobs one call re-drives: each is a transaction of its own.
	mostRedriven = 1000
	// mostCounted is how many jobs a dry run counts.
	mostCounted = 1_000_000
)

// redriveBody documents what decodeRedrive reads.
type redriveBody struct {
	Status    string `json:"status,omitempty" enum:"FAILED,CANCELLED" doc:"Of the jobs; both if it is left out."`
	Key       string `json:"key,omitempty" doc:"Jobs with a chunk of the key."`
	From      string `json:"from,omitempty" doc:"Jobs created then or later: RFC 3339, or a UTC day."`
	To        string `json:"to,omitempty" doc:"Jobs created before then: RFC 3339; a UTC day is included."`
	ErrorCode string `json:"errorCode,omitempty" doc:"Jobs with a dead-lettered or cancelled chunk of the code."`
	DryRun    bool   `json:"dryRun,omitempty" doc:"Only count."`
}

const redriveExample = `{"status": "FAILED", "key": "ABC", "from": "2026-01-02", "to": "2026-01-02", "errorCode": "SQL_57014", "dryRun": true}`

type redriveAllInput struct{ gin *gin.Context }

// Resolve keeps hold of the request: its body is read by our rules, not huma's.
func (in *redriveAllInput) Resolve(ctx huma.Context) []error {
	in.gin = humagin.Unwrap(ctx)
	return nil
}

// redriveAllView says what a re-drive by filter did, or would do.
type redriveAllView struct {
	_ struct{} `additionalProperties:"true"`

	Jobs     int  `json:"jobs" example:"2"`
	Redriven int  `json:"redriven" example:"7" doc:"Chunks put back; with dryRun those that would be."`
	DryRun   bool `json:"dryRun" example:"false"`
	More     bool `json:"more" example:"false" doc:"Not all were reached: repeat the call."`
}

type redriveAllOutput struct{ Body redriveAllView }

func (a *API) registerRedrive(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "redriveJobs", Method: http.MethodPost, Path: "/redrive", Tags: []string{"jobs"},
		Summary:       "Re-drive every job that matches a filter",
		Description:   "Like a re-drive of each job; {} matches all that have ended FAILED or CANCELLED. One call reaches 1000 jobs.",
		DefaultStatus: http.StatusAccepted,
		Responses:     responses(http.StatusAccepted, "The chunks will run").problems(kindValidation, kindTimeout, kindTooLarge, kindMediaType, kindUnavailable),
	}, a.redriveAll)
	h.OpenAPI().Paths["/redrive"].Post.RequestBody = jsonBody(schemaOf[redriveBody](h.OpenAPI()), redriveExample)
}

func (a *API) redriveAll(ctx context.Context, in *redriveAllInput) (*redriveAllOutput, error) {
	body, err := a.readJSON(in.gin)
	if err != nil {
		return nil, err
	}
	filter, dryRun, err := decodeRedrive(body)
	if err != nil {
		return nil, err
	}
	filter.Tenant = requestOf(ctx).caller.sees()
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeouts.Submit)
	defer cancel()
	storing = export.WithOrder(storing, redriveOrder(requestOf(ctx), filter))
	limit := mostRedriven
	if dryRun {
		limit = mostCounted
	}
	jobs, err := a.Store.Redrivable(storing, filter, limit)
	if err != nil {
		return nil, err
	}
	out := &redriveAllOutput{Body: redriveAllView{DryRun: dryRun, More: len(jobs) == limit}}
	for _, job := range jobs {
		n := job.Chunks
		if !dryRun {
			n, err = a.Store.Redrive(storing, filter.Tenant, job.JobID)
			switch {
			case errors.Is(err, export.ErrEnded), errors.Is(err, export.ErrNotFound): // somebody else was first
				continue
			case errors.Is(err, context.DeadlineExceeded) && out.Body.Jobs > 0:
				out.Body.More = true
				return out, nil
			case err != nil:
				return nil, err
			}
			a.redriven(job.JobID)
		}
		out.Body.Jobs++
		out.Body.Redriven += n
	}
	return out, nil
}

// decodeRedrive reads the filter and reports every fault of it.
func decodeRedrive(body []byte) (f export.RedriveFilter, dryRun bool, err error) {
	bad := &export.Invalid{}
	fault := func(name string, err error) {
		bad.Faults = append(bad.Faults, export.Fault{Pointer: "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name), Detail: err.Error()})
	}
	fields, repeated, ok := members(body)
	if !ok {
		return f, false, &export.Invalid{Faults: []export.Fault{{Detail: "is not one JSON object in UTF-8; {} matches all jobs that can be re-driven"}}}
	}
	known := []string{"status", "key", "from", "to", "errorCode", "dryRun"}
	text := map[string]string{}
	for name, raw := range fields {
		var s string
		switch {
		case !slices.Contains(known, name):
			if len(bad.Faults) == export.MaxFaults || len(name) > 128 {
				bad.More++
				continue
			}
			fault(name, errors.New("is not a known field; known are "+strings.Join(known, ", ")))
		case repeated[name]:
			fault(name, errors.New("is given more than once"))
		case name == "dryRun":
			if json.Unmarshal(raw, &dryRun) != nil || string(raw) == "null" {
				fault(name, errors.New("must be a boolean"))
			}
		case json.Unmarshal(raw, &s) != nil || s == "" || strings.ContainsRune(s, utf8.RuneError): // as which half of a surrogate pair is read
			fault(name, errors.New("must be a string of whole characters, and not empty"))
		default:
			text[name] = s
		}
	}
	f.JobFilter = jobFilter(text["status"], text["key"], text["from"], text["to"], fault)
	if f.Status != "" && f.Status != export.Failed && f.Status != export.Cancelled {
		fault("status", errors.New("must be FAILED or CANCELLED"))
	}
	if f.ErrorCode = text["errorCode"]; f.ErrorCode != "" && export.CheckKey(f.ErrorCode) != nil {
		fault("errorCode", errors.New("is not an error code"))
	}
	if len(bad.Faults)+bad.More > 0 {
		slices.SortFunc(bad.Faults, func(a, b export.Fault) int { return strings.Compare(a.Pointer, b.Pointer) })
		return f, false, bad
	}
	return f, dryRun, nil
}

// members are the fields of the JSON object that body is, and the names of those given more than once.
func members(body []byte) (fields map[string]json.RawMessage, repeated map[string]bool, ok bool) {
	if !utf8.Valid(body) || json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, nil, false
	}
	repeated = map[string]bool{}
	d := json.NewDecoder(bytes.NewReader(body))
	_, _ = d.Token() // the opening brace: the body is known to be well-formed
	for d.More() {
		var value json.RawMessage
		token, _ := d.Token()
		_ = d.Decode(&value)
		name, _ := token.(string)
		_, seen := repeated[name]
		repeated[name] = seen
	}
	return fields, repeated, true
}
