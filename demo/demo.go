package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"exportd/db"
)

// Options of Run.
type Options struct {
	Executable string   // this program
	Environ    []string // what its processes inherit, besides their own settings
	Dir        string   // keeps the files; "" removes everything at the end
	Serve      bool     // keep it running until ctx ends
	Out        io.Writer
	Terminal   bool // Out is one
}

const (
	airports = 20
	days     = 31

	// A short lease, so that the chunks of the killed consumer come back within seconds.
	lease = 3 * time.Second

	startLimit = time.Minute     // of each server and process
	jobLimit   = 2 * time.Minute // of the job
	stopLimit  = 10 * time.Second
)

// demo is one run.
type demo struct {
	Options
	dir         string
	databaseURL string
	files       string // where the object store keeps its files
	env         []string
	client      client
	api         *child
	consumers   []*child
	closers     []func() // run backwards
}

// Run runs the demo from start to end.
func Run(ctx context.Context, o Options) error {
	d := &demo{Options: o}
	defer d.close()
	began := time.Now()
	err := d.run(ctx, began)
	switch {
	case err == nil && o.Serve:
		return d.serve(ctx)
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		return errors.Join(err, d.lastWords())
	}
	return nil
}

func (d *demo) run(ctx context.Context, began time.Time) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	d.say("ready after %.1f s", time.Since(began).Seconds())
	items, err := sampleItems(ctx, d.databaseURL, airports, days)
	if err != nil {
		return err
	}
	j, err := d.client.submit(ctx, items)
	if err != nil {
		return err
	}
	d.say("POST /jobs: %s, %d chunks: the departures of the %d busiest airports on each of %d days", j.JobID, j.Total, airports, days)
	ctx, cancel := context.WithTimeoutCause(ctx, jobLimit, fmt.Errorf("job %s does not end within %s", j.JobID, jobLimit))
	defer cancel()
	submitted := time.Now()
	j, err = d.watch(ctx, j)
	if err != nil {
		return err
	}
	if j.Status != "COMPLETED" {
		return fmt.Errorf("job %s ended %s: %s", j.JobID, j.Status, j.ErrorMessage)
	}
	return d.report(ctx, j, time.Since(submitted))
}

// start brings everything up: servers, schema, sample data, processes.
func (d *demo) start(ctx context.Context) (err error) {
	if err := d.makeDir(); err != nil {
		return err
	}
	url, stop, err := startPostgres(ctx, d.say, d.dir)
	if err != nil {
		return err
	}
	d.closers = append(d.closers, stop)
	d.databaseURL = url
	if err := db.Migrate(ctx, url); err != nil {
		return fmt.Errorf("apply the migrations: %w", err)
	}
	rows, err := loadSample(ctx, url)
	if err != nil {
		return err
	}
	d.say("PostgreSQL runs, with %d sample rows", rows)
	if err := d.startBroker(); err != nil {
		return fmt.Errorf("start the embedded broker: %w", err)
	}
	if err := d.startStore(); err != nil {
		return fmt.Errorf("start the embedded object store: %w", err)
	}
	return d.startProcesses(ctx)
}

func (d *demo) makeDir() error {
	if d.Dir != "" {
		dir, err := filepath.Abs(d.Dir)
		if err != nil {
			return err
		}
		d.dir = dir
		return os.MkdirAll(dir, 0o755)
	}
	dir, err := os.MkdirTemp("", "exportd-demo-")
	if err != nil {
		return err
	}
	d.dir = dir
	d.closers = append(d.closers, func() {
		if err := os.RemoveAll(dir); err != nil {
			d.say("left behind: %v", err)
		}
	})
	return nil
}

// inherited is the environment without what would configure the processes in a way not meant for them.
func inherited(environ []string) (env []string) {
	for _, kv := range environ {
		foreign := false
		for _, prefix := range []string{"EXPORTD_", "AWS_", "PG", "OTEL_"} {
			foreign = foreign || strings.HasPrefix(kv, prefix)
		}
		if !foreign || strings.HasPrefix(kv, "EXPORTD_TEST_") {
			env = append(env, kv)
		}
	}
	return env
}

func (d *demo) startProcesses(ctx context.Context) error {
	d.env = append(inherited(d.Environ), append(d.env,
		"EXPORTD_DATABASE_URL="+d.databaseURL,
		"EXPORTD_HTTP_ADDR=127.0.0.1:0",
		"EXPORTD_LEASE="+lease.String(),
		"EXPORTD_SWEEP_INTERVAL=500ms",
		"EXPORTD_CONCURRENCY=4",
		"EXPORTD_DRAIN_TIMEOUT=5s",
		"EXPORTD_LOG_FORMAT=text",
	)...)
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("not ready in time"))
	defer cancel()
	api, err := d.startChild("api", "api")
	if err != nil {
		return err
	}
	d.api = api
	addr, err := api.ready(ctx)
	if err != nil {
		return err
	}
	d.client = client{addr}
	for n := range 2 {
		c, err := d.startChild(fmt.Sprintf("consumer %d", n+1), "consumer")
		if err != nil {
			return err
		}
		d.consumers = append(d.consumers, c)
	}
	for _, c := range d.consumers {
		if _, err := c.ready(ctx); err != nil {
			return err
		}
	}
	d.say("running: exportd api at %s (pid %d), two exportd consumers (pid %d, %d)", addr, api.cmd.Process.Pid,
		d.consumers[0].cmd.Process.Pid, d.consumers[1].cmd.Process.Pid)
	return nil
}

func (d *demo) startChild(name, command string) (*child, error) {
	c, err := startChild(name, d.Executable, d.env, command, "--stop-with-stdin")
	if err == nil {
		d.closers = append(d.closers, func() { c.stop(stopLimit) })
	}
	return c, err
}

// serve keeps everything running until ctx ends.
func (d *demo) serve(ctx context.Context) error {
	d.say("")
	d.say("still running, until Ctrl-C:")
	d.say("  console    %s/console", d.client.base)
	d.say("  API        %s (description: %s/docs)", d.client.base, d.client.base)
	d.say("  database   psql %q", d.databaseURL)
	d.say("  files      %s", d.files)
	d.say("try         EXPORTD_URL=%s exportd submit --key SFO --dates 20010201..20010228 --watch", d.client.base)
	d.say("or          curl -X POST %s/jobs -H 'Content-Type: application/json' -d '{\"items\":[{\"key\":\"SFO\",\"effectiveDates\":[\"20010214\"]}]}'", d.client.base)
	select {
	case <-ctx.Done():
		return nil
	case <-d.api.done:
		return errors.Join(fmt.Errorf("exportd api ended: %w", d.api.ending()), d.lastWords())
	}
}

func (d *demo) close() {
	for i := len(d.closers) - 1; i >= 0; i-- {
		d.closers[i]()
	}
}

// lastWords are the last log lines of the processes.
func (d *demo) lastWords() error {
	var b strings.Builder
	for _, c := range append([]*child{d.api}, d.consumers...) {
		if c != nil {
			fmt.Fprintf(&b, "the last of exportd %s:\n  %s\n", c.name, strings.Join(c.log.last(8), "\n  "))
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(b.String()))
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.Out, format+"\n", args...)
}

func freePort() (uint32, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return uint32(l.Addr().(*net.TCPAddr).Port), nil
}
