package api

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

type listInput struct {
	Status string `query:"status" enum:"SUBMITTED,IN_PROGRESS,CANCELLING,COMPLETED,FAILED,CANCELLED" example:"FAILED"`
	Key    string `query:"key" example:"ABC" doc:"Jobs with a chunk of the key. A page may then be short, even empty, and yet have a nextCursor."`
	From   string `query:"from" example:"2026-01-02" doc:"Jobs created then or later: RFC 3339, or a UTC day."`
	To     string `query:"to" example:"2026-01-31" doc:"Jobs created before then: RFC 3339; a UTC day is included."`
	Tenant string `query:"tenant" example:"acme" doc:"For operators, who see all tenants' jobs."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"512" doc:"The nextCursor of the page before."`

	filter export.JobFilter
	after  *export.Place
}

// Resolve reads the values that have rules of their own.
func (in *listInput) Resolve(ctx huma.Context) []error {
	var bad parameterFaults
	in.filter = jobFilter(in.Status, in.Key, in.From, in.To, bad.add)
	if in.Cursor != "" {
		if in.after = parsePlace(in.Cursor); in.after == nil {
			bad.add("cursor", errCursor)
		}
	}
	return bad
}

// parameterFaults are faults of the query, in huma's form.
type parameterFaults []error

func (f *parameterFaults) add(name string, err error) {
	*f = append(*f, &huma.ErrorDetail{Location: "query." + name, Message: err.Error()})
}

var (
	errCursor = errors.New("is not a cursor of this list; start without one")
	errWord   = errors.New("has more than 128 bytes, or what cannot be printed")
	errTime   = errors.New("must be a time like 2026-01-02T10:00:00Z, or a day like 2026-01-02")
)

// jobFilter reads what picks jobs and reports what is wrong by the field's name.
func jobFilter(status, key, from, to string, fault func(name string, err error)) export.JobFilter {
	f := export.JobFilter{Status: export.JobStatus(status), Key: strings.TrimSpace(key)}
	if key != "" {
		if err := export.CheckKey(f.Key); err != nil {
			fault("key", err)
		}
	}
	var err error
	if f.From, err = parseTime(from, 0); err != nil {
		fault("from", err)
	}
	if f.To, err = parseTime(to, 1); err != nil {
		fault("to", err)
	}
	return f
}

// parseTime reads a time, or a day as its midnight plus days.
func parseTime(s string, days int) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, day := range []string{time.DateOnly, "20060102"} {
		if t, err := time.Parse(day, s); err == nil && t.Year() > 0 {
			return t.AddDate(0, 0, days), nil
		}
	}
	// A '+' that nobody escaped has become a space.
	t, err := time.Parse(time.RFC3339, strings.Replace(s, " ", "+", 1))
	if err != nil || t.Year() < 1 {
		return time.Time{}, errTime
	}
	return t, nil
}

// A cursor says where the list goes on by what never changes, so that nothing is skipped or repeated while states do: the microsecond of a job's creation
// and its ID, or a chunk key. It grants nothing: whoever forges one sees the same list from another place.

func placeCursor(p *export.Place) *string {
	if p == nil {
		return nil
	}
	return cursor("j" + strconv.FormatInt(p.CreatedAt.UnixMicro(), 10) + "." + p.JobID)
}

func parsePlace(cursor string) *export.Place {
	micros, id, _ := strings.Cut(parseCursor(cursor, 'j'), ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	created := time.UnixMicro(at)
	if err != nil || !export.ValidJobID(id) || created.Year() < 1 || created.Year() > 9999 {
		return nil
	}
	return &export.Place{CreatedAt: created, JobID: id}
}

func cursor(place string) *string {
	s := base64.RawURLEncoding.EncodeToString([]byte(place))
	return &s
}

// parseCursor is the place in a cursor of the kind, or nothing.
func parseCursor(cursor string, kind byte) string {
	place, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(place) == 0 || place[0] != kind {
		return ""
	}
	return string(place[1:])
}

// jobList is a page of jobs.
type jobList struct {
	_ struct{} `additionalProperties:"true"`

	Jobs       []JobView `json:"jobs" nullable:"false"`
	NextCursor *string   `json:"nextCursor" doc:"Of the next page; null on the last one."`
}

type listOutput struct{ Body jobList }

func (a *API) registerList(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "listJobs", Method: http.MethodGet, Path: "/jobs", Tags: []string{"jobs"},
		Summary:                      "List jobs, newest first",
		Description:                  "A submitter sees its tenant's jobs, an operator all. Page by page nothing is skipped or repeated while jobs change.",
		RejectUnknownQueryParameters: true,
		Responses:                    responses(http.StatusOK, "A page of jobs").problems(kindBadRequest, kindUnavailable),
	}, a.list)
}

func (a *API) list(ctx context.Context, in *listInput) (*listOutput, error) {
	who := requestOf(ctx).caller
	in.filter.Tenant = who.sees()
	if who.operator {
		in.filter.Tenant = in.Tenant
		if in.Tenant != "" && !tenantName.MatchString(in.Tenant) {
			return &listOutput{Body: jobList{Jobs: []JobView{}}}, nil // nobody has that name
		}
	} else if in.Tenant != "" && in.Tenant != who.tenant {
		return nil, errNotOperator
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	jobs, next, err := a.Store.Jobs(ctx, in.filter, in.after, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &listOutput{Body: jobList{Jobs: make([]JobView, len(jobs)), NextCursor: placeCursor(next)}}
	for i, j := range jobs {
		out.Body.Jobs[i] = a.jobView(j)
	}
	return out, nil
}
