package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// client calls the API as any other user of it would.
type client struct{ base string }

// job is what the demo reads of GET /jobs/{jobId}.
type job struct {
	JobID        string `json:"jobId"`
	Status       string `json:"status"`
	Total        int    `json:"total"`
	Running      int    `json:"running"`
	Done         int    `json:"done"`
	Failed       int    `json:"failed"`
	Rows         int64  `json:"rowCount"`
	Bytes        int64  `json:"byteCount"`
	ErrorMessage string `json:"errorMessage"`
}

func (j job) ended() bool {
	return j.Status == "COMPLETED" || j.Status == "FAILED" || j.Status == "CANCELLED"
}

func (c client) submit(ctx context.Context, items []item) (job, error) {
	body, err := json.Marshal(map[string]any{"items": items})
	if err != nil {
		return job{}, err
	}
	return c.call(ctx, http.MethodPost, "/jobs", body, http.StatusAccepted)
}

func (c client) job(ctx context.Context, id string) (job, error) {
	return c.call(ctx, http.MethodGet, "/jobs/"+id, nil, http.StatusOK)
}

func (c client) call(ctx context.Context, method, path string, body []byte, want int) (j job, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return job{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return job{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return job{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode != want {
		return job{}, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return j, json.Unmarshal(text, &j)
}
