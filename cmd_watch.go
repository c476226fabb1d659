package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"exportd/client"
)

type statusCommand struct {
	Job  string `arg:"" help:"Job, such as J20260102_000123."`
	JSON bool   `name:"json" flagonly:"" help:"Print the API's answer."`

	clientConfig `embed:""`
}

func (*statusCommand) Help() string {
	return examples(`exportd status J20260102_000123`, `exportd status J20260102_000123 --json | jq .errorMessage`)
}

func (c *statusCommand) run(ctx context.Context, p *process) error {
	job, err := c.client().Job(ctx, c.Job)
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	return printJob(p, job, c.JSON)
}

type watchCommand struct {
	Job  string `arg:"" help:"Job, such as J20260102_000123."`
	JSON bool   `name:"json" flagonly:"" help:"Print the job as JSON, one line for each change."`

	clientConfig `embed:""`
}

func (*watchCommand) Help() string {
	return "On a terminal a bar with speed and remaining time; else a line for each change. It outlasts an API that is away for less than two minutes.\n\n" +
		"Exit code: 0 completed, 3 failed, 4 cancelled, 5 unknown job, 6 API unreachable, 130 interrupted (the job goes on).\n\n" +
		examples(`exportd watch J20260102_000123`, `exportd watch J20260102_000123 --json | jq -c '{status,done,total}'`)
}

func (c *watchCommand) run(ctx context.Context, p *process) error {
	v := newView(p, c.JSON, false)
	defer v.close()
	api := c.client()
	api.Away = v.away
	job, err := api.Watch(ctx, c.Job, v.show)
	return v.end(ctx, c.Job, job, err)
}

// view shows a job that is watched: a line for each change, or a bar on a terminal and a line at the end.
type view struct {
	p           *process
	json, quiet bool
	bar         *progress // nil: lines
	isAway      bool
}

// newView draws the bar on standard error where that is a terminal. Quiet prints no line, which leaves standard output to others.
func newView(p *process, json, quiet bool) *view {
	v := &view{p: p, json: json, quiet: quiet}
	out := p.stderr
	if !p.drawsOn(out) {
		out = p.stdout
	}
	person := p.drawsOn(p.stdout) || quiet // else the lines would run through the bar
	if person && !json && p.drawsOn(out) {
		v.bar = p.startProgress(out)
	}
	return v
}

func (v *view) show(j client.Job) error {
	v.isAway = false
	if v.bar == nil {
		if v.quiet {
			return nil
		}
		return printJob(v.p, j, v.json)
	}
	v.bar.set(jobState(j))
	return nil
}

func jobState(j client.Job) state {
	settled := j.Done + j.Failed + j.Cancelled
	s := state{
		label: j.Status, done: int64(settled), bad: int64(j.Failed + j.Cancelled), left: int64(j.Total - settled), total: int64(j.Total),
		count: fmt.Sprintf("%d/%d", settled, j.Total),
		rate:  func(perSecond float64) string { return fmt.Sprintf("%.3g/s", perSecond) },
	}
	for _, n := range []struct {
		count int
		what  string
	}{{j.Failed, "failed"}, {j.Retrying, "retrying"}, {j.Running, "running"}, {j.Cancelled, "cancelled"}} {
		if n.count > 0 {
			s.notes = append(s.notes, strconv.Itoa(n.count)+" "+n.what)
		}
	}
	return s
}

// away tells once that the API is waited for.
func (v *view) away(err error) {
	if v.isAway {
		return
	}
	v.isAway = true
	line := fmt.Sprintf("exportd: %s; waiting for it", printable(err.Error()))
	if v.bar != nil {
		v.bar.say(v.p.stderr, line)
		return
	}
	fmt.Fprintln(v.p.stderr, line)
}

func (v *view) close() {
	if v.bar != nil {
		v.bar.stop()
	}
}

// end says how the job ended, or why it was not seen to.
func (v *view) end(ctx context.Context, id string, j client.Job, err error) error {
	v.close()
	if err != nil {
		return clientEnd(ctx, v.p, fmt.Sprintf("job %q goes on", id), err)
	}
	if v.bar != nil {
		out := io.Writer(v.p.stdout)
		if v.quiet {
			out = v.p.stderr
		}
		if _, err := fmt.Fprintln(out, jobLine(v.p, out, j)); err != nil {
			return err
		}
	}
	if j.Failed > 0 && v.p.drawsOn(v.p.stderr) {
		fmt.Fprintf(v.p.stderr, "see what failed:  exportd chunks %s --status DLQ\ntry again:        exportd redrive %s\n", j.JobID, j.JobID)
	}
	switch j.Status {
	case "FAILED":
		return exitJobFailed
	case "CANCELLED":
		return exitJobCancelled
	}
	return nil
}

func printJob(p *process, j client.Job, asJSON bool) error {
	if asJSON {
		_, err := fmt.Fprintf(p.stdout, "%s\n", j.Raw)
		return err
	}
	_, err := fmt.Fprintln(p.stdout, jobLine(p, p.stdout, j))
	return err
}

func jobLine(p *process, out io.Writer, j client.Job) string {
	status := printable(j.Status)
	if c := stateColours[status]; c != 0 && p.coloured(out) {
		status = paint(c, status)
	}
	line := fmt.Sprintf("%s %s: %d of %d done", printable(j.JobID), status, j.Done, j.Total)
	if !j.Ended() {
		line += fmt.Sprintf(", %d running, %d retrying", j.Running, j.Retrying)
	}
	line += fmt.Sprintf(", %d failed, %d cancelled", j.Failed, j.Cancelled)
	if j.Ended() {
		line += fmt.Sprintf(", %d rows, %s", j.RowCount, bytesText(j.ByteCount))
		if took := jobTook(j); took > 0 {
			line += ", took " + durationText(took)
		}
	}
	if j.ErrorMessage != "" {
		line += fmt.Sprintf(": %q", j.ErrorMessage)
	}
	return line
}

// jobTook is how long an ended job ran.
func jobTook(j client.Job) time.Duration {
	if j.StartedAt == nil || j.CompletedAt == nil {
		return 0
	}
	return j.CompletedAt.Sub(*j.StartedAt)
}

// examples are the last part of a command's help.
func examples(commands ...string) string {
	text := "Examples:\n"
	for _, c := range commands {
		text += "\n  " + c
	}
	return text
}
