package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"exportd/api"
	"exportd/broker"
	"exportd/consumer"
	"exportd/db"
	"exportd/s3out"
)

type consumerCommand struct {
	Database databaseConfig     `embed:""`
	Source   sourceConfig       `embed:""`
	Broker   brokerConfig       `embed:""`
	S3       s3Config           `embed:""`
	HTTP     consumerHTTPConfig `embed:""`
	Work     workConfig         `embed:""`
	Lease    leaseConfig        `embed:""`
	Stop     stopConfig         `embed:""`

	StopWithStdin bool `flagonly:"" hidden:"" help:"Stop when standard input ends."`
}

func (c *consumerCommand) check(f *faults) {
	c.Work.check(f)
	c.Lease.check(f)
	c.Stop.check(f)
	c.Database.check(f)
	c.Database.checkPool(f, c.Work.Concurrency)
	c.Source.check(f, c.Database.URL, c.Work.Concurrency)
	c.Broker.check(f)
	c.S3.check(f)
	c.HTTP.check(f)
}

func (c *consumerCommand) run(ctx context.Context, p *process) error {
	if c.StopWithStdin {
		ctx = stopWithStdin(ctx, p.stdin)
	}
	closing := &closers{log: p.log}
	defer closing.run()
	closing.limit(ctx, c.Stop.closed())

	config := storeConfig(c.Database, c.Source.functionConfig, c.Broker, c.S3, c.Lease, p.log)
	tell, err := startTelling(ctx, p, "consumer", config.Worker, closing)
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, config)
	if err != nil {
		return err
	}
	closing.add("database", func() error { store.Close(); return nil })
	source, err := db.OpenSource(ctx, db.SourceConfig{
		URL: string(c.Source.URL), Pool: c.Source.Pool, Function: c.Source.Function, StatementTimeout: c.Work.ChunkTimeout, Log: p.log,
	})
	if err != nil {
		return err
	}
	closing.add("source", func() error { source.Close(); return nil })
	bucket, err := s3out.Open(ctx, c.S3.config(c.Work.Concurrency, p.log))
	if err != nil {
		return err
	}
	closing.add("bucket", func() error { bucket.Close(); return nil })

	relay := startRelay(ctx, c.Broker, store, closing, tell)
	finisher := startRepairs(ctx, c.Lease, store, bucket, c.S3.BasePath, wake(relay), closing, tell)
	janitor := &consumer.Janitor{
		Store: store, Bucket: objects{bucket}, BasePath: c.S3.BasePath, ChunkTimeout: c.Work.ChunkTimeout, Lease: c.Lease.Lease, Log: p.log,
	}
	closing.background(ctx, "janitor", janitor.Run)
	host, _ := os.Hostname() // only shown
	settings := consumer.Config{
		Store: store, Source: source, Objects: objects{bucket}, Finisher: finisher, Wake: wake(relay),
		Host: host, Version: buildVersion().version, Concurrency: c.Work.Concurrency,
		Lease: c.Lease.Lease, MaxAttempts: c.Lease.MaxAttempts, RetryBase: c.Lease.RetryBase, RetryMax: c.Lease.RetryMax,
		ChunkTimeout: c.Work.ChunkTimeout, StallTimeout: c.Work.StallTimeout, DrainTimeout: c.Stop.Drain, Fallback: c.Work.Fallback,
		ReuseEnabled: c.Work.Reuse, ReuseWindow: c.Work.ReuseWindow, Ended: tell.metrics.chunkDurations(), Trace: tell.trace, Log: p.log,
	}
	connected := func(context.Context) error { return nil }
	if c.Broker.used() {
		subscriber := broker.NewSubscriber(c.Broker.config(p.log), c.Broker.Work, c.Work.Concurrency)
		closing.background(ctx, "subscriber", func(ctx context.Context) { _ = subscriber.Run(ctx) }) // it reconnects and logs by itself
		settings.Intake = newIntake(subscriber)
		tell.metrics.connected("intake", subscriber.Connected)
		connected = func(context.Context) error {
			if !subscriber.Connected() {
				return errors.New("no subscription to the work queue")
			}
			return nil
		}
	} else {
		owed := make(chan struct{}, 1)
		settings.Owed = owed
		closing.background(ctx, "listener", func(ctx context.Context) { store.ListenOwed(ctx, func() { poke(owed) }) })
	}
	worker := consumer.New(settings)

	if c.HTTP.Addr != "" {
		listener, err := net.Listen("tcp", c.HTTP.Addr)
		if err != nil {
			return fmt.Errorf("serve http: %w", err)
		}
		tell.metrics.consumer(worker)
		tell.metrics.pool("truth", store.Stats)
		tell.metrics.pool("source", source.Stats)
		probes := api.NewProbes(api.Config{
			Checks:  append(checks(store, bucket, c.Broker, connected), api.Check{Name: "source", Check: source.Probe}),
			Metrics: tell.metrics.Registry, Log: p.log, Version: settings.Version, Stopping: ctx.Done(),
		})
		closing.background(ctx, "http", func(ctx context.Context) {
			if err := probes.Serve(ctx, listener); err != nil {
				p.log.Error("the probes are not served any more", "error", err)
			}
		})
		announce(p.stdout, listener)
	}
	p.log.Info("consumer started", "version", settings.Version, "worker", config.Worker, "concurrency", settings.Concurrency,
		"database", c.Database.URL.redacted(), "source", c.Source.URL.redacted(), "bucket", c.S3.Bucket)
	return worker.Run(ctx)
}
