package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"exportd/api"
	"exportd/broker"
	"exportd/db"
	"exportd/export"
	"exportd/s3out"
)

type apiCommand struct {
	Database databaseConfig `embed:""`
	Source   functionConfig `embed:""`
	Broker   brokerConfig   `embed:""`
	S3       s3Config       `embed:""`
	HTTP     httpConfig     `embed:""`
	Webhook  webhookConfig  `embed:""`
	Lease    leaseConfig    `embed:""`
	Stop     stopConfig     `embed:""`

	StopWithStdin bool `flagonly:"" hidden:"" help:"Stop when standard input ends."`
}

func (c *apiCommand) check(f *faults) {
	c.Database.check(f)
	c.Database.checkPool(f, 0)
	c.Source.check(f)
	c.Broker.check(f)
	c.S3.check(f)
	c.HTTP.check(f)
	c.Webhook.check(f)
	c.Lease.check(f)
	c.Stop.check(f)
}

func (c *apiCommand) run(ctx context.Context, p *process) error {
	if c.StopWithStdin {
		ctx = stopWithStdin(ctx, p.stdin)
	}
	closing := &closers{log: p.log}
	defer closing.run()
	closing.limit(ctx, c.Stop.closed())

	config := storeConfig(c.Database, c.Source, c.Broker, c.S3, c.Lease, p.log)
	tell, err := startTelling(ctx, p, "api", config.Worker, closing)
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, config)
	if err != nil {
		return err
	}
	closing.add("database", func() error { store.Close(); return nil })
	bucket, err := s3out.Open(ctx, c.S3.config(0, p.log))
	if err != nil {
		return err
	}
	closing.add("bucket", func() error { bucket.Close(); return nil })
	listener, err := net.Listen("tcp", c.HTTP.Addr)
	if err != nil {
		return fmt.Errorf("serve http: %w", err)
	}

	relay := startRelay(ctx, c.Broker, store, closing, tell)
	finisher := startRepairs(ctx, c.Lease, store, bucket, c.S3.BasePath, wake(relay), closing, tell)
	owing := wake(relay)
	if relay == nil {
		owed := make(chan struct{}, 1)
		owing = func() { poke(owed) }
		closing.background(ctx, "notifier", func(ctx context.Context) { store.NotifyOwed(ctx, owed) })
	}
	tell.metrics.pool("truth", store.Stats)
	tell.metrics.state(store.State, knownDepths(c.Broker, p.log), closing, p.log)
	server := api.New(api.Config{
		Store: store, Limits: export.Limits{MaxChunks: c.HTTP.MaxChunks}, MaxBody: int64(c.HTTP.MaxBody),
		S3BasePath: bucket.URI(c.S3.BasePath), BasePath: c.S3.BasePath, Objects: downloads{bucket}, Wake: owing, Check: finisher.Check,
		Queues: queueDepths(c.Broker, p.log), Callbacks: c.Webhook.callbacks(), Console: newConsole(store, c.HTTP.tokens, c.Broker, p.log),
		Checks: checks(store, bucket, c.Broker, func(ctx context.Context) error { return answers(ctx, c.Broker.config(p.log)) }),
		Tokens: c.HTTP.tokens, ThisHost: c.HTTP.anybody(), RateLimit: c.HTTP.RateLimit, Timeouts: api.Timeouts{Shutdown: c.Stop.requests()},
		Metrics: tell.metrics.Registry, Trace: tell.trace, Log: p.log, Version: buildVersion().version,
	})
	startWebhooks(ctx, c.Webhook, store, server.EventBody, closing, tell)
	announce(p.stdout, listener)
	p.log.Info("api started", "version", buildVersion().version, "addr", listener.Addr().String(), "database", c.Database.URL.redacted(), "bucket", c.S3.Bucket)
	return server.Serve(ctx, listener)
}

// requests is the part of the drain time that requests in flight get; the rest is for the parts of the process that end after them.
func (c stopConfig) requests() time.Duration { return max(c.Drain*4/5, time.Nanosecond) }

// closed is when a process stops waiting for what does not close: the rest is for its exit.
func (c stopConfig) closed() time.Duration { return c.Drain * 49 / 50 }

// checks are the dependencies that /readyz names.
func checks(store *db.Store, bucket *s3out.Store, b brokerConfig, broker func(context.Context) error) []api.Check {
	list := []api.Check{{Name: "database", Check: store.Ping}, {Name: "s3", Check: bucket.Probe}}
	if b.used() {
		list = append(list, api.Check{Name: "broker", Check: broker})
	}
	return list
}

// answers says whether a broker takes the login.
func answers(ctx context.Context, cfg broker.Config) error {
	if faults := broker.Check(ctx, cfg); len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}
