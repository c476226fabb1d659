package api

import (
	"context"
	"net/http"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

type orderInput struct {
	JobID string `path:"jobId" example:"J20260102_000123"`
}

type cancelOutput struct {
	RetryAfter int `header:"Retry-After" example:"1" doc:"Seconds to wait before the next look at the job."`
	Body       JobView
}

// redrivenView says what a re-drive did.
type redrivenView struct {
	_ struct{} `additionalProperties:"true"`

	JobID    string `json:"jobId" example:"J20260102_000123"`
	Redriven int    `json:"redriven" example:"3" doc:"Chunks put back: they are PENDING again, with all their attempts."`
}

type redriveOutput struct {
	Location string `header:"Location" example:"/jobs/J20260102_000123"`
	Body     redrivenView
}

func (a *API) registerOrders(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "cancelJob", Method: http.MethodPost, Path: "/jobs/{jobId}/cancel", Tags: []string{"jobs"},
		Summary:            "Cancel a job",
		Description:        "What has not started is cancelled at once, what runs is stopped within seconds; until then the job is CANCELLING. Repeating it is no error.",
		DefaultStatus:      http.StatusAccepted,
		SkipValidateParams: true,
		Responses:          responses(http.StatusAccepted, "The job is ending, or was cancelled before").problems(kindNotFound, kindEnded, kindUnavailable),
	}, a.cancel)
	register(a, h, huma.Operation{
		OperationID: "redriveJob", Method: http.MethodPost, Path: "/jobs/{jobId}/redrive", Tags: []string{"jobs"},
		Summary:            "Try the dead-lettered and cancelled chunks of an ended job again",
		Description:        "Of a job that is FAILED or CANCELLED. It goes on IN_PROGRESS, and those chunks have all their attempts again.",
		DefaultStatus:      http.StatusAccepted,
		SkipValidateParams: true,
		Responses:          responses(http.StatusAccepted, "The chunks will run").problems(kindNotFound, kindEnded, kindUnavailable),
	}, a.redrive)
}

func (a *API) cancel(ctx context.Context, in *orderInput) (*cancelOutput, error) {
	id, err := jobID(in.JobID)
	if err != nil {
		return nil, err
	}
	tenant := requestOf(ctx).caller.sees()
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeouts.Submit)
	defer cancel()
	storing = export.WithOrder(storing, requestOf(ctx).order("cancelJob"))
	if err := a.Store.Cancel(storing, tenant, id); err != nil {
		return nil, err
	}
	if a.Check != nil {
		a.Check(id)
	}
	job, err := a.Store.Job(storing, tenant, id)
	if err != nil {
		return nil, err
	}
	return &cancelOutput{RetryAfter: 1, Body: a.jobView(job)}, nil
}

func (a *API) redrive(ctx context.Context, in *orderInput) (*redriveOutput, error) {
	id, err := jobID(in.JobID)
	if err != nil {
		return nil, err
	}
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeouts.Submit)
	defer cancel()
	storing = export.WithOrder(storing, requestOf(ctx).order("redriveJob"))
	n, err := a.Store.Redrive(storing, requestOf(ctx).caller.sees(), id)
	if err != nil {
		return nil, err
	}
	a.redriven(id)
	return &redriveOutput{Location: "/jobs/" + id, Body: redrivenView{JobID: id, Redriven: n}}, nil
}

// redriven wakes who may have work now: the relay, and whoever ends a job that had nothing left to run.
func (a *API) redriven(id string) {
	if a.Wake != nil {
		a.Wake()
	}
	if a.Check != nil {
		a.Check(id)
	}
}

// jobID is a job's id as it stands in the path. What cannot be one is of no job.
func jobID(escaped string) (string, error) {
	id, err := pathValue(escaped)
	if err != nil || !export.ValidJobID(id) {
		return "", export.ErrNotFound
	}
	return id, nil
}
