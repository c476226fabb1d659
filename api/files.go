package api

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

// objects is the bucket. Its errors are export's.
type objects interface {
	// Presign makes a URL that anyone may GET until expiresAt, at most ttl from now.
	Presign(ctx context.Context, key, filename string, ttl time.Duration) (url string, expiresAt time.Time, err error)
	// Open reads an object; export.ErrNotFound if there is none. The caller closes it.
	Open(ctx context.Context, key string) (content io.ReadCloser, size int64, err error)
}

// linkLife is how long a link to a file is good for: enough to start a download.
const linkLife = 15 * time.Minute

// mostFiles is the most files that a job shows in its dataContent.
const mostFiles = 10_000

// fileView is the file of a chunk that is done.
type fileView struct {
	_ struct{} `additionalProperties:"true"`

	Key           string `json:"key" example:"ABC"`
	EffectiveDate string `json:"effectiveDate" example:"20250215"`
	S3Path        string `json:"s3Path" example:"s3://bucket/exports/2025/02/15/ABC_20250215.csv"`
	RowCount      int64  `json:"rowCount" example:"10000"`
	ByteCount     int64  `json:"byteCount" example:"1140000"`
	Checksum      string `json:"checksum" example:"5d41402abc4b2a76b9719d911017c592ae3f1c0d8f3b0d2a5d41402abc4b2a76" doc:"sha256 of the file, hex."`
	Reused        bool   `json:"reused"`
}

func (a *API) files(ctx context.Context, tenant, id string) ([]fileView, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	files, err := a.Store.Files(ctx, tenant, id, mostFiles)
	if err != nil {
		return nil, err
	}
	views := make([]fileView, len(files))
	for i, f := range files {
		views[i] = fileView{
			Key: f.Key, EffectiveDate: f.Date.String(), S3Path: a.objectPath(f.ObjectKey), RowCount: f.Rows, ByteCount: f.Bytes, Checksum: f.SHA256, Reused: f.Reused,
		}
	}
	return views, nil
}

// linkView is a link to a file.
type linkView struct {
	_ struct{} `additionalProperties:"true"`

	URL       string `json:"url" format:"uri" doc:"Anyone who has it may download the file: keep it secret."`
	ExpiresAt string `json:"expiresAt" format:"date-time" example:"2026-01-02T10:15:00.000Z"`
}

// manifestView documents what the manifest's object holds.
type manifestView struct {
	_ struct{} `additionalProperties:"true"`

	JobID   string              `json:"jobId" example:"J20260102_000123"`
	Run     int                 `json:"run" example:"1" doc:"Counts the re-drives."`
	Outcome string              `json:"outcome" enum:"COMPLETED,FAILED,CANCELLED"`
	Chunks  []manifestChunkView `json:"chunks" nullable:"false"`
}

type manifestChunkView struct {
	_ struct{} `additionalProperties:"true"`

	Key           string `json:"key" example:"ABC"`
	EffectiveDate string `json:"effectiveDate" example:"20250215"`
	Status        string `json:"status" enum:"DONE,DLQ,CANCELLED"`
	S3Path        string `json:"s3Path,omitempty" example:"s3://bucket/exports/2025/02/15/ABC_20250215.csv"`
	RowCount      int64  `json:"rowCount,omitempty" example:"10000"`
	ByteCount     int64  `json:"byteCount,omitempty" example:"1140000"`
	SHA256        string `json:"sha256,omitempty" example:"5d41402abc4b2a76b9719d911017c592ae3f1c0d8f3b0d2a5d41402abc4b2a76"`
	Reused        bool   `json:"reused"`
	ErrorCode     string `json:"errorCode,omitempty" example:"SQL_22012"`
	Error         string `json:"error,omitempty" example:"division by zero"`
}

func (a *API) registerFiles(h huma.API) {
	routes := a.engine.Group("/", a.authenticate)
	routes.GET("/jobs/:jobId/files/:chunkKey", a.file)
	routes.GET("/jobs/:jobId/manifest", a.manifest)

	docs := responses(http.StatusOK, "A link, when Accept is application/json", http.StatusTemporaryRedirect, "To the file itself")
	docs["200"].Content = content(jsonMedia, schemaOf[linkView](h.OpenAPI()))
	docs["307"].Headers = headers("Location", &huma.Schema{Type: huma.TypeString, Format: "uri"})
	h.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "downloadFile", Method: http.MethodGet, Path: "/jobs/{jobId}/files/{chunkKey}", Tags: []string{"files"},
		Summary:     "Download the file of a chunk",
		Description: "The link is good for a quarter of an hour and can be used without a token. 409 while the chunk is not DONE.",
		Parameters:  []*huma.Param{pathParam("jobId", "J20260102_000123"), pathParam("chunkKey", "key=ABC:date=20250215")},
		Responses:   docs.problems(kindNotFound, kindEnded, kindUnavailable),
	})
	docs = responses(http.StatusOK, "The manifest")
	docs["200"].Content = content(jsonMedia, schemaOf[manifestView](h.OpenAPI()))
	h.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "getManifest", Method: http.MethodGet, Path: "/jobs/{jobId}/manifest", Tags: []string{"files"},
		Summary:     "The manifest of an ended job",
		Description: "The object that lies beside the files: what became of each chunk. 409 before the job has ended.",
		Parameters:  []*huma.Param{pathParam("jobId", "J20260102_000123")},
		Responses:   docs.problems(kindNotFound, kindEnded, kindUnavailable),
	})
}

func (a *API) file(c *gin.Context) {
	ctx := c.Request.Context()
	chunk, _, err := a.findChunk(ctx, c.Param("jobId"), c.Param("chunkKey"))
	if err == nil && chunk.Status != export.Done {
		err = errNotDone
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	url, expires, err := a.Objects.Presign(ctx, chunk.ObjectKey, path.Base(chunk.ObjectKey), linkLife)
	switch {
	case err != nil:
		a.fail(c, err)
	case wantsJSON(c.Request.Header):
		c.PureJSON(http.StatusOK, linkView{URL: url, ExpiresAt: stamp(expires)})
	default:
		c.Header("Location", url)
		c.Status(http.StatusTemporaryRedirect)
	}
}

// wantsJSON says whether the client names application/json among what it accepts.
func wantsJSON(h http.Header) bool {
	for _, line := range h.Values("Accept") {
		for accepted := range strings.SplitSeq(line, ",") {
			if media, params, err := mime.ParseMediaType(accepted); err == nil && media == "application/json" && params["q"] != "0" {
				return true
			}
		}
	}
	return false
}

func (a *API) manifest(c *gin.Context) {
	job, err := a.findJob(c.Request.Context(), c.Param("jobId"))
	if err == nil && !job.Status.Ended() {
		err = errNotEnded
	}
	if err != nil {
		a.fail(c, err)
		return
	}
	content, size, err := a.Objects.Open(c.Request.Context(), export.ManifestKey(a.BasePath, job.ID))
	if err != nil {
		if errors.Is(err, export.ErrNotFound) {
			err = errNoManifest
		}
		a.fail(c, err)
		return
	}
	defer content.Close()
	c.Header("Content-Type", "application/json")
	c.Header("Content-Length", strconv.FormatInt(size, 10))
	c.Status(http.StatusOK)
	// An error now leaves the answer shorter than announced, which the client notices.
	_, _ = io.Copy(steady(c), content)
}
