package client

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Job is what the API tells of a job.
type Job struct {
	JobID, Status                                              string
	Total, Pending, Running, Retrying, Done, Failed, Cancelled int // chunks; the six counts add up to Total
	FilesGenerated, FilesReused                                int
	RowCount, ByteCount                                        int64
	S3BasePath                                                 string
	ErrorMessage                                               string // of its end, or empty
	CreatedAt, UpdatedAt                                       time.Time
	StartedAt, CompletedAt                                     *time.Time
	Raw                                                        Raw `json:"-"`
}

func (j Job) Ended() bool {
	return j.Status == "COMPLETED" || j.Status == "FAILED" || j.Status == "CANCELLED"
}

// Job asks for a job.
func (c Client) Job(ctx context.Context, id string) (job Job, err error) {
	job.Raw, err = c.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(id), nil, nil, &job)
	if err == nil && (job.JobID == "" || job.Status == "") {
		return job, c.stranger()
	}
	return job, err
}

// JobsFilter leaves out what is empty. From and To are RFC 3339 or UTC days; Limit is 1 to 200.
type JobsFilter struct {
	Status, Key, From, To, Tenant string
	Limit                         int
}

// Jobs is a page of the jobs, newest first, and the cursor of the next one, which is empty on the last. A page may be short, even empty, and yet have a next one.
func (c Client) Jobs(ctx context.Context, f JobsFilter, cursor string) (jobs []Job, next string, err error) {
	var page struct {
		Jobs       []Raw
		NextCursor string
	}
	_, err = c.call(ctx, http.MethodGet, "/jobs", values("status", f.Status, "key", f.Key, "from", f.From, "to", f.To, "tenant", f.Tenant,
		"limit", strconv.Itoa(f.Limit), "cursor", cursor), nil, &page)
	if err != nil {
		return nil, "", err
	}
	jobs, err = each(c, page.Jobs, func(j *Job, raw Raw) { j.Raw = raw })
	return jobs, page.NextCursor, err
}

// Submission is the body of POST /jobs; what is empty takes the API's default.
type Submission struct {
	Items          []Item  `json:"items"`
	Output         *Output `json:"output,omitempty"`
	OnFailure      string  `json:"onFailure,omitempty"` // FAIL_FAST or CONTINUE
	Reuse          *bool   `json:"reuse,omitempty"`
	Priority       *int    `json:"priority,omitempty"` // 0 to 9
	CallbackURL    string  `json:"callbackUrl,omitempty"`
	IdempotencyKey string  `json:"idempotencyKey,omitempty"`
}

// Item asks for a chunk of each date, yyyyMMdd.
type Item struct {
	Key            string   `json:"key"`
	EffectiveDates []string `json:"effectiveDates"`
}

type Output struct {
	Compression string `json:"compression,omitempty"` // NONE, GZIP or ZSTD
}

// Submit posts a job: a Submission, or a Raw that somebody else wrote. With an idempotency key it may be repeated after a lost answer.
func (c Client) Submit(ctx context.Context, submission any) (job Job, err error) {
	job, _, err = c.SubmitKeyed(ctx, submission, "")
	return job, err
}

// SubmitKeyed is Submit with an idempotency key beside the submission. Replayed: the key was used before, and the job is that of the first time.
func (c Client) SubmitKeyed(ctx context.Context, submission any, idempotencyKey string) (job Job, replayed bool, err error) {
	header := http.Header{}
	if idempotencyKey != "" { // quoted: a bare one must not begin with a quote
		header.Set("Idempotency-Key", `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(idempotencyKey)+`"`)
	}
	raw, answer, err := c.exchange(ctx, http.MethodPost, "/jobs", nil, header, submission, &job)
	if err == nil && job.JobID == "" {
		return job, false, c.stranger()
	}
	job.Raw = raw
	return job, answer.Get("Idempotency-Replayed") == "true", err
}

// Cancel orders a job to end; it may be repeated.
func (c Client) Cancel(ctx context.Context, id string) (job Job, err error) {
	job.Raw, err = c.call(ctx, http.MethodPost, "/jobs/"+url.PathEscape(id)+"/cancel", nil, nil, &job)
	if err == nil && job.JobID == "" {
		return job, c.stranger()
	}
	return job, err
}

// Redriven tells how many chunks were put back.
type Redriven struct {
	JobID        string // of the re-drive of one job
	Jobs         int
	Redriven     int
	DryRun, More bool // More: not all were reached, repeat the call
	Raw          Raw  `json:"-"`
}

// Redrive puts the dead-lettered and cancelled chunks of an ended job back.
func (c Client) Redrive(ctx context.Context, id string) (r Redriven, err error) {
	r.Raw, err = c.call(ctx, http.MethodPost, "/jobs/"+url.PathEscape(id)+"/redrive", nil, nil, &r)
	return r, c.unlessRedriven(r, err)
}

// RedriveFilter leaves out what is empty.
type RedriveFilter struct {
	Status    string `json:"status,omitempty"` // FAILED or CANCELLED
	Key       string `json:"key,omitempty"`
	From      string `json:"from,omitempty"` // RFC 3339 or a UTC day
	To        string `json:"to,omitempty"`
	ErrorCode string `json:"errorCode,omitempty"`
	DryRun    bool   `json:"dryRun,omitempty"`
}

// RedriveAll does the same for every job that matches.
func (c Client) RedriveAll(ctx context.Context, f RedriveFilter) (r Redriven, err error) {
	r.Raw, err = c.call(ctx, http.MethodPost, "/redrive", nil, f, &r)
	return r, c.unlessRedriven(r, err)
}

// unlessRedriven is the error of an answer that does not say what was put back.
func (c Client) unlessRedriven(r Redriven, err error) error {
	if err == nil && !bytes.Contains(r.Raw, []byte(`"redriven"`)) {
		return c.stranger()
	}
	return err
}
