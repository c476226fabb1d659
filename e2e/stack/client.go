package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Submission is the body of POST /jobs.
type Submission struct {
	Items          []Item  `json:"items"`
	Output         *Output `json:"output,omitempty"`
	OnFailure      string  `json:"onFailure,omitempty"`
	Reuse          *bool   `json:"reuse,omitempty"`
	Priority       *int    `json:"priority,omitempty"`
	IdempotencyKey string  `json:"idempotencyKey,omitempty"`
	CallbackURL    string  `json:"callbackUrl,omitempty"`
}

// Item is a key with its dates, yyyyMMdd.
type Item struct {
	Key            string   `json:"key"`
	EffectiveDates []string `json:"effectiveDates"`
}

// Output names the compression.
type Output struct {
	Compression string `json:"compression"`
}

// Job is what GET /jobs/{jobId} answers.
type Job struct {
	JobID                                                      string
	Status                                                     string
	Total, Pending, Running, Retrying, Done, Failed, Cancelled int
	FilesGenerated, FilesReused                                int
	RowCount, ByteCount                                        int64
	ErrorMessage, CreatedAt, UpdatedAt, StartedAt, CompletedAt string
	Replayed                                                   bool `json:"-"`
}

// Ended says whether the job changes by itself no more.
func (j Job) Ended() bool {
	return j.Status == "COMPLETED" || j.Status == "FAILED" || j.Status == "CANCELLED"
}

// StatusError is an answer with another status than was wanted.
type StatusError struct {
	Status int
	text   string
}

func (e *StatusError) Error() string { return e.text }

// Client drives an api over HTTP.
type Client struct {
	URL   string
	Token string // empty: none
	// Check, if set, says what is wrong with an answer; its error is the call's.
	Check func(method, target string, answer *http.Response, body []byte) error
}

// Submit posts a job. Any answer but 202 is an error.
func (c Client) Submit(ctx context.Context, s Submission) (job Job, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return job, err
	}
	header, err := c.call(ctx, http.MethodPost, "/jobs", body, http.StatusAccepted, &job)
	job.Replayed = header.Get("Idempotency-Replayed") == "true"
	return job, err
}

// Job asks for a job.
func (c Client) Job(ctx context.Context, id string) (job Job, err error) {
	_, err = c.call(ctx, http.MethodGet, "/jobs/"+id, nil, http.StatusOK, &job)
	return job, err
}

// Page is a page of a list.
type Page struct {
	Jobs       []Job
	NextCursor string
}

// List asks for a page of jobs, or of chunks, of which it tells the cursor only.
func (c Client) List(ctx context.Context, path string) (page Page, err error) {
	_, err = c.call(ctx, http.MethodGet, path, nil, http.StatusOK, &page)
	return page, err
}

// Order gives the job an order: cancel or redrive.
func (c Client) Order(ctx context.Context, id, order string) error {
	var answer json.RawMessage
	_, err := c.call(ctx, http.MethodPost, "/jobs/"+id+"/"+order, nil, http.StatusAccepted, &answer)
	return err
}

// Wait waits until the job meets the condition. It goes on when the api does not answer: it may have been killed on purpose.
func (c Client) Wait(ctx context.Context, id string, until func(Job) bool) (job Job, err error) {
	var last error
	err = Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		var j Job
		if j, last = c.Job(ctx, id); last != nil {
			return false, nil
		}
		job = j
		return until(job), nil
	})
	if err != nil {
		return job, fmt.Errorf("job %s is still %+v (%v): %w", id, job, last, err)
	}
	return job, nil
}

func (c Client) call(ctx context.Context, method, path string, body []byte, want int, into any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if c.Check != nil {
		if err := c.Check(method, path, resp, answer); err != nil {
			return resp.Header, err
		}
	}
	if resp.StatusCode != want {
		return resp.Header, &StatusError{resp.StatusCode, fmt.Sprintf("%s %s: %s %s", method, path, resp.Status, strings.TrimSpace(string(answer)))}
	}
	return resp.Header, json.Unmarshal(answer, into)
}
