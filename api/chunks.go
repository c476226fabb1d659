package api

import (
	"context"
	"net/http"
	"strings"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

// ChunkView is a chunk as its job's owner sees it; exported as [JobView] is.
type ChunkView struct {
	_ struct{} `additionalProperties:"true"`

	ChunkKey      string  `json:"chunkKey" example:"key=ABC:date=20250215" doc:"Its name within the job. In a path it is percent-encoded, once."`
	Key           string  `json:"key" example:"ABC"`
	EffectiveDate string  `json:"effectiveDate" example:"20250215"`
	Status        string  `json:"status" enum:"PENDING,RUNNING,RETRY_WAIT,DONE,DLQ,CANCELLED"`
	AttemptCount  int     `json:"attemptCount" example:"1" doc:"Attempts spent of the budget; given back ones are not counted, and a re-drive starts anew."`
	NextRetryAt   *string `json:"nextRetryAt" format:"date-time"`
	StartedAt     *string `json:"startedAt" format:"date-time" example:"2026-01-02T10:00:00.120Z" doc:"Start of the last attempt."`
	CompletedAt   *string `json:"completedAt" format:"date-time" example:"2026-01-02T10:00:00.870Z"`
	S3Path        *string `json:"s3Path" example:"s3://bucket/exports/2025/02/15/ABC_20250215.csv"`
	RowCount      *int64  `json:"rowCount" example:"10000"`
	ByteCount     *int64  `json:"byteCount" example:"1140000"`
	Checksum      *string `json:"checksum" example:"5d41402abc4b2a76b9719d911017c592ae3f1c0d8f3b0d2a5d41402abc4b2a76" doc:"sha256 of the file, hex."`
	Reused        bool    `json:"reused" doc:"An earlier chunk made the file."`
	Superseded    bool    `json:"superseded" doc:"The file has been made anew since; the facts shown are those of the file as this chunk made or found it."`
	ErrorCode     *string `json:"errorCode" example:"SQL_22012"`
	ErrorMessage  *string `json:"errorMessage" example:"division by zero" doc:"Of the last attempt that failed."`
}

// attemptView is one attempt of a chunk.
type attemptView struct {
	_ struct{} `additionalProperties:"true"`

	Number    int     `json:"number" example:"1" doc:"Repeats after a given-back attempt and after a re-drive."`
	Started   *string `json:"started" format:"date-time" example:"2026-01-02T10:00:00.120Z"`
	Ended     *string `json:"ended" format:"date-time" example:"2026-01-02T10:00:00.870Z"`
	Outcome   string  `json:"outcome" enum:"RUNNING,DONE,RETRY,GIVEN_BACK,LOST,DLQ,CANCELLED"`
	ErrorCode *string `json:"errorCode" example:"SQL_22012"`
	Error     *string `json:"error" example:"division by zero"`
	Worker    string  `json:"worker,omitempty" example:"host-1/4711/k3x9q2ab" doc:"For operators."`
}

type chunkDetails struct {
	ChunkView
	Attempts []attemptView `json:"attempts" nullable:"false" doc:"Oldest first."`
}

func (a *API) chunkView(c export.ChunkView) ChunkView {
	v := ChunkView{
		ChunkKey: c.ChunkKey(), Key: c.Key, EffectiveDate: c.Date.String(), Status: string(c.Status), AttemptCount: c.Attempts,
		NextRetryAt: maybeStamp(c.NextRetryAt), StartedAt: maybeStamp(c.StartedAt), CompletedAt: maybeStamp(c.CompletedAt),
		Reused: c.Reused, Superseded: c.Superseded, ErrorCode: maybe(c.ErrorCode), ErrorMessage: maybe(c.Error),
	}
	if c.Status == export.Done {
		path := a.objectPath(c.ObjectKey)
		v.S3Path, v.RowCount, v.ByteCount, v.Checksum = &path, &c.Rows, &c.Bytes, &c.SHA256
	}
	return v
}

// objectPath is the absolute path of an object, which S3BasePath begins.
func (a *API) objectPath(key string) string {
	scheme, rest, _ := strings.Cut(a.S3BasePath, "://")
	bucket, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + bucket + "/" + key
}

// maybe is nil for nothing.
func maybe(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

type chunksInput struct {
	JobID  string `path:"jobId" example:"J20260102_000123"`
	Status string `query:"status" enum:"PENDING,RUNNING,RETRY_WAIT,DONE,DLQ,CANCELLED" example:"DLQ"`
	Key    string `query:"key" example:"ABC"`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
	Cursor string `query:"cursor" maxLength:"512" doc:"The nextCursor of the page before."`

	filter export.ChunkFilter
	after  string
}

// Resolve reads the values that have rules of their own.
func (in *chunksInput) Resolve(huma.Context) []error {
	var bad parameterFaults
	in.filter = export.ChunkFilter{Status: export.ChunkStatus(in.Status), Key: strings.TrimSpace(in.Key)}
	if in.Key != "" {
		if err := export.CheckKey(in.filter.Key); err != nil {
			bad.add("key", err)
		}
	}
	if in.Cursor != "" {
		in.after = parseCursor(in.Cursor, 'c')
		if !validChunkKey(in.after) {
			bad.add("cursor", errCursor)
		}
	}
	return bad
}

func validChunkKey(s string) bool {
	key, _, err := export.ParseChunkKey(s)
	return err == nil && export.CheckKey(key) == nil
}

// chunkList is a page of chunks.
type chunkList struct {
	_ struct{} `additionalProperties:"true"`

	Chunks     []ChunkView `json:"chunks" nullable:"false"`
	NextCursor *string     `json:"nextCursor" doc:"Of the next page; null on the last one."`
}

type chunksOutput struct{ Body chunkList }

type chunkInput struct {
	JobID    string `path:"jobId" example:"J20260102_000123"`
	ChunkKey string `path:"chunkKey" example:"key=ABC:date=20250215" doc:"Percent-encoded, once."`
}

type chunkOutput struct{ Body chunkDetails }

func (a *API) registerChunks(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "listChunks", Method: http.MethodGet, Path: "/jobs/{jobId}/chunks", Tags: []string{"chunks"},
		Summary:                      "List the chunks of a job, by chunk key",
		Description:                  "Page by page nothing is skipped or repeated while chunks change.",
		RejectUnknownQueryParameters: true,
		Responses:                    responses(http.StatusOK, "A page of chunks").problems(kindBadRequest, kindNotFound, kindUnavailable),
	}, a.chunks)
	register(a, h, huma.Operation{
		OperationID: "getChunk", Method: http.MethodGet, Path: "/jobs/{jobId}/chunks/{chunkKey}", Tags: []string{"chunks"},
		Summary:            "Show a chunk with its attempts",
		Description:        "Attempts that ended, and the one that runs. Operators see the worker of each.",
		SkipValidateParams: true,
		Responses:          responses(http.StatusOK, "The chunk").problems(kindNotFound, kindUnavailable),
	}, a.chunk)
}

func (a *API) chunks(ctx context.Context, in *chunksInput) (*chunksOutput, error) {
	id, err := jobID(in.JobID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	chunks, more, err := a.Store.Chunks(ctx, requestOf(ctx).caller.sees(), id, in.filter, in.after, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &chunksOutput{Body: chunkList{Chunks: make([]ChunkView, len(chunks))}}
	for i, c := range chunks {
		out.Body.Chunks[i] = a.chunkView(c)
	}
	if more {
		out.Body.NextCursor = cursor("c" + chunks[len(chunks)-1].ChunkKey())
	}
	return out, nil
}

func (a *API) chunk(ctx context.Context, in *chunkInput) (*chunkOutput, error) {
	chunk, attempts, err := a.findChunk(ctx, in.JobID, in.ChunkKey)
	if err != nil {
		return nil, err
	}
	out := &chunkOutput{Body: chunkDetails{ChunkView: a.chunkView(chunk), Attempts: make([]attemptView, len(attempts))}}
	for i, t := range attempts {
		v := attemptView{Number: t.Number, Started: maybeStamp(t.StartedAt), Ended: maybeStamp(t.EndedAt), Outcome: t.Outcome, ErrorCode: maybe(t.ErrorCode), Error: maybe(t.Error)}
		if requestOf(ctx).caller.operator {
			v.Worker = t.Worker
		}
		out.Body.Attempts[i] = v
	}
	return out, nil
}

// findChunk finds a chunk of a job that the caller may see, both as they stand in the path.
func (a *API) findChunk(ctx context.Context, escapedJob, escapedChunk string) (export.ChunkView, []export.Attempt, error) {
	id, err := jobID(escapedJob)
	if err != nil {
		return export.ChunkView{}, nil, err
	}
	chunkKey, err := pathValue(escapedChunk)
	if err != nil || !validChunkKey(chunkKey) {
		return export.ChunkView{}, nil, export.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	return a.Store.Chunk(ctx, requestOf(ctx).caller.sees(), id, chunkKey)
}
