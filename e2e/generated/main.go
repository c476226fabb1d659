// This program does everything in the contract through a client that oapi-codegen has made of the served OpenAPI document: client.go, which lies beside it
// when the test of the folder above runs it in a copy of this folder.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := drive(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// driver remembers the first thing that went otherwise than it should.
type driver struct {
	*ClientWithResponses
	ctx context.Context
	err error
}

// want notes what was done, when it went wrong: err, or ok being false with the answer.
func (d *driver) want(what string, ok bool, err error, answer any) {
	if d.err == nil && (err != nil || !ok) {
		if a, ok := answer.(interface{ GetBody() []byte }); ok && err == nil {
			answer = string(a.GetBody())
		}
		d.err = fmt.Errorf("%s: %v, %+v", what, err, answer)
	}
}

func drive(ctx context.Context, url, token string) error {
	noRedirect := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	client, err := NewClientWithResponses(url, WithHTTPClient(noRedirect), WithRequestEditorFn(header("Authorization", "Bearer "+token)))
	if err != nil {
		return err
	}
	d := &driver{ClientWithResponses: client, ctx: ctx}
	for _, step := range []func(){d.service, d.complete, d.failAndRedrive, d.cancel, d.operate, d.mistakes} {
		if step(); d.err != nil {
			return d.err
		}
	}
	return nil
}

func header(name, value string) RequestEditorFn {
	return func(_ context.Context, req *http.Request) error {
		req.Header.Set(name, value)
		return nil
	}
}

func ptr[T any](v T) *T { return &v }

func (d *driver) service() {
	health, err := d.GetHealthWithResponse(d.ctx)
	d.want("health", err == nil && health.JSON200 != nil, err, health)
	ready, err := d.GetReadinessWithResponse(d.ctx)
	d.want("readiness", err == nil && ready.JSON200 != nil && ready.JSON200.Checks["database"] == "ok", err, ready)
	metrics, err := d.GetMetricsWithResponse(d.ctx)
	d.want("metrics", err == nil && bytes.Contains(metrics.Body, []byte("exportd_http_requests_total")), err, metrics)
	document, err := d.GetDocumentWithResponse(d.ctx)
	d.want("document", err == nil && document.JSON200 != nil, err, document)
	docs, err := d.GetDocsWithResponse(d.ctx)
	d.want("docs", err == nil && bytes.Contains(docs.Body, []byte("<html")), err, docs)
}

// submit submits one chunk for each key.
func (d *driver) submit(idempotency string, keys ...string) string {
	body := Submission{OnFailure: ptr(SubmissionOnFailure("CONTINUE")), Priority: ptr(int64(5)), Output: &Output{Compression: ptr(OutputCompression("GZIP"))}}
	for _, key := range keys {
		body.Items = append(body.Items, Item{Key: key, EffectiveDates: []string{"20200131"}})
	}
	params := &SubmitJobParams{}
	if idempotency != "" {
		params.IdempotencyKey = &idempotency
	}
	resp, err := d.SubmitJobWithResponse(d.ctx, params, body)
	if d.want("submit", err == nil && resp.JSON202 != nil && resp.JSON202.Total == int64(len(keys)), err, resp); d.err != nil {
		return ""
	}
	return resp.JSON202.JobId
}

// end waits for the end of a job, with each state held for.
func (d *driver) end(id string, want JobDetailsStatus) *JobDetails {
	for d.err == nil {
		resp, err := d.GetJobWithResponse(d.ctx, id, &GetJobParams{Prefer: ptr("wait=20"), Include: ptr(GetJobParamsInclude("files"))})
		if d.want("get", err == nil && resp.JSON200 != nil, err, resp); d.err != nil {
			break
		}
		if job := resp.JSON200; job.CompletedAt != nil {
			d.want("end", job.Status == want, nil, *job)
			return job
		}
	}
	return &JobDetails{}
}

func (d *driver) complete() {
	id := d.submit("generated-1", "ROWS_3", "ROWS_5 a/b%:+é")
	d.want("replay", d.submit("generated-1", "ROWS_3", "ROWS_5 a/b%:+é") == id, nil, id)
	stream, err := d.WatchJob(d.ctx, id, &WatchJobParams{})
	if d.want("watch", err == nil && stream.StatusCode == 200, err, stream); d.err != nil {
		return
	}
	defer stream.Body.Close()
	last := ""
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			last = name
		}
	}
	d.want("the last event", last == "end", nil, last)
	job := d.end(id, "COMPLETED")
	d.want("files", job.DataContent != nil && len(*job.DataContent) == 2 && (*job.DataContent)[0].RowCount == 3, nil, job)
	full, err := d.GetJobWithResponse(d.ctx, id, &GetJobParams{})
	if d.want("get", err == nil && full.JSON200 != nil, err, full); d.err != nil {
		return
	}
	same, err := d.GetJobWithResponse(d.ctx, id, &GetJobParams{IfNoneMatch: ptr(full.HTTPResponse.Header.Get("ETag"))})
	d.want("not modified", err == nil && same.StatusCode() == 304, err, same)

	var chunks []Chunk
	for cursor := (*string)(nil); d.err == nil; {
		page, err := d.ListChunksWithResponse(d.ctx, id, &ListChunksParams{Limit: ptr(int64(1)), Cursor: cursor})
		if d.want("chunks", err == nil && page.JSON200 != nil, err, page); d.err != nil {
			return
		}
		chunks = append(chunks, page.JSON200.Chunks...)
		if cursor = page.JSON200.NextCursor; cursor == nil {
			break
		}
	}
	d.want("chunks", len(chunks) == 2, nil, chunks)
	for _, c := range chunks {
		one, err := d.GetChunkWithResponse(d.ctx, id, c.ChunkKey)
		d.want("chunk", err == nil && one.JSON200 != nil && one.JSON200.Key == c.Key && len(one.JSON200.Attempts) == 1 && one.JSON200.Attempts[0].Worker != nil, err, one)
		link, err := d.DownloadFileWithResponse(d.ctx, id, c.ChunkKey, header("Accept", "application/json"))
		d.want("link", err == nil && link.JSON200 != nil && link.JSON200.ExpiresAt.After(time.Now()), err, link)
		redirect, err := d.DownloadFileWithResponse(d.ctx, id, c.ChunkKey)
		if d.want("redirect", err == nil && redirect.StatusCode() == 307, err, redirect); d.err != nil {
			return
		}
		for _, url := range []string{link.JSON200.Url, redirect.HTTPResponse.Header.Get("Location")} {
			file, err := http.Get(url)
			if d.want("download", err == nil, err, url); d.err != nil {
				return
			}
			content, err := io.ReadAll(file.Body)
			file.Body.Close()
			d.want("file", err == nil && file.StatusCode == 200 && int64(len(content)) == *c.ByteCount, err, file.Status)
		}
	}
	manifest, err := d.GetManifestWithResponse(d.ctx, id)
	d.want("manifest", err == nil && manifest.JSON200 != nil && manifest.JSON200.JobId == id && len(manifest.JSON200.Chunks) == 2, err, manifest)
	list, err := d.ListJobsWithResponse(d.ctx, &ListJobsParams{Status: ptr(ListJobsParamsStatus("COMPLETED")), Key: ptr("ROWS_3"), From: ptr("2020-01-01"), Limit: ptr(int64(10))})
	d.want("list", err == nil && list.JSON200 != nil && len(list.JSON200.Jobs) == 1 && list.JSON200.Jobs[0].JobId == id, err, list)
}

func (d *driver) failAndRedrive() {
	id := d.submit("", "DIV_1", "ROWS_1")
	job := d.end(id, "FAILED")
	d.want("error", job.ErrorMessage != nil && job.Failed == 1 && job.Done == 1, nil, job)
	dry, err := d.RedriveJobsWithResponse(d.ctx, Redrive{Key: ptr("DIV_1"), Status: ptr(RedriveStatus("FAILED")), DryRun: ptr(true)})
	d.want("dry run", err == nil && dry.JSON202 != nil && dry.JSON202.Jobs == 1 && dry.JSON202.Redriven == 1, err, dry)
	one, err := d.RedriveJobWithResponse(d.ctx, id)
	d.want("redrive", err == nil && one.JSON202 != nil && one.JSON202.Redriven == 1, err, one)
	d.end(id, "FAILED")
	all, err := d.RedriveJobsWithResponse(d.ctx, Redrive{Key: ptr("DIV_1")})
	d.want("redrive all", err == nil && all.JSON202 != nil && all.JSON202.Redriven == 1, err, all)
	d.end(id, "FAILED")
}

func (d *driver) cancel() {
	id := d.submit("", "SLOW_60")
	resp, err := d.CancelJobWithResponse(d.ctx, id)
	d.want("cancel", err == nil && resp.JSON202 != nil, err, resp)
	d.end(id, "CANCELLED")
}

func (d *driver) operate() {
	queues, err := d.ListQueuesWithResponse(d.ctx)
	d.want("queues", err == nil && queues.JSON200 != nil && len(queues.JSON200.Queues) == 2, err, queues)
	workers, err := d.ListWorkersWithResponse(d.ctx)
	d.want("workers", err == nil && workers.JSON200 != nil && len(workers.JSON200.Workers) == 1, err, workers)
}

// mistakes are answered by problems that the client can read.
func (d *driver) mistakes() {
	bad, err := d.SubmitJobWithResponse(d.ctx, &SubmitJobParams{}, Submission{Items: []Item{{Key: "", EffectiveDates: []string{"20250230"}}}})
	d.want("problem", err == nil && bad.ApplicationproblemJSON400 != nil && bad.ApplicationproblemJSON400.Type == "/problems/validation" &&
		bad.ApplicationproblemJSON400.Errors != nil && len(*bad.ApplicationproblemJSON400.Errors) == 2, err, bad)
	none, err := d.GetJobWithResponse(d.ctx, "J20200101_000001", &GetJobParams{})
	d.want("not found", err == nil && none.ApplicationproblemJSON404 != nil, err, none)
	stranger, err := d.ListJobsWithResponse(d.ctx, &ListJobsParams{}, header("Authorization", "Bearer nobody"))
	d.want("unauthorized", err == nil && stranger.ApplicationproblemJSON401 != nil, err, stranger)
}
