package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	quietLimit = 45 * time.Second // the API gives a sign of life every 15 s
	firstLimit = 10 * time.Second // it begins at once; a proxy that holds events back does not
	maxEvent   = 1 << 20
)

// events are the job at first and after each change, for as long as the API sends them: until the job's end, or until the stream breaks, which is no
// error when the API closed it. lastID is the id of the last event seen, and is kept.
func (c Client) events(ctx context.Context, id string, lastID *string) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		quiet := cmp.Or(c.Quiet, quietLimit)
		silence := time.AfterFunc(min(firstLimit, quiet), func() { cancel(fmt.Errorf("the stream of events is silent")) })
		defer silence.Stop()

		resp, err := c.openEvents(ctx, id, *lastID)
		if err != nil {
			yield(Job{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, maxEvent)
		var data []byte
		eventID := *lastID
		for lines.Scan() {
			silence.Reset(quiet)
			line := lines.Text()
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case field == "id":
				eventID = value
			case field == "data":
				data = append(append(data, value...), '\n')
			case line == "" && len(data) > 0:
				job := Job{}
				if json.Unmarshal(data, &job) != nil || job.JobID == "" || job.Status == "" {
					yield(job, c.stranger())
					return
				}
				job.Raw, data, *lastID = bytes.TrimSpace(data), nil, eventID
				if !yield(job, nil) {
					return
				}
			}
		}
		if err := lines.Err(); err != nil {
			yield(Job{}, fmt.Errorf("%w: %w", ErrUnreachable, cmp.Or(context.Cause(ctx), err)))
		}
	}
}

func (c Client) openEvents(ctx context.Context, id, lastID string) (*http.Response, error) {
	req, err := c.request(ctx, http.MethodGet, "/jobs/"+url.PathEscape(id)+"/events", nil, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := c.http().Do(req)
	if err != nil {
		return nil, unreachable(cmp.Or(context.Cause(ctx), err))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
	if err != nil {
		return nil, unreachable(err)
	}
	return nil, cmp.Or(c.refusal(resp, body), c.stranger())
}
