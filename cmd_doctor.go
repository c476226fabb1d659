package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"exportd/broker"
	"exportd/db"
	"exportd/s3out"
)

type doctorCommand struct {
	Database databaseConfig `embed:""`
	Source   sourceConfig   `embed:""`
	Broker   brokerConfig   `embed:""`
	S3       s3Config       `embed:""`
	HTTP     httpConfig     `embed:""`
	Webhook  webhookConfig  `embed:""`
	Work     workConfig     `embed:""`
	Lease    leaseConfig    `embed:""`
	Stop     stopConfig     `embed:""`

	Role string `flagonly:"" default:"consumer" choices:"consumer,api" help:"Whose settings and rights to check: consumer or api."`

	faults *faults // reported by run, beside everything else
}

func (c *doctorCommand) isAPI() bool { return c.Role == "api" }

func (c *doctorCommand) check(f *faults) {
	c.faults = f
	if c.Role != "api" && c.Role != "consumer" {
		f.lines = append(f.lines, fmt.Sprintf("--role is %q; it must be consumer or api", c.Role))
	}
	concurrency := c.Work.Concurrency
	if c.isAPI() {
		concurrency = 0
		c.HTTP.check(f)
		c.Webhook.check(f)
		c.Source.functionConfig.check(f)
	} else {
		c.Work.check(f)
		c.Source.check(f, c.Database.URL, concurrency)
	}
	c.Lease.check(f)
	c.Stop.check(f)
	c.Database.check(f)
	c.Database.checkPool(f, concurrency)
	c.Broker.check(f)
	c.S3.check(f)
}

// doctorLimit bounds each look; all are taken side by side, so that one silent dependency does not hold up the others.
const doctorLimit = 10 * time.Second

func (c *doctorCommand) run(ctx context.Context, p *process) error {
	report := []<-chan finding{found(finding{what: "configuration", faults: c.faults.lines})}
	look := func(what string, needs []string, look func(context.Context) finding) {
		if blocked := c.blocked(needs); blocked != "" {
			report = append(report, found(finding{what: what, faults: []string{"not looked at: mend " + blocked + " first"}}))
			return
		}
		report = append(report, inTime(ctx, what, look))
	}
	look("database", []string{"database-url"}, c.lookAtDatabase)
	look("migrations", []string{"database-url"}, c.lookAtMigrations)
	if !c.isAPI() {
		look("source", []string{"database-url", "source-url", "export-function"}, c.lookAtSource)
	}
	if c.Broker.Dispatch != "database" {
		look("broker", []string{"dispatch", "broker-urls", "broker-user", "broker-ca-file", "work-queue", "parking-queue"}, c.lookAtBroker)
	}
	look("bucket", []string{"s3-bucket", "s3-base-path", "s3-endpoint", "s3-path-style", "part-size"}, c.lookAtBucket)

	failed := 0
	for _, f := range report {
		if got := <-f; !got.print(p.stdout) {
			failed++
		}
	}
	if failed > 0 {
		fmt.Fprintf(p.stdout, "%d of %d fail\n", failed, len(report))
		return errSilent
	}
	return nil
}

// finding is what there is to say of one thing looked at: how it is, what keeps the system from working, what else one should know.
type finding struct {
	what, detail  string
	faults, notes []string
}

func found(f finding) <-chan finding {
	ready := make(chan finding, 1)
	ready <- f
	return ready
}

// inTime looks in the background, and gives up on a look that does not heed the end of its time.
func inTime(ctx context.Context, what string, look func(context.Context) finding) <-chan finding {
	slow := errors.New("no answer within " + doctorLimit.String())
	ctx, cancel := context.WithTimeoutCause(ctx, doctorLimit, slow)
	looked := make(chan finding, 1)
	go func() { looked <- look(ctx) }()
	result := make(chan finding, 1)
	go func() {
		defer cancel()
		var f finding
		select {
		case f = <-looked:
		case <-time.After(doctorLimit + time.Second):
			f.faults = []string{slow.Error()}
		}
		f.what = what
		result <- f
	}()
	return result
}

func (f finding) print(w io.Writer) (ok bool) {
	if len(f.faults) == 0 {
		fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("ok    %-14s %s", f.what, printable(f.detail))))
	}
	for _, line := range f.faults {
		fmt.Fprintf(w, "FAIL  %-14s %s\n", f.what, printable(strings.Join(strings.Fields(line), " "))) // drivers' errors have several lines
	}
	for _, line := range f.notes {
		fmt.Fprintf(w, "note  %-14s %s\n", f.what, line)
	}
	return len(f.faults) == 0
}

// blocked says which setting has to be mended before a dependency can be looked at.
func (c *doctorCommand) blocked(flags []string) string {
	for _, flag := range flags {
		for _, line := range c.faults.lines {
			if strings.HasPrefix(line, envName(flag)+" ") {
				return envName(flag)
			}
		}
	}
	return ""
}

func (c *doctorCommand) lookAtDatabase(ctx context.Context) (f finding) {
	store, err := c.store(ctx)
	if err != nil {
		return finding{faults: []string{err.Error()}}
	}
	defer store.Close()
	d, err := store.Describe(ctx, c.isAPI())
	if err != nil {
		return finding{faults: []string{fmt.Sprintf("%s does not answer: %v; check address and login, and that the server lets this machine in", c.Database.URL.redacted(), err)}}
	}
	f = finding{detail: fmt.Sprintf("PostgreSQL %s at %s", d.Server, c.Database.URL.redacted()), faults: d.Faults}
	if d.Pooled {
		f.notes = []string{"a pooler is in front of the database: statements are not prepared; docs/operations.md says what it needs"}
	}
	return f
}

func (c *doctorCommand) store(ctx context.Context) (*db.Store, error) {
	config := c.Database
	config.Pool = 1
	return db.Open(ctx, storeConfig(config, c.Source.functionConfig, c.Broker, c.S3, c.Lease, nil))
}

func (c *doctorCommand) lookAtMigrations(ctx context.Context) (f finding) {
	list, err := db.Migrations(ctx, string(c.Database.URL))
	if err != nil {
		return finding{faults: []string{err.Error()}}
	}
	for _, m := range list {
		if !m.Applied {
			f.faults = append(f.faults, m.Name+" is not applied; run exportd migrate")
		}
	}
	f.detail = fmt.Sprintf("all %d are applied", len(list))
	return f
}

func (c *doctorCommand) lookAtSource(ctx context.Context) (f finding) {
	source, err := db.OpenSource(ctx, db.SourceConfig{URL: string(c.Source.URL), Pool: 1, Function: c.Source.Function})
	if err != nil {
		return finding{faults: []string{err.Error()}}
	}
	defer source.Close()
	d, err := source.Describe(ctx)
	if err != nil {
		return finding{faults: []string{err.Error()}}
	}
	columns := make([]string, len(d.Columns))
	for i, column := range d.Columns {
		columns[i] = column.Name
	}
	return finding{
		detail: fmt.Sprintf("%s gives %s; PostgreSQL %s at %s", d.Signature, strings.Join(columns, ","), d.Server, c.Source.URL.redacted()),
		notes:  d.Warnings,
	}
}

func (c *doctorCommand) lookAtBroker(ctx context.Context) (f finding) {
	f.faults = broker.Check(ctx, c.Broker.config(slog.New(slog.DiscardHandler)),
		broker.Access{Queue: c.Broker.Work, Send: true, Receive: !c.isAPI()},
		broker.Access{Queue: c.Broker.Parking, Send: true})
	f.detail = fmt.Sprintf("%s takes user %q, who may use %s and %s", strings.Join(c.Broker.URLs, ","), c.Broker.User, c.Broker.Work, c.Broker.Parking)
	return f
}

func (c *doctorCommand) lookAtBucket(ctx context.Context) (f finding) {
	bucket, err := s3out.Open(ctx, c.S3.config(1, slog.New(slog.DiscardHandler)))
	if err != nil {
		return finding{faults: []string{err.Error()}}
	}
	defer bucket.Close()
	able, err := bucket.SelfTest(ctx)
	if err != nil {
		return finding{faults: []string{err.Error()}}
	}
	if !able.ConditionalPut || !able.ConditionalComplete {
		f.notes = append(f.notes, "the store does not obey conditions on writes: two writers of one object are told apart only by a look before and after")
	}
	f.detail = bucket.URI(c.S3.BasePath) + " can be written, read and deleted"
	return f
}
