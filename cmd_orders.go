package main

import (
	"context"
	"fmt"

	"exportd/client"
)

type cancelCommand struct {
	Jobs []string `arg:"" name:"job" help:"Jobs to end: what has not started is cancelled, what runs is stopped."`
	JSON bool     `name:"json" flagonly:"" help:"Print the API's answers, one a line."`

	clientConfig `embed:""`
}

func (*cancelCommand) Help() string {
	return examples(`exportd cancel J20260102_000123`, `exportd jobs --status in-progress | cut -f1 | xargs exportd cancel`)
}

func (c *cancelCommand) run(ctx context.Context, p *process) (worst error) {
	for _, id := range c.Jobs {
		job, err := c.client().Cancel(ctx, id)
		if err == nil {
			err = printJob(p, job, c.JSON)
		} else {
			err = clientEnd(ctx, p, "", fmt.Errorf("cancel %s: %w", id, err))
		}
		worst = worse(worst, err)
		if ctx.Err() != nil {
			break
		}
	}
	return worst
}

type redriveCommand struct {
	period `embed:""`

	Jobs      []string `arg:"" optional:"" name:"job" help:"Jobs of which to try the dead-lettered and cancelled chunks again."`
	Status    choice   `flagonly:"" choices:"FAILED,CANCELLED" placeholder:"WORD" help:"Instead of named jobs, all in that state: FAILED or CANCELLED."`
	Key       string   `flagonly:"" placeholder:"KEY" help:"All jobs with a chunk of the key."`
	ErrorCode string   `flagonly:"" placeholder:"CODE" help:"All jobs with a chunk that failed with the code, such as SQL_57014; exportd parked shows codes."`
	DryRun    bool     `flagonly:"" help:"Only count."`
	Yes       bool     `flagonly:"" short:"y" help:"Do not ask before jobs are picked by a filter. Without a terminal nothing is asked."`
	JSON      bool     `name:"json" flagonly:"" help:"Print the API's answers, one a line."`

	clientConfig `embed:""`
}

func (*redriveCommand) Help() string {
	return "Filters are joined: jobs that fit all of them.\n\n" + examples(
		`exportd redrive J20260102_000123`, `exportd redrive --error-code SQL_57014 --since 24h --dry-run`, `exportd redrive --status failed --since 7d --yes`)
}

func (c *redriveCommand) filter() client.RedriveFilter {
	return client.RedriveFilter{Status: string(c.Status), Key: c.Key, From: c.From, To: c.To, ErrorCode: c.ErrorCode}
}

func (c *redriveCommand) check(f *faults) {
	c.clientConfig.check(f)
	c.period.check(f)
	filtered := c.filter() != client.RedriveFilter{}
	switch {
	case filtered && len(c.Jobs) > 0:
		f.lines = append(f.lines, "jobs are named and there is a filter too: give one of them")
	case !filtered && len(c.Jobs) == 0:
		f.lines = append(f.lines, "name the jobs, or give a filter such as --status failed --since 24h")
	}
}

func (c *redriveCommand) run(ctx context.Context, p *process) error {
	if len(c.Jobs) == 0 {
		return c.runFilter(ctx, p)
	}
	var worst error
	for _, id := range c.Jobs {
		r, err := c.one(ctx, id)
		if err != nil {
			err = clientEnd(ctx, p, "", fmt.Errorf("re-drive %s: %w", id, err))
		} else {
			err = c.print(p, r, "%s: %s back %s\n", printable(id), c.would(), count(r.Redriven, "chunk"))
		}
		worst = worse(worst, err)
		if ctx.Err() != nil {
			break
		}
	}
	return worst
}

// would begins what is said of chunks that are put back.
func (c *redriveCommand) would() string {
	if c.DryRun {
		return "would put"
	}
	return "put"
}

func (c *redriveCommand) one(ctx context.Context, id string) (client.Redriven, error) {
	if !c.DryRun {
		return c.client().Redrive(ctx, id)
	}
	job, err := c.client().Job(ctx, id)
	if err == nil && job.Status != "FAILED" && job.Status != "CANCELLED" {
		err = fmt.Errorf("the job is %s; only FAILED and CANCELLED ones are tried again", job.Status)
	}
	n := job.Failed + job.Cancelled
	return client.Redriven{JobID: id, Redriven: n, DryRun: true, Raw: fmt.Appendf(nil, `{"jobId":%q,"redriven":%d,"dryRun":true}`, job.JobID, n)}, err
}

func (c *redriveCommand) print(p *process, r client.Redriven, format string, args ...any) error {
	if c.JSON {
		format, args = "%s\n", []any{r.Raw}
	}
	_, err := fmt.Fprintf(p.stdout, format, args...)
	return err
}

// runFilter counts first: that is what a person is asked about, and where it ends when jobs fail again faster than they are put back.
func (c *redriveCommand) runFilter(ctx context.Context, p *process) error {
	filter := c.filter()
	filter.DryRun = true
	found, err := c.client().RedriveAll(ctx, filter)
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	if c.DryRun || found.Jobs == 0 {
		return c.print(p, found, "would put back %s of %s\n", count(found.Redriven, "chunk"), count(found.Jobs, "job"))
	}
	if p.asks() && !c.Yes {
		if err := p.confirm(ctx, "nothing was put back", "Put back %s of %s?", count(found.Redriven, "chunk"), count(found.Jobs, "job")); err != nil {
			return err
		}
	}
	filter.DryRun = false
	jobs, chunks := 0, 0
	for more := true; more && jobs < found.Jobs; {
		r, err := c.client().RedriveAll(ctx, filter)
		if err != nil {
			return clientEnd(ctx, p, fmt.Sprintf("put back so far: %s of %s", count(chunks, "chunk"), count(jobs, "job")), err)
		}
		jobs, chunks, more = jobs+r.Jobs, chunks+r.Redriven, r.More && r.Jobs > 0
		if c.JSON {
			if err := c.print(p, r, ""); err != nil {
				return err
			}
		}
	}
	if c.JSON {
		return nil
	}
	return c.print(p, client.Redriven{}, "put back %s of %s\n", count(chunks, "chunk"), count(jobs, "job"))
}
