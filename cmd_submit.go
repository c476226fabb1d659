package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"exportd/client"
)

type submitCommand struct {
	Keys        []placed `name:"key" flagonly:"" sep:"none" placeholder:"KEY" help:"Key to export; takes the --dates that follow. Repeatable, and several keys may share dates."`
	Dates       []placed `name:"dates" flagonly:"" sep:"none" placeholder:"DATES" help:"Its days: 20250131, 2025-01-31, 20250101..20250131, or several with commas. Repeatable."`
	From        string   `flagonly:"" placeholder:"FILE" help:"Read the job from a file, - for standard input: lines of key,date, or the JSON body of POST /jobs."`
	OnFailure   choice   `flagonly:"" choices:"FAIL_FAST,CONTINUE" placeholder:"WORD" help:"What a dead-lettered chunk means for the others: FAIL_FAST (the default) stops them, CONTINUE tries them all."`
	Compression choice   `flagonly:"" choices:"NONE,GZIP,ZSTD" placeholder:"WORD" help:"Of the files: NONE (the default), GZIP or ZSTD."`
	Priority    *int     `flagonly:"" placeholder:"N" help:"From 0 to 9; 4 by default, 9 is first."`
	Reuse       *bool    `flagonly:"" negatable:"" help:"Take files that an earlier job made, as by default, or --no-reuse: make all anew."`
	CallbackURL string   `name:"callback-url" flagonly:"" placeholder:"URL" help:"Is called when the job has ended."`
	Idempotency string   `name:"idempotency-key" flagonly:"" placeholder:"TEXT" help:"Name of this submission: the same again gives the same job and no second one. Drawn at random by default."`
	Watch       bool     `flagonly:"" help:"Watch the job until it has ended, as exportd watch does, with its exit codes."`
	Quiet       bool     `flagonly:"" short:"q" help:"Print the job's id and nothing else."`
	JSON        bool     `name:"json" flagonly:"" help:"Print the API's answer; with --watch one line for each change."`

	clientConfig `embed:""`

	ordered ordered
}

func (*submitCommand) Help() string {
	return "Prints the job's id alone when standard output is no terminal. A lost answer is asked for again, without a second job.\n\n" + examples(
		`exportd submit --key ABC --dates 20250101..20250131 --watch`,
		`exportd submit --key ABC --key DEF --dates 20250131 --key XYZ --dates 20250215,20250315`,
		`exportd submit --from chunks.csv --on-failure continue --compression gzip`,
		`psql -Atc "select key || ',' || day from due" | exportd submit --from -`,
		`job=$(exportd submit --from request.json) && exportd watch $job`)
}

func (c *submitCommand) check(f *faults) {
	c.clientConfig.check(f)
	typed := len(c.Keys)+len(c.Dates) > 0
	switch {
	case typed && c.From != "":
		f.add("from", "and --key are both given; a job comes from one of them")
	case !typed && c.From == "":
		f.add("key", "is missing: say what to export, such as --key ABC --dates 20250101..20250131, or read it from a file: --from FILE")
	}
	for _, err := range c.ordered.addPairs(c.Keys, c.Dates) {
		f.lines = append(f.lines, err.Error())
	}
	if c.Priority != nil && (*c.Priority < 0 || *c.Priority > 9) {
		f.add("priority", "is %d; it must be from 0 to 9", *c.Priority)
	}
	if c.Quiet && c.JSON {
		f.add("quiet", "and --json are both given; keep one")
	}
	if c.Idempotency != "" && !fitsHeader(c.Idempotency) {
		f.add("idempotency-key", "is %q; it must be printable ASCII", c.Idempotency)
	}
}

func (c *submitCommand) run(ctx context.Context, p *process) error {
	body, err := c.body(ctx, p)
	switch {
	case ctx.Err() != nil: // what came may be half of it
		return clientEnd(ctx, p, "nothing was submitted", ctx.Err())
	case err != nil:
		fmt.Fprintf(p.stderr, "exportd: %s\n", lines(err.Error()))
		return exitCode(exitUsage)
	}
	job, replayed, err := c.send(ctx, p, body)
	if err != nil {
		return err
	}
	if replayed {
		fmt.Fprintf(p.stderr, "exportd: this was submitted before, as job %s\n", printable(job.JobID))
	}
	switch {
	case c.JSON && !c.Watch:
		return printJob(p, job, true)
	case c.Quiet || !c.JSON && !p.drawsOn(p.stdout) && !c.Watch:
		_, err = fmt.Fprintln(p.stdout, printable(job.JobID))
	case !c.JSON && p.drawsOn(p.stdout):
		_, err = fmt.Fprintf(p.stdout, "%s submitted, %s\n", printable(job.JobID), count(job.Total, "chunk"))
	}
	if err != nil {
		return fmt.Errorf("job %s was submitted, but that could not be printed: %w", job.JobID, err)
	}
	if !c.Watch {
		if !c.Quiet && p.drawsOn(p.stderr) {
			fmt.Fprintf(p.stderr, "watch it:  exportd watch %s\n", printable(job.JobID))
		}
		return nil
	}
	v := newView(p, c.JSON, c.Quiet)
	defer v.close()
	api := c.client()
	api.Away = v.away
	last, err := api.WatchOn(ctx, job, v.show)
	return v.end(ctx, job.JobID, last, err)
}

// mostInput is more than any API takes.
const mostInput = 1 << 30

// body is a client.Submission, or the client.Raw that the user wrote.
func (c *submitCommand) body(ctx context.Context, p *process) (any, error) {
	if c.From != "" {
		text, err := heeding(ctx, func() ([]byte, error) { return c.read(p) })
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n"), []byte("{")) {
			if c.OnFailure+c.Compression != "" || c.CallbackURL != "" || c.Priority != nil || c.Reuse != nil {
				return nil, errors.New("--on-failure, --compression, --priority, --reuse and --callback-url are for keys and CSV; in a JSON body write them as its members")
			}
			return client.Raw(bytes.TrimPrefix(text, []byte("\ufeff"))), nil
		}
		name := c.From
		if name == "-" {
			name = "standard input"
		}
		if err := c.ordered.addCSV(text, name); err != nil {
			return nil, fmt.Errorf("nothing was submitted:\n%w", err)
		}
	}
	s := client.Submission{
		Items: c.ordered.items, OnFailure: string(c.OnFailure), Reuse: c.Reuse, Priority: c.Priority, CallbackURL: c.CallbackURL,
	}
	if c.Compression != "" {
		s.Output = &client.Output{Compression: string(c.Compression)}
	}
	return s, nil
}

func (c *submitCommand) read(p *process) ([]byte, error) {
	in := p.stdin
	if c.From != "-" {
		file, err := os.Open(c.From)
		if err != nil {
			return nil, fmt.Errorf("--from: %w", err)
		}
		defer file.Close()
		in = file
	} else if p.asks() {
		fmt.Fprintln(p.stderr, "exportd: reading lines of key,date; end with Ctrl-D")
	}
	if in == nil {
		return nil, errors.New("--from -: there is no standard input")
	}
	text, err := io.ReadAll(io.LimitReader(in, mostInput+1))
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", c.From, err)
	}
	if len(text) > mostInput {
		return nil, fmt.Errorf("--from %s: there is more than %s", c.From, bytesText(mostInput))
	}
	return text, nil
}

const submitTries = 5

// firstPause is before the second try to submit; doubled for each further one.
const firstPause = 500 * time.Millisecond

// send posts the submission under an idempotency key, so that it may be repeated when an answer is lost.
func (c *submitCommand) send(ctx context.Context, p *process, body any) (job client.Job, replayed bool, err error) {
	key, drawn := c.Idempotency, false
	if key == "" && !namesItself(body) {
		key, drawn = "exportd-submit-"+rand.Text(), true
	}
	again := "run the same command again"
	if drawn {
		again += " with --idempotency-key " + key
	}
	pause, sent := firstPause, false
	for try := 1; ; try++ {
		job, replayed, err = c.client().SubmitKeyed(ctx, body, key)
		if ctx.Err() != nil && err != nil {
			return job, false, clientEnd(ctx, p, "the job may be stored all the same; to find out, "+again, err)
		}
		if !errors.Is(err, client.ErrUnreachable) {
			break
		}
		if dial, ok := errors.AsType[*net.OpError](err); !ok || dial.Op != "dial" {
			sent = true
		}
		if try == submitTries {
			_ = clientEnd(ctx, p, "", err)
			if sent {
				fmt.Fprintf(p.stderr, "exportd: the job may be stored all the same, and its answer lost; %s, which makes no second job\n", again)
			}
			return job, false, exitUnreachable
		}
		if try == 1 {
			fmt.Fprintf(p.stderr, "exportd: %s; trying again\n", printable(err.Error()))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause *= 2
		}
	}
	if refused, ok := errors.AsType[*client.Problem](err); ok {
		fmt.Fprintf(p.stderr, "exportd: %s\n", lines(c.ordered.explain(refused)))
		return job, false, exitCode(exitFailed)
	}
	return job, replayed && !drawn, clientEnd(ctx, p, "", err)
}

// namesItself says whether a JSON body has an idempotency key.
func namesItself(body any) bool {
	var named struct{ IdempotencyKey json.RawMessage }
	raw, isRaw := body.(client.Raw)
	return isRaw && json.Unmarshal(raw, &named) == nil && named.IdempotencyKey != nil
}
