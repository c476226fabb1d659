package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

type auditInput struct {
	Tenant string `query:"tenant" example:"ops" doc:"Of who acted."`
	Token  string `query:"token" pattern:"^[0-9a-f]{8}$" example:"9f86d081" doc:"The first eight digits of the token's sha256."`
	Action string `query:"action" maxLength:"100" example:"cancelJob" doc:"An operationId of this document, or signIn."`
	JobID  string `query:"jobId" maxLength:"64" example:"J20260102_000123"`
	From   string `query:"from" example:"2026-01-02" doc:"Lines of then or later: RFC 3339, or a UTC day."`
	To     string `query:"to" example:"2026-01-31" doc:"Lines before then: RFC 3339; a UTC day is included."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"512" doc:"The nextCursor of the page before."`

	filter export.AuditFilter
	after  *export.AuditPlace
}

// Resolve reads the values that have rules of their own.
func (in *auditInput) Resolve(huma.Context) []error {
	var bad parameterFaults
	in.filter = export.AuditFilter{Tenant: in.Tenant, Token: in.Token, Action: in.Action, JobID: in.JobID}
	for name, value := range map[string]string{"tenant": in.Tenant, "action": in.Action, "jobId": in.JobID} {
		if value != "" && export.CheckKey(value) != nil {
			bad.add(name, errWord)
		}
	}
	var err error
	if in.filter.From, err = parseTime(in.From, 0); err != nil {
		bad.add("from", err)
	}
	if in.filter.To, err = parseTime(in.To, 1); err != nil {
		bad.add("to", err)
	}
	if in.Cursor != "" {
		if in.after = parseAuditPlace(in.Cursor); in.after == nil {
			bad.add("cursor", errCursor)
		}
	}
	return bad
}

func auditCursor(p *export.AuditPlace) *string {
	if p == nil {
		return nil
	}
	return cursor("a" + strconv.FormatInt(p.At.UnixMicro(), 10) + "." + strconv.FormatInt(p.ID, 10))
}

func parseAuditPlace(cursor string) *export.AuditPlace {
	micros, number, _ := strings.Cut(parseCursor(cursor, 'a'), ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	id, wrong := strconv.ParseInt(number, 10, 64)
	when := time.UnixMicro(at)
	if err != nil || wrong != nil || when.Year() < 1 || when.Year() > 9999 {
		return nil
	}
	return &export.AuditPlace{At: when, ID: id}
}

// auditView is a line of the audit log.
type auditView struct {
	_ struct{} `additionalProperties:"true"`

	At        string  `json:"at" format:"date-time"`
	Action    string  `json:"action" example:"cancelJob" doc:"An operationId of this document, or signIn."`
	Outcome   string  `json:"outcome" enum:"DONE,REFUSED"`
	Status    *int    `json:"status" example:"403" doc:"Of the refusal."`
	Problem   *string `json:"problem" example:"forbidden" doc:"Kind of the refusal: the last part of its type."`
	Tenant    *string `json:"tenant" example:"ops" doc:"Of who acted; null when nobody knows."`
	Role      *string `json:"role" example:"operator"`
	Token     *string `json:"token" example:"9f86d081" doc:"The first eight digits of the token's sha256, as in the tokens file."`
	Address   string  `json:"address" example:"192.0.2.7" doc:"Of the connection; behind a proxy that is the proxy's."`
	Forwarded *string `json:"forwarded" example:"198.51.100.3" doc:"X-Forwarded-For as it came: anybody may send it."`
	UserAgent *string `json:"userAgent" example:"curl/8.5.0"`
	Via       string  `json:"via" enum:"api,console"`
	JobID     *string `json:"jobId" example:"J20260102_000123"`
	JobTenant *string `json:"jobTenant" example:"acme" doc:"Whose job it was."`
	Chunks    *int    `json:"chunks" example:"3" doc:"Put back or cancelled by it."`

	Filter    *redriveBody `json:"filter,omitempty" doc:"Of a re-drive by filter, which leaves a line for each job."`
	RequestID string       `json:"requestId" example:"req-7f3a"`
	TraceID   *string      `json:"traceId" example:"4bf92f3577b34da6a3ce929d0e0e4736"`
}

type auditOutput struct {
	Body struct {
		_ struct{} `additionalProperties:"true"`

		Lines      []auditView `json:"lines" nullable:"false"`
		NextCursor *string     `json:"nextCursor" doc:"Of the next page; null on the last one."`
	}
}

func (a *API) registerAudit(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "listAudit", Method: http.MethodGet, Path: "/audit", Tags: []string{"operators"},
		Summary: "Who ordered what, newest first, for operators",
		Description: "Cancels and re-drives, each written in the transaction that did it; sign-ins to the console; and what was refused: wrong tokens, missing rights, orders for " +
			"jobs that are not the caller's or not in that state. Of the refusals of one client a number is kept. Submissions are the jobs themselves.",
		RejectUnknownQueryParameters: true,
		Responses:                    responses(http.StatusOK, "A page of lines").problems(kindBadRequest, kindUnavailable),
	}, a.listAudit)
}

func (a *API) listAudit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	if !requestOf(ctx).caller.operator {
		return nil, errNotOperator
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	lines, next, err := a.Store.Audit(ctx, in.filter, in.after, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &auditOutput{}
	out.Body.Lines, out.Body.NextCursor = make([]auditView, len(lines)), auditCursor(next)
	for i, l := range lines {
		v := auditView{
			At: stamp(l.At), Action: l.Action, Outcome: "DONE", Problem: maybe(l.Problem), Tenant: maybe(l.Tenant), Role: maybe(l.Role), Token: maybe(l.Token),
			Address: l.Address, Forwarded: maybe(l.Forwarded), UserAgent: maybe(l.UserAgent), Via: l.Via, JobID: maybe(l.JobID), JobTenant: maybe(l.JobTenant),
			Chunks: l.Chunks, RequestID: l.RequestID, TraceID: maybe(l.TraceID),
		}
		if l.Status != 0 {
			v.Outcome, v.Status = "REFUSED", &l.Status
		}
		if len(l.Filter) > 0 && json.Unmarshal(l.Filter, &v.Filter) != nil {
			v.Filter = nil // of a later version
		}
		out.Body.Lines[i] = v
	}
	return out, nil
}
