// Package client calls the HTTP API for the commands of people.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

var (
	// ErrUnreachable is of calls that got no answer of an api that works: no connection, a broken answer, 5xx, or 429.
	ErrUnreachable = errors.New("the API cannot be reached")
	ErrUnknown     = errors.New("unknown job")
)

const maxAnswer = 64 << 20

// Client names an API. The zero Patience gives up at the first lost answer.
type Client struct {
	URL, Token string
	Every      time.Duration // between two looks of Watch
	Patience   time.Duration // that Watch has with an API that is away
}

// Job is what the API tells of a job; Raw is all of it.
type Job struct {
	JobID, Status                                              string
	Total, Pending, Running, Retrying, Done, Failed, Cancelled int
	ErrorMessage                                               string
	Raw                                                        json.RawMessage `json:"-"`
}

func (j Job) Ended() bool {
	return j.Status == "COMPLETED" || j.Status == "FAILED" || j.Status == "CANCELLED"
}

// Job asks for a job.
func (c Client) Job(ctx context.Context, id string) (job Job, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(c.URL, "/")+"/jobs/"+url.PathEscape(id), nil)
	if err != nil {
		return job, err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return job, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return job, fmt.Errorf("%w: its answer broke off: %w", ErrUnreachable, err)
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return job, fmt.Errorf("%w: it answered %s", ErrUnreachable, resp.Status)
	case resp.StatusCode == http.StatusUnauthorized:
		return job, errors.New("the API wants a valid bearer token: set EXPORTD_TOKEN")
	case resp.StatusCode == http.StatusNotFound && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json"):
		return job, fmt.Errorf("%w %q", ErrUnknown, id)
	case resp.StatusCode != http.StatusOK:
		return job, fmt.Errorf("the API answered %s: %.200q", resp.Status, body)
	}
	if err := json.Unmarshal(body, &job); err != nil || job.JobID == "" || job.Status == "" {
		return job, fmt.Errorf("%s does not answer as exportd does: check EXPORTD_URL", c.URL)
	}
	job.Raw = bytes.TrimSpace(body) // one line for each job, for machines
	return job, nil
}

// Watch calls seen with the job now and after each change, until it has ended. It outlasts an API that is away for less than Patience,
// but not one that was never there.
func (c Client) Watch(ctx context.Context, id string, seen func(Job) error) (last Job, err error) {
	answered := time.Time{}
	for {
		job, err := c.Job(ctx, id)
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err == nil:
			answered = time.Now()
			if string(job.Raw) != string(last.Raw) {
				if err := seen(job); err != nil {
					return job, err
				}
			}
			if last = job; job.Ended() {
				return job, nil
			}
		case !errors.Is(err, ErrUnreachable) || time.Since(answered) > c.Patience:
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(c.Every):
		}
	}
}
