package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"exportd/client"
)

// exitCode ends a client command that has itself said why.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

const (
	exitJobFailed    exitCode = 3
	exitJobCancelled exitCode = 4
	exitUnknownJob   exitCode = 5
	exitUnreachable  exitCode = 6
	exitInterrupted  exitCode = 130
)

type clientConfig struct {
	URL   string `name:"url" default:"http://127.0.0.1:8080" help:"Address of the API."`
	Token secret `name:"token" file:"" help:"Bearer token for it."`
}

func (c clientConfig) check(f *faults) {
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		f.add("url", "is not the address of an API; give one such as http://127.0.0.1:8080")
	}
}

func (c clientConfig) client() client.Client {
	return client.Client{URL: c.URL, Token: string(c.Token), Every: time.Second, Patience: 2 * time.Minute}
}

type statusCommand struct {
	clientConfig `embed:""`

	Job  string `arg:"" help:"Job, such as J20260102_000123."`
	JSON bool   `name:"json" flagonly:"" help:"Print the API's answer."`
}

func (c *statusCommand) run(ctx context.Context, p *process) error {
	job, err := c.client().Job(ctx, c.Job)
	if err != nil {
		return clientEnd(ctx, p, c.Job, err)
	}
	return printJob(p, job, c.JSON)
}

type watchCommand statusCommand

func (c *watchCommand) run(ctx context.Context, p *process) error {
	job, err := c.client().Watch(ctx, c.Job, func(j client.Job) error { return printJob(p, j, c.JSON) })
	switch {
	case err != nil:
		return clientEnd(ctx, p, c.Job, err)
	case job.Status == "FAILED":
		return exitJobFailed
	case job.Status == "CANCELLED":
		return exitJobCancelled
	}
	return nil
}

func printJob(p *process, j client.Job, asJSON bool) error {
	if asJSON {
		_, err := fmt.Fprintf(p.stdout, "%s\n", j.Raw)
		return err
	}
	line := fmt.Sprintf("%s %s: %d of %d done, %d running, %d retrying, %d failed, %d cancelled",
		j.JobID, j.Status, j.Done, j.Total, j.Running, j.Retrying, j.Failed, j.Cancelled)
	if j.ErrorMessage != "" {
		line += fmt.Sprintf(": %q", j.ErrorMessage)
	}
	_, err := fmt.Fprintln(p.stdout, line)
	return err
}

// clientEnd says why a call failed and gives the exit code of it.
func clientEnd(ctx context.Context, p *process, id string, err error) error {
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(p.stderr, "exportd: interrupted; job %q goes on\n", id)
		return exitInterrupted
	case errors.Is(err, client.ErrUnknown):
		fmt.Fprintf(p.stderr, "exportd: %v; check the id, and that EXPORTD_TOKEN is of its tenant\n", err)
		return exitUnknownJob
	case errors.Is(err, client.ErrUnreachable):
		fmt.Fprintf(p.stderr, "exportd: %v; check EXPORTD_URL and that exportd api runs\n", err)
		return exitUnreachable
	}
	return err
}
