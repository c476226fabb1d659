package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"exportd/client"
)

type auditCommand struct {
	period `embed:""`

	Tenant string `flagonly:"" placeholder:"NAME" help:"What the tenant's tokens did."`
	By     string `flagonly:"" placeholder:"HEX" help:"What one token did: the first eight digits of its sha256, as in the tokens file."`
	Action string `flagonly:"" placeholder:"NAME" help:"cancelJob, redriveJob, redriveJobs, signIn, or another operationId of /openapi.json."`
	Job    string `flagonly:"" placeholder:"JOB" help:"What was done to the job."`
	Limit  int    `flagonly:"" short:"n" default:"50" help:"Most lines to show."`
	JSON   bool   `name:"json" flagonly:"" help:"Print the lines as JSON, one a line."`

	clientConfig `embed:""`
}

func (*auditCommand) Help() string {
	return "For operators. Newest first: who cancelled and re-drove what, signed in to the console, and was refused. Submissions are the jobs themselves: exportd jobs.\n\n" + examples(
		`exportd audit --since 24h`, `exportd audit --job J20260102_000123`, `exportd audit --action cancelJob --tenant ops --json | jq -r .jobId`)
}

func (c *auditCommand) check(f *faults) {
	c.clientConfig.check(f)
	c.period.check(f)
	checkLimit(f, c.Limit)
	if c.By != "" && (len(c.By) != 8 || strings.Trim(c.By, "0123456789abcdef") != "") {
		f.add("by", "is %q; give the first eight hexadecimal digits of the token's sha256, in lower case", c.By)
	}
}

func (c *auditCommand) run(ctx context.Context, p *process) error {
	lines, more, err := pages(c.Limit, func(limit int, cursor string) ([]client.AuditLine, string, error) {
		return c.client().Audit(ctx, client.AuditFilter{Tenant: c.Tenant, Token: c.By, Action: c.Action, JobID: c.Job, From: c.From, To: c.To, Limit: limit}, cursor)
	})
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	rows := make([][]string, len(lines))
	for i, l := range lines {
		chunks := ""
		if l.Chunks != nil {
			chunks = strconv.Itoa(*l.Chunks)
		}
		outcome := l.Outcome
		if l.Status != 0 {
			outcome += " " + strconv.Itoa(l.Status)
		}
		rows[i] = []string{p.timeText(l.At), l.Action, outcome, l.JobID, chunks, auditActor(l), auditOrigin(l)}
	}
	return printList(p, c.JSON, lines, func(l client.AuditLine) client.Raw { return l.Raw }, more,
		[]string{"TIME", "ACTION", "OUTCOME", "JOB", "CHUNKS", "WHO", "FROM"}, rows)
}

func auditActor(l client.AuditLine) string {
	if l.Token == "" {
		return l.Tenant
	}
	return fmt.Sprintf("%s (%s %s)", l.Tenant, l.Role, l.Token)
}

func auditOrigin(l client.AuditLine) string {
	from := l.Address
	if l.Forwarded != "" {
		from += " for " + l.Forwarded
	}
	if l.Via == "console" {
		from += ", console"
	}
	return from
}
