package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"exportd/client"
)

type jobsCommand struct {
	period `embed:""`

	Status choice `flagonly:"" choices:"SUBMITTED,IN_PROGRESS,CANCELLING,COMPLETED,FAILED,CANCELLED" placeholder:"WORD" help:"Jobs in that state: SUBMITTED, IN_PROGRESS, CANCELLING, COMPLETED, FAILED or CANCELLED."`
	Key    string `flagonly:"" placeholder:"KEY" help:"Jobs with a chunk of the key."`
	Tenant string `flagonly:"" placeholder:"NAME" help:"Jobs of the tenant; for operators, who see all."`
	Limit  int    `flagonly:"" short:"n" default:"50" help:"Most jobs to show."`
	JSON   bool   `name:"json" flagonly:"" help:"Print the jobs as JSON, one a line."`

	clientConfig `embed:""`
}

func (*jobsCommand) Help() string {
	return "Newest first. When standard output is no terminal: columns with tabs between them, without a header.\n\n" + examples(
		`exportd jobs --status failed --since 24h`, `exportd jobs --key ABC --from 2026-01-01 --to 2026-01-31 --limit 500`,
		`exportd jobs --json | jq -r 'select(.failed > 0) | .jobId'`)
}

func (c *jobsCommand) check(f *faults) {
	c.clientConfig.check(f)
	c.period.check(f)
	checkLimit(f, c.Limit)
}

func (c *jobsCommand) run(ctx context.Context, p *process) error {
	jobs, more, err := pages(c.Limit, func(limit int, cursor string) ([]client.Job, string, error) {
		return c.client().Jobs(ctx, client.JobsFilter{Status: string(c.Status), Key: c.Key, From: c.From, To: c.To, Tenant: c.Tenant, Limit: limit}, cursor)
	})
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	rows := make([][]string, len(jobs))
	for i, j := range jobs {
		rows[i] = []string{j.JobID, j.Status, strconv.Itoa(j.Done), strconv.Itoa(j.Total), strconv.Itoa(j.Failed), strconv.Itoa(j.Cancelled),
			p.timeText(j.CreatedAt), durationText(jobTook(j)), j.ErrorMessage}
		if jobTook(j) == 0 {
			rows[i][7] = ""
		}
	}
	return printList(p, c.JSON, jobs, func(j client.Job) client.Raw { return j.Raw }, more,
		[]string{"JOB", "STATUS", "DONE", "OF", "FAILED", "CANCELLED", "CREATED", "TOOK", "ERROR"}, rows)
}

// printList prints the entries as JSON lines or as a table.
func printList[T any](p *process, asJSON bool, entries []T, raw func(T) client.Raw, more bool, header []string, rows [][]string) error {
	if asJSON {
		for _, e := range entries {
			if _, err := fmt.Fprintf(p.stdout, "%s\n", raw(e)); err != nil {
				return err
			}
		}
	} else if len(rows) == 0 && p.drawsOn(p.stdout) {
		fmt.Fprintln(p.stderr, "exportd: there is none")
	} else if err := p.printTable(header, rows); err != nil {
		return err
	}
	sayMore(p, more, len(entries))
	return nil
}

type chunksCommand struct {
	Job    string `arg:"" help:"Job, such as J20260102_000123."`
	Chunk  string `arg:"" optional:"" name:"chunk" help:"One chunk, such as key=ABC:date=20250215: shows its attempts."`
	Status choice `flagonly:"" choices:"PENDING,RUNNING,RETRY_WAIT,DONE,DLQ,CANCELLED" placeholder:"WORD" help:"Chunks in that state: PENDING, RUNNING, RETRY_WAIT, DONE, DLQ or CANCELLED."`
	Key    string `flagonly:"" placeholder:"KEY" help:"Chunks of the key."`
	Limit  int    `flagonly:"" short:"n" default:"1000" help:"Most chunks to show."`
	JSON   bool   `name:"json" flagonly:"" help:"Print the chunks as JSON, one a line."`

	clientConfig `embed:""`
}

func (*chunksCommand) Help() string {
	return examples(`exportd chunks J20260102_000123 --status dlq`, `exportd chunks J20260102_000123 key=ABC:date=20250215`)
}

func (c *chunksCommand) check(f *faults) {
	c.clientConfig.check(f)
	checkLimit(f, c.Limit)
	if c.Chunk != "" && (c.Status != "" || c.Key != "") {
		f.lines = append(f.lines, "a chunk is named and there is a filter too: give one of them")
	}
}

func (c *chunksCommand) run(ctx context.Context, p *process) error {
	if c.Chunk != "" {
		return c.runOne(ctx, p)
	}
	chunks, more, err := pages(c.Limit, func(limit int, cursor string) ([]client.Chunk, string, error) {
		return c.client().Chunks(ctx, c.Job, client.ChunksFilter{Status: string(c.Status), Key: c.Key, Limit: limit}, cursor)
	})
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	rows := make([][]string, len(chunks))
	for i, ch := range chunks {
		rows[i] = []string{ch.ChunkKey, ch.Status, strconv.Itoa(ch.AttemptCount), chunkRows(ch), chunkBytes(p, ch), chunkNote(ch)}
	}
	return printList(p, c.JSON, chunks, func(ch client.Chunk) client.Raw { return ch.Raw }, more,
		[]string{"CHUNK", "STATUS", "ATTEMPTS", "ROWS", "SIZE", "FILE OR ERROR"}, rows)
}

func chunkRows(ch client.Chunk) string {
	if ch.S3Path == "" {
		return ""
	}
	return strconv.FormatInt(ch.RowCount, 10)
}

func chunkBytes(p *process, ch client.Chunk) string {
	switch {
	case ch.S3Path == "":
		return ""
	case p.drawsOn(p.stdout):
		return bytesText(ch.ByteCount)
	}
	return strconv.FormatInt(ch.ByteCount, 10)
}

// chunkNote is the error, or where the file is.
func chunkNote(ch client.Chunk) string {
	switch {
	case ch.S3Path != "" && ch.Superseded:
		return ch.S3Path + " (made anew since)"
	case ch.S3Path != "":
		return ch.S3Path
	case ch.ErrorCode != "" || ch.ErrorMessage != "":
		return ch.ErrorCode + ": " + ch.ErrorMessage
	}
	return ""
}

func (c *chunksCommand) runOne(ctx context.Context, p *process) error {
	ch, err := c.client().Chunk(ctx, c.Job, c.Chunk)
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	if c.JSON {
		_, err := fmt.Fprintf(p.stdout, "%s\n", ch.Raw)
		return err
	}
	if p.drawsOn(p.stdout) {
		fmt.Fprintf(p.stdout, "%s %s, %s spent\n", printable(ch.ChunkKey), printable(ch.Status), count(ch.AttemptCount, "attempt"))
		if note := chunkNote(ch); note != "" {
			fmt.Fprintln(p.stdout, lines(note))
		}
		if ch.Checksum != "" {
			fmt.Fprintf(p.stdout, "%d rows, %s, sha256 %s\n", ch.RowCount, bytesText(ch.ByteCount), printable(ch.Checksum))
		}
	}
	rows := make([][]string, len(ch.Attempts))
	for i, a := range ch.Attempts {
		text := a.ErrorCode
		if a.Error != "" {
			text += ": " + a.Error
		}
		rows[i] = []string{strconv.Itoa(a.Number), a.Outcome, p.maybeTime(a.Started), p.maybeTime(a.Ended), a.Worker, text}
	}
	return p.printTable([]string{"ATTEMPT", "OUTCOME", "STARTED", "ENDED", "WORKER", "ERROR"}, rows)
}

func (p *process) maybeTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return p.timeText(*t)
}
