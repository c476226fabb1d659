package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"exportd/broker"
	"exportd/client"
	"exportd/export"
)

type queuesCommand struct {
	JSON bool `name:"json" flagonly:"" help:"Print the queues as JSON, one a line."`

	clientConfig `embed:""`
}

func (*queuesCommand) Help() string {
	return "As the API's broker tells it; what it does not tell is said to be unknown. Messages are hints only: what has to run is in the database.\n\n" +
		examples(`exportd queues`, `exportd queues --json | jq -r 'select(.messages > 1000) | .queue'`)
}

func (c *queuesCommand) run(ctx context.Context, p *process) error {
	queues, err := c.client().Queues(ctx)
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	if len(queues) == 0 && !c.JSON {
		fmt.Fprintln(p.stderr, "exportd: there are no queues: this installation works without a broker (EXPORTD_DISPATCH=database)")
		return nil
	}
	rows := make([][]string, len(queues))
	for i, q := range queues {
		rows[i] = []string{q.Queue, known(q.Messages), known(q.InFlight), known(q.Consumers), q.Reason}
	}
	return printList(p, c.JSON, queues, func(q client.Queue) client.Raw { return q.Raw }, false,
		[]string{"QUEUE", "MESSAGES", "IN FLIGHT", "CONSUMERS", "WHY UNKNOWN"}, rows)
}

func known(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}

type parkedCommand struct {
	period `embed:""`
	Login  brokerLogin `embed:""`

	Key       string `flagonly:"" placeholder:"KEY" help:"Dead letters of the key."`
	ErrorCode string `flagonly:"" placeholder:"CODE" help:"Dead letters with the code, such as SQL_57014."`
	Limit     int    `flagonly:"" short:"n" default:"50" help:"Most dead letters to show."`
	Broker    bool   `flagonly:"" help:"Show the messages in the parking queue instead; reads the broker's settings, not the API's."`
	Drain     bool   `flagonly:"" help:"Empty the parking queue, once its messages were dealt with. The dead letters stay in the database."`
	Yes       bool   `flagonly:"" short:"y" help:"Empty it without asking."`
	JSON      bool   `name:"json" flagonly:"" help:"Print the dead letters as JSON, one a line."`

	clientConfig `embed:""`
}

func (*parkedCommand) Help() string {
	return "From the database, through the API: the dead letters of the newest failed jobs first.\n\n" + examples(
		`exportd parked --since 24h`, `exportd parked --error-code SQL_57014 --json | jq -r .jobId | sort -u | xargs exportd redrive`,
		`exportd parked --broker`, `exportd parked --drain`)
}

func (c *parkedCommand) check(f *faults) {
	c.clientConfig.check(f)
	c.period.check(f)
	checkLimit(f, c.Limit)
	if !c.Broker && !c.Drain {
		return
	}
	if len(c.Login.URLs) == 0 {
		f.add("broker-urls", "is not set; to look into the parking queue give the broker as stomp://host:61613, and its login")
	}
	c.Login.check(f)
	if c.Drain && c.Limit != defaultParked {
		f.add("limit", "is of the list; --drain takes every message of the queue")
	}
	if c.Since+c.From+c.To+c.Key+c.ErrorCode != "" {
		f.lines = append(f.lines, "--since, --from, --to, --key and --error-code are of the database; leave them out with --broker and --drain")
	}
}

func (c *parkedCommand) run(ctx context.Context, p *process) error {
	switch {
	case c.Drain:
		return c.drain(ctx, p)
	case c.Broker:
		return c.browse(ctx, p)
	}
	return c.list(ctx, p)
}

var parkedHeader = []string{"JOB", "CHUNK", "ATTEMPTS", "FAILED", "CODE", "ERROR"}

// defaultParked is --limit unless it is given.
const defaultParked = 50

// mostLookedAt bounds the jobs that are asked for their dead letters.
const mostLookedAt = 1000

// deadLetter is a chunk with its job.
type deadLetter struct {
	jobID string
	client.Chunk
}

func (d deadLetter) raw() client.Raw {
	var members map[string]any
	if json.Unmarshal(d.Raw, &members) != nil {
		return d.Raw
	}
	members["jobId"] = d.jobID
	raw, _ := json.Marshal(members) // they came as JSON
	return raw
}

func (c *parkedCommand) list(ctx context.Context, p *process) error {
	letters, looked, err := c.collect(ctx)
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	rows := make([][]string, len(letters))
	for i, d := range letters {
		rows[i] = []string{d.jobID, d.ChunkKey, strconv.Itoa(d.AttemptCount), p.maybeTime(d.CompletedAt), d.ErrorCode, d.ErrorMessage}
	}
	if looked >= mostLookedAt {
		fmt.Fprintf(p.stderr, "exportd: only the newest %d jobs with dead letters were looked at; narrow it down with --since, --from and --to\n", looked)
	}
	shown := min(len(letters), c.Limit)
	return printList(p, c.JSON, letters[:shown], deadLetter.raw, len(letters) > shown, parkedHeader, rows[:shown])
}

// collect asks the jobs that may have dead letters, for no list has them all. It finds one more than are shown, if there is one.
func (c *parkedCommand) collect(ctx context.Context) (letters []deadLetter, looked int, err error) {
	for _, status := range []string{"FAILED", "IN_PROGRESS", "CANCELLING", "CANCELLED"} {
		seen := cursors{}
		for cursor := ""; ; {
			jobs, next, err := c.client().Jobs(ctx, client.JobsFilter{Status: status, Key: c.Key, From: c.From, To: c.To, Limit: pageSize}, cursor)
			if err != nil {
				return nil, looked, err
			}
			for _, j := range jobs {
				if j.Failed == 0 {
					continue
				}
				if looked++; looked > mostLookedAt {
					return letters, mostLookedAt, nil
				}
				if letters, err = c.collectOf(ctx, j, letters); err != nil || len(letters) > c.Limit {
					return letters, looked, err
				}
			}
			if next == "" {
				break
			}
			if err := seen.add(next); err != nil {
				return letters, looked, err
			}
			cursor = next
		}
	}
	return letters, looked, nil
}

func (c *parkedCommand) collectOf(ctx context.Context, j client.Job, letters []deadLetter) ([]deadLetter, error) {
	chunks, _, err := pages(j.Total, func(limit int, cursor string) ([]client.Chunk, string, error) {
		return c.client().Chunks(ctx, j.JobID, client.ChunksFilter{Status: "DLQ", Key: c.Key, Limit: limit}, cursor)
	})
	if errors.Is(err, client.ErrUnknown) { // removed meanwhile
		return letters, nil
	}
	for _, ch := range chunks {
		if len(letters) <= c.Limit && (c.ErrorCode == "" || ch.ErrorCode == c.ErrorCode) {
			letters = append(letters, deadLetter{j.JobID, ch})
		}
	}
	return letters, err
}

// notice is a message of the parking queue: what [export.DeadLetterNotice] wrote, or a work message parked as it came, with the reason.
type notice struct {
	JobID, ChunkKey, ErrorCode, Error string
	Attempts                          int
	FailedAt                          time.Time
	raw                               client.Raw
}

func readNotice(m export.Message) (n notice) {
	reason := m.Headers[export.HeaderReason]
	if json.Unmarshal(m.Body, &n) == nil && reason == "" {
		n.raw = compact(m.Body)
		return n
	}
	n = notice{JobID: m.Headers[export.HeaderJobID], ChunkKey: m.Headers[export.HeaderChunkKey], Error: reason + ": " + string(m.Body)}
	n.raw, _ = json.Marshal(map[string]string{"reason": reason, "body": string(m.Body)}) // texts only
	return n
}

func compact(body []byte) client.Raw {
	raw, _ := json.Marshal(json.RawMessage(body)) // known to be JSON
	return raw
}

func (c *parkedCommand) browse(ctx context.Context, p *process) error {
	found, err := broker.Browse(ctx, c.Login.config(slog.New(slog.DiscardHandler)), c.Login.Parking, c.Limit+1)
	if err != nil {
		return c.brokerEnd(ctx, p, err)
	}
	shown := min(len(found), c.Limit)
	notices, rows := make([]notice, shown), make([][]string, shown)
	for i, m := range found[:shown] {
		n := readNotice(m)
		notices[i] = n
		rows[i] = []string{n.JobID, n.ChunkKey, strconv.Itoa(n.Attempts), p.timeText(n.FailedAt), n.ErrorCode, n.Error}
	}
	return printList(p, c.JSON, notices, func(n notice) client.Raw { return n.raw }, len(found) > shown, parkedHeader, rows)
}

func (c *parkedCommand) brokerEnd(ctx context.Context, p *process, err error) error {
	if ctx.Err() != nil {
		return clientEnd(ctx, p, "", err)
	}
	return fmt.Errorf("%w; exportd doctor checks the broker and the login", err)
}

func (c *parkedCommand) drain(ctx context.Context, p *process) error {
	cfg := c.Login.config(slog.New(slog.DiscardHandler))
	if !c.Yes {
		if !p.asks() {
			fmt.Fprintln(p.stderr, "exportd: nothing was taken from the queue: there is nobody to ask; add --yes")
			return exitCode(exitUsage)
		}
		what := "all messages"
		if d := broker.Depth(ctx, cfg, c.Login.Parking)[0]; d.Known {
			what = count(int(d.Messages), "message")
		}
		if err := p.confirm(ctx, "nothing was taken from the queue", "Take %s out of %s for good?", what, c.Login.Parking); err != nil {
			return err
		}
	}
	n, err := broker.Purge(ctx, cfg, c.Login.Parking)
	if err != nil {
		fmt.Fprintf(p.stderr, "exportd: it failed; %s taken from %s until then\n", count(n, "message"), c.Login.Parking)
		return c.brokerEnd(ctx, p, err)
	}
	if c.JSON {
		_, err = fmt.Fprintf(p.stdout, "{\"queue\":%q,\"taken\":%d}\n", c.Login.Parking, n)
	} else {
		_, err = fmt.Fprintf(p.stdout, "%s taken from %s\n", count(n, "message"), c.Login.Parking)
	}
	return err
}
