package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"exportd/e2e/stack"
	"exportd/export"
)

// installation is exportd itself: the built program's api and a consumer, with their defaults but for the concurrency.
type installation struct {
	b        *bench
	api      *process
	consumer *process // nil when only the api was wanted
	url      string
}

func (b *bench) startExportd(ctx context.Context, variant, basePath string, concurrency int) (in *installation, err error) {
	env := []string{
		"EXPORTD_DATABASE_URL=" + b.database, "EXPORTD_HTTP_ADDR=127.0.0.1:0", "EXPORTD_LOG_FORMAT=json",
		"EXPORTD_S3_ENDPOINT=" + b.s3.Endpoint(), "EXPORTD_S3_REGION=us-east-1", "EXPORTD_S3_BUCKET=" + bucket, "EXPORTD_S3_BASE_PATH=" + basePath,
	}
	if variant == exportdBroker {
		env = append(env, "EXPORTD_BROKER_URLS="+b.activemq.URL(), "EXPORTD_BROKER_USER=admin", "EXPORTD_BROKER_PASSWORD=admin")
	} else {
		env = append(env, "EXPORTD_DISPATCH=database")
	}
	in = &installation{b: b}
	defer func() {
		if err != nil {
			in.stop()
		}
	}()
	if in.api, in.url, err = b.serve(ctx, "api", env); err != nil || concurrency == 0 {
		return in, err
	}
	in.consumer, _, err = b.serve(ctx, "consumer", append(env, fmt.Sprint("EXPORTD_CONCURRENCY=", concurrency)))
	return in, err
}

// serve starts a command and waits until all it depends on answers.
func (b *bench) serve(ctx context.Context, command string, env []string) (*process, string, error) {
	p, err := b.start(command, b.program, env, command, "--stop-with-stdin")
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	url := ""
	for url == "" {
		line, err := p.line(ctx)
		if err != nil {
			p.stop()
			return nil, "", err
		}
		url, _ = strings.CutPrefix(line, "listening on ")
	}
	err = stack.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK, err
	})
	if err != nil {
		p.stop()
		return nil, "", fmt.Errorf("%s is not ready: %w", command, err)
	}
	return p, url, nil
}

func (in *installation) stop() {
	for _, p := range in.own() {
		p.stop()
	}
}

func (in *installation) own() (list []*process) {
	for _, p := range []*process{in.consumer, in.api} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// post submits a job and answers when the client began and had the answer.
func (in *installation) post(ctx context.Context, body []byte) (jobID string, began, answered time.Time, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url+"/jobs", bytes.NewReader(body))
	if err != nil {
		return "", began, answered, err
	}
	req.Header.Set("Content-Type", "application/json")
	began = time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", began, answered, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	answered = time.Now()
	if err != nil {
		return "", began, answered, err
	}
	if resp.StatusCode != http.StatusAccepted {
		return "", began, answered, fmt.Errorf("POST /jobs: %s: %s", resp.Status, answer)
	}
	var job stack.Job
	err = json.Unmarshal(answer, &job)
	return job.JobID, began, answered, err
}

// ended waits for the job's end and answers when that was, by the clock of the database, which is the clock of this machine.
func (in *installation) ended(ctx context.Context, jobID string) (time.Time, error) {
	var status string
	var at *time.Time
	err := stack.Poll(ctx, 100*time.Millisecond, func() (bool, error) { // seldom: it counts as exportd's own work
		err := in.b.conn.QueryRow(ctx, `select status, completed_at from job where job_id = $1`, jobID).Scan(&status, &at)
		return at != nil, err
	})
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("wait for the job %s: %w", jobID, err)
	case status != string(export.Completed):
		return time.Time{}, fmt.Errorf("the job %s is %s", jobID, status)
	}
	return *at, nil
}

// job has the chunks exported as one job and answers how long that took from the POST.
func (in *installation) job(ctx context.Context, chunks []export.Ref, reuse bool) (time.Duration, error) {
	id, began, _, err := in.post(ctx, submission(chunks, reuse))
	if err != nil {
		return 0, err
	}
	at, err := in.ended(ctx, id)
	return at.Sub(began), err
}

// work has the chunks exported as one job, or several when they are more than a job may have, and answers how long that took from the first POST.
func (in *installation) work(ctx context.Context, chunks []export.Ref) (time.Duration, error) {
	const most = 10_000 // EXPORTD_MAX_CHUNKS
	var jobs []string
	var first time.Time
	for len(chunks) > 0 {
		n := min(most, len(chunks))
		id, began, _, err := in.post(ctx, submission(chunks[:n], true))
		if err != nil {
			return 0, err
		}
		if jobs = append(jobs, id); len(jobs) == 1 {
			first = began
		}
		chunks = chunks[n:]
	}
	var last time.Time
	for _, id := range jobs {
		at, err := in.ended(ctx, id)
		if err != nil {
			return 0, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last.Sub(first), nil
}

// kill ends it with what it has in hand.
func (in *installation) kill() error {
	for _, p := range in.own() {
		if err := p.cmd.Process.Kill(); err != nil {
			return err
		}
	}
	return nil
}
