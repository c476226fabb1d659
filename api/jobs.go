package api

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

// JobView is a job as its owner sees it. Exported because huma leaves out embedded structs that are not.
type JobView struct {
	_ struct{} `additionalProperties:"true"`

	JobID     string `json:"jobId" example:"J20260102_000123"`
	Status    string `json:"status" enum:"SUBMITTED,IN_PROGRESS,CANCELLING,COMPLETED,FAILED,CANCELLED"`
	Total     int    `json:"total" example:"3" doc:"Chunks; the six counts that follow add up to it."`
	Pending   int    `json:"pending" example:"1"`
	Running   int    `json:"running" example:"1"`
	Retrying  int    `json:"retrying" example:"0"`
	Done      int    `json:"done" example:"1"`
	Failed    int    `json:"failed" example:"0"`
	Cancelled int    `json:"cancelled" example:"0"`

	FilesGenerated int     `json:"filesGenerated" example:"1"`
	FilesReused    int     `json:"filesReused" example:"0"`
	RowCount       int64   `json:"rowCount" example:"10000" doc:"Rows in the files of the chunks done."`
	ByteCount      int64   `json:"byteCount" example:"1140000" doc:"Bytes in the files of the chunks done."`
	S3BasePath     string  `json:"s3BasePath" example:"s3://bucket/exports"`
	ErrorMessage   *string `json:"errorMessage" example:"Chunk failed after 5 attempts: key=ABC date=2025-03-15: division by zero"`
	CreatedAt      string  `json:"createdAt" format:"date-time" example:"2026-01-02T10:00:00.000Z"`
	UpdatedAt      string  `json:"updatedAt" format:"date-time" example:"2026-01-02T10:00:02.500Z"`
	StartedAt      *string `json:"startedAt" format:"date-time" example:"2026-01-02T10:00:00.120Z"`
	CompletedAt    *string `json:"completedAt" format:"date-time"`
}

func (a *API) jobView(j export.Job) JobView {
	v := JobView{
		JobID: j.ID, Status: string(j.Status), Total: j.Total,
		Pending: j.Pending, Running: j.Running, Retrying: j.Retrying, Done: j.Done, Failed: j.Failed, Cancelled: j.Cancelled,
		FilesGenerated: j.FilesGenerated, FilesReused: j.FilesReused, RowCount: j.RowCount, ByteCount: j.ByteCount,
		S3BasePath: a.S3BasePath, CreatedAt: stamp(j.CreatedAt), UpdatedAt: stamp(j.UpdatedAt),
		StartedAt: maybeStamp(j.StartedAt), CompletedAt: maybeStamp(j.CompletedAt),
	}
	if j.ErrorMessage != "" {
		v.ErrorMessage = &j.ErrorMessage
	}
	return v
}

// stamp is RFC 3339 in UTC, always with milliseconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func maybeStamp(t *time.Time) *string {
	if t == nil {
		return nil
	}
	s := stamp(*t)
	return &s
}

type jobInput struct {
	JobID       string `path:"jobId" example:"J20260102_000123"`
	Include     string `query:"include" enum:"files" doc:"files adds dataContent."`
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of an earlier answer: 304 if nothing changed."`
	Prefer      string `header:"Prefer" example:"wait=30" doc:"wait=N holds the answer until the job changes its state, at most N (60) seconds."`
}

// jobDetails is a job, with its files if asked for.
type jobDetails struct {
	JobView
	DataContent *[]fileView `json:"dataContent,omitempty" doc:"The files of the chunks done, up to 10 000."`
}

type jobOutput struct {
	Status       int
	ETag         string `header:"ETag"`
	CacheControl string `header:"Cache-Control"`
	Applied      string `header:"Preference-Applied" doc:"wait=N, when it was asked for."`
	Body         jobDetails
}

func (a *API) registerJob(h huma.API) {
	docs := responses(http.StatusOK, "The job", http.StatusNotModified, "Nothing changed since the answer with that ETag")
	docs["304"].Headers = headers("ETag", &huma.Schema{Type: huma.TypeString})
	register(a, h, huma.Operation{
		OperationID: "getJob", Method: http.MethodGet, Path: "/jobs/{jobId}", Tags: []string{"jobs"},
		Summary:     "Show a job",
		Description: "Ask again with the ETag, or have the answer held by Prefer: wait, or watch the events.",
		Responses:   docs.problems(kindBadRequest, kindNotFound, kindUnavailable),
	}, a.job)
}

func (a *API) job(ctx context.Context, in *jobInput) (*jobOutput, error) {
	job, err := a.findJob(ctx, in.JobID)
	if err != nil {
		return nil, err
	}
	out := &jobOutput{Status: http.StatusOK, CacheControl: "private, no-cache"}
	if seconds := preferredWait(in.Prefer); seconds > 0 {
		release, err := a.limits.hold(requestOf(ctx).client)
		if err != nil {
			return nil, err
		}
		defer release()
		out.Applied = "wait=" + strconv.Itoa(seconds)
		if job, err = a.changed(ctx, job, time.Duration(seconds)*time.Second); err != nil {
			return nil, err
		}
	}
	out.Body.JobView = a.jobView(job)
	out.ETag = weakETag(out.Body.JobView) // files only become more, and are counted in it
	switch {
	case matches(in.IfNoneMatch, out.ETag):
		out.Status = http.StatusNotModified
	case in.Include == "files":
		files, err := a.files(ctx, requestOf(ctx).caller.sees(), job.ID)
		if err != nil {
			return nil, err
		}
		out.Body.DataContent = &files
	}
	return out, nil
}

// findJob finds a job that the caller may see, by its id as it stands in the path.
func (a *API) findJob(ctx context.Context, escaped string) (export.Job, error) {
	id, err := jobID(escaped)
	if err != nil {
		return export.Job{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	return a.Store.Job(ctx, requestOf(ctx).caller.sees(), id)
}

// weakETag is made of the whole view: the counts move while the job's row does not.
func weakETag(view any) string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(view)
	return fmt.Sprintf(`W/"%016x"`, h.Sum64())
}

// matches is the weak comparison of RFC 9110, section 8.8.3.2, with each tag of an If-None-Match.
func matches(ifNoneMatch, etag string) bool {
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		tag = strings.TrimSpace(tag)
		if tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}
