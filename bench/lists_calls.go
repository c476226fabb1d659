package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// call is one way to ask the API. Both databases answer it alike in size, unless its name says otherwise.
type call struct {
	name   string
	method string // "": GET
	path   func(*side) string
	// page, if it is above 1, is the page of a list that is timed, or the last whole one of a shorter list.
	page   int
	body   string // %d is the number of the request
	header map[string]string
	etag   bool // ask with the ETag of the answer before
	stream bool // timed by the client up to the first event
	want   int  // 0: 200
	times  int  // 0: all
}

func at(path string) func(*side) string { return func(*side) string { return path } }

func of(job func(*side) string, rest string) func(*side) string {
	return func(s *side) string { return "/jobs/" + job(s) + rest }
}

func calls() []call {
	window := "from=" + time.Now().UTC().Add(-3*time.Hour).Format(time.RFC3339) + "&to=" + time.Now().UTC().Add(-1*time.Hour).Format(time.RFC3339)
	done, failed, open := func(s *side) string { return s.done }, func(s *side) string { return s.failed }, func(s *side) string { return s.open }
	job, going := func(s *side) string { return s.job }, func(s *side) string { return s.going }
	var list []call
	for _, query := range []string{
		"", "limit=200", "status=SUBMITTED", "status=IN_PROGRESS", "status=CANCELLING", "status=COMPLETED", "status=FAILED", "status=CANCELLED",
		"tenant=t0", "tenant=few", "tenant=t1&status=FAILED&limit=10", "tenant=t3&status=FAILED", "tenant=few&status=COMPLETED&limit=10", "tenant=nobody",
		window, window + "&status=SUBMITTED", window + "&tenant=t0", window + "&tenant=t0&status=SUBMITTED", "to=2020-01-01", "from=2020-01-01", "from=2020-01-01&status=FAILED",
		"key=EVERY", "key=EVERY&status=FAILED", "key=EVERY&tenant=few", "key=EVERY&tenant=t1&status=FAILED&limit=10", "key=EVERY&limit=200",
		window + "&key=EVERY", window + "&key=NONE", window + "&key=EVERY&tenant=t0&status=SUBMITTED",
	} {
		shown := strings.ReplaceAll(query, window, "from&to")
		list = append(list, call{name: strings.TrimSuffix("GET /jobs?"+shown, "?"), path: at("/jobs?" + query)})
	}
	for _, query := range []string{"key=K7", "key=RARE", "key=NONE", "key=NONE&status=FAILED", "key=NONE&tenant=t0"} {
		list = append(list, call{name: "GET /jobs?" + query + ": looks through 250 jobs", path: at("/jobs?" + query)})
	}
	return append(list,
		call{name: "GET /jobs, page 100", path: at("/jobs?"), page: 100},
		call{name: "GET /jobs?status=COMPLETED, page 100", path: at("/jobs?status=COMPLETED"), page: 100},
		call{name: "GET /jobs?key=EVERY, page 100", path: at("/jobs?key=EVERY"), page: 100},

		call{name: "GET /jobs/{id}, ended", path: of(job, "")},
		call{name: "GET /jobs/{id}, ended, unchanged", path: of(job, ""), etag: true, want: http.StatusNotModified},
		call{name: "GET /jobs/{id}, open", path: of(going, "")},
		call{name: "GET /jobs/{id}, ended, 10 000 chunks", path: of(done, "")},
		call{name: "GET /jobs/{id}, open, 10 000 chunks", path: of(open, "")},
		call{name: "GET /jobs/{id}, open, 10 000 chunks, unchanged", path: of(open, ""), etag: true, want: http.StatusNotModified},
		call{name: "GET /jobs/{id}?include=files, 40 files", path: of(job, "?include=files")},
		call{name: "GET /jobs/{id}?include=files, 10 000 files", path: of(done, "?include=files"), times: 15},
		call{name: "GET /jobs/{id}/events, first event", path: of(open, "/events"), stream: true},

		call{name: "GET chunks of 40", path: of(job, "/chunks")},
		call{name: "GET chunks of 10 000", path: of(done, "/chunks")},
		call{name: "GET chunks of 10 000, limit=200", path: of(done, "/chunks?limit=200")},
		call{name: "GET chunks of 10 000, page 150", path: of(done, "/chunks?"), page: 150},
		call{name: "GET chunks of 10 000, key", path: of(done, "/chunks?key=K1")},
		call{name: "GET chunks of 10 000, status=DONE", path: of(failed, "/chunks?status=DONE")},
		call{name: "GET chunks of 10 000, status=CANCELLED", path: of(failed, "/chunks?status=CANCELLED")},
		call{name: "GET chunks of 10 000, status=DLQ, one", path: of(failed, "/chunks?status=DLQ")},
		call{name: "GET chunks of 10 000, status=RUNNING, one", path: of(open, "/chunks?status=RUNNING")},
		call{name: "GET chunks of 10 000, status=PENDING", path: of(open, "/chunks?status=PENDING")},
		call{name: "GET chunks of 10 000, status=RETRY_WAIT, none", path: of(done, "/chunks?status=RETRY_WAIT")},
		call{name: "GET chunks of 10 000, status and key", path: of(failed, "/chunks?status=DONE&key=K1")},
		call{name: "GET chunk", path: func(s *side) string { return "/jobs/" + s.done + "/chunks/" + url.PathEscape(s.chunk) }},
		call{name: "GET chunk, dead after 5 attempts", path: func(s *side) string { return "/jobs/" + s.dead + "/chunks/" + url.PathEscape(s.deadChunk) }},
		call{name: "GET file", path: func(s *side) string { return "/jobs/" + s.done + "/files/" + url.PathEscape(s.chunk) }, want: http.StatusTemporaryRedirect},
		call{name: "GET manifest of 10 000", path: of(done, "/manifest")},

		call{name: "GET /queues", path: at("/queues")},
		call{name: "GET /workers", path: at("/workers")},

		call{name: "GET unknown job", path: at("/jobs/J20200101_000001"), want: http.StatusNotFound},
		call{name: "GET chunks of an unknown job", path: at("/jobs/J20200101_000001/chunks"), want: http.StatusNotFound},
		call{name: "GET unknown chunk", path: of(done, "/chunks/key=NONE:date=20200101"), want: http.StatusNotFound},
		call{name: "POST cancel of an ended job", method: http.MethodPost, path: of(job, "/cancel"), want: http.StatusConflict},
		call{name: "POST redrive of a completed job", method: http.MethodPost, path: of(job, "/redrive"), want: http.StatusConflict},
		call{name: "POST /redrive, dryRun, a day", method: http.MethodPost, path: at("/redrive"), want: http.StatusAccepted,
			body: `{"dryRun": true, "from": "` + time.Now().UTC().Add(-6*time.Hour).Format(time.RFC3339) + `"}`},
		call{name: "POST /redrive, dryRun, all: more in the full database", method: http.MethodPost, path: at("/redrive"), want: http.StatusAccepted, body: `{"dryRun": true}`},
		call{name: "POST /redrive, dryRun, errorCode: more in the full database", method: http.MethodPost, path: at("/redrive"), want: http.StatusAccepted,
			body: `{"dryRun": true, "errorCode": "SQL_22012"}`},
		call{name: "POST /redrive, dryRun, key and errorCode", method: http.MethodPost, path: at("/redrive"), want: http.StatusAccepted,
			body: `{"dryRun": true, "key": "NONE", "errorCode": "SQL_22012"}`},
		call{name: "POST /jobs, one chunk", method: http.MethodPost, path: at("/jobs"), want: http.StatusAccepted,
			body: `{"items": [{"key": "NEW-%d", "effectiveDates": ["20200101"]}]}`},
		call{name: "POST /jobs, again with its idempotency key", method: http.MethodPost, path: at("/jobs"), want: http.StatusAccepted,
			body: `{"items": [{"key": "AGAIN", "effectiveDates": ["20200101"]}], "idempotencyKey": "again"}`},
	)
}

// ask makes the call once and answers the id of the request, and how long it took as the client sees it.
func (s *side) ask(ctx context.Context, c call, path string) (id string, took time.Duration, header http.Header, body []byte, err error) {
	s.asks++
	id = fmt.Sprintf("lists-%d", s.asks)
	text := c.body
	if strings.Contains(text, "%d") {
		text = fmt.Sprintf(text, s.asks)
	}
	method := c.method
	if method == "" {
		method = http.MethodGet
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.in.url+path, strings.NewReader(text))
	if err != nil {
		return id, 0, nil, nil, err
	}
	req.Header.Set("X-Request-Id", id)
	if text != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.etag {
		req.Header.Set("If-None-Match", s.etags[path])
	}
	began := time.Now()
	resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
	if err != nil {
		return id, 0, nil, nil, err
	}
	defer resp.Body.Close()
	if c.stream {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data: ") {
				return id, time.Since(began), resp.Header, nil, nil
			}
		}
		return id, 0, nil, nil, fmt.Errorf("the stream ended without an event: %s", resp.Status)
	}
	body, err = io.ReadAll(resp.Body)
	took = time.Since(began)
	if want := max(c.want, http.StatusOK); err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(body))
	}
	return id, took, resp.Header, body, err
}

// prepare finds the path of the page to be timed, or the ETag to ask with.
func (s *side) prepare(ctx context.Context, c call) (path string, err error) {
	path = c.path(s)
	if c.etag {
		_, _, header, _, err := s.ask(ctx, call{}, path)
		s.etags[path] = header.Get("ETag")
		return path, err
	}
	whole := path
	for page := 1; page < c.page; page++ {
		next := struct{ NextCursor string }{}
		_, _, _, body, err := s.ask(ctx, call{}, path)
		if err != nil {
			return path, err
		}
		if err := json.Unmarshal(body, &next); err != nil {
			return path, err
		}
		if next.NextCursor == "" {
			return whole, nil // the small database has no more
		}
		whole, path = path, c.path(s)+"&cursor="+next.NextCursor
	}
	return path, nil
}
