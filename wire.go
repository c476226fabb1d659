package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"exportd/broker"
	"exportd/consumer"
	"exportd/db"
	"exportd/export"
	"exportd/s3out"
	"exportd/traces"
)

// closers are what a command has to close at its end, backwards, each named for the log.
type closers struct {
	log  *slog.Logger
	over chan struct{} // closed when run has to give up
	list []closer
}

type closer struct {
	name  string
	close func() error
}

func (c *closers) add(name string, close func() error) { c.list = append(c.list, closer{name, close}) }

// limit has run give up so long after the end of ctx: what a dependency that hangs keeps from closing ends with the process.
func (c *closers) limit(ctx context.Context, d time.Duration) {
	c.over = make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(d, func() { close(c.over) }) })
}

func (c *closers) run() {
	for _, it := range slices.Backward(c.list) {
		done := make(chan error, 1)
		go func() { done <- it.close() }()
		select {
		case err := <-done:
			if err != nil {
				c.log.Warn("close", "what", it.name, "error", err)
			}
		case <-c.over:
			c.log.Warn("the time to stop is over: left to the end of the process", "what", it.name)
			return
		}
	}
}

// background runs do until the closers are run, and then waits for it. It outlives the signal that ends ctx: what others still need is closed after them.
func (c *closers) background(ctx context.Context, name string, do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(ctx)
	}()
	c.add(name, func() error {
		cancel()
		<-done
		return nil
	})
}

// workerName is unique per process start, so that a restarted process is another worker.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// storeConfig puts together what the store needs from several groups.
func storeConfig(d databaseConfig, s functionConfig, b brokerConfig, o s3Config, l leaseConfig, log *slog.Logger) db.Config {
	return db.Config{
		URL: string(d.URL), Pool: d.Pool, Worker: workerName(),
		Lease: l.Lease, MaxAttempts: l.MaxAttempts,
		RepublishAfter: b.Again, Backlog: b.Backlog, Parking: b.used(),
		BasePath: o.BasePath, Bucket: o.Bucket, Function: s.Function, Log: log,
	}
}

func (c brokerLogin) config(log *slog.Logger) broker.Config {
	return broker.Config{URLs: c.URLs, User: c.User, Password: string(c.Password), CAFile: c.CAFile, Log: log}
}

func (c s3Config) config(concurrency int, log *slog.Logger) s3out.Config {
	pathStyle := c.pathStyle()
	return s3out.Config{
		Bucket: c.Bucket, BasePath: c.BasePath, Endpoint: c.Endpoint, Region: c.Region, PathStyle: &pathStyle, CreateBucket: c.Create,
		PartSize: int(c.PartSize), Concurrency: concurrency, Log: log,
	}
}

// telling is how a process tells of what it does.
type telling struct {
	log     *slog.Logger
	metrics metrics
	trace   export.StartSpan // nil: no traces
}

// startTelling makes it; the command's name is part of the service's.
func startTelling(ctx context.Context, p *process, command, worker string, closing *closers) (telling, error) {
	start, end, err := traces.Open(ctx, traces.Config{
		Getenv: p.getenv, Service: "exportd-" + command, Version: buildVersion().version, Instance: worker, Log: p.log,
	})
	if err != nil {
		return telling{}, err
	}
	closing.add("traces", end)
	return telling{p.log, newMetrics(), start}, nil
}

// startRelay publishes what is owed, on a connection of its own. Without a broker there is nothing to relay and it returns nil.
func startRelay(ctx context.Context, c brokerConfig, store *db.Store, closing *closers, tell telling) *broker.Relay {
	if !c.used() {
		return nil
	}
	publisher := broker.NewPublisher(c.config(tell.log))
	closing.add("publisher", func() error { publisher.Close(); return nil })
	relay := broker.NewRelay(broker.RelayConfig{Store: store, Publisher: publisher, WorkQueue: c.Work, ParkingQueue: c.Parking, Trace: tell.trace, Log: tell.log})
	tell.metrics.relay(relay, publisher)
	closing.background(ctx, "relay", relay.Run)
	return relay
}

// wake is relay.Wake, also where there is no relay.
func wake(relay *broker.Relay) func() {
	if relay == nil {
		return func() {}
	}
	return relay.Wake
}

// poke delivers if nothing waits to be delivered.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// startRepairs starts what runs in every process: whatever dies, somebody ends its jobs and takes its chunks over.
func startRepairs(ctx context.Context, l leaseConfig, store *db.Store, bucket *s3out.Store, basePath string, wake func(), closing *closers, tell telling) *consumer.Finisher {
	finisher := consumer.NewFinisher(store, objects{bucket}, basePath, bucket.URI, tell.log)
	closing.background(ctx, "finisher", finisher.Run)
	sweeper := &consumer.Sweeper{
		Store: store, Objects: objects{bucket}, Finisher: finisher, Lease: l.Lease, Wake: wake, Interval: l.Sweep, Retention: l.Retention, Log: tell.log,
	}
	tell.metrics.repairs(finisher, sweeper)
	closing.background(ctx, "sweeper", sweeper.Run)
	return finisher
}

// stopWithStdin ends the command when its standard input does: how a parent makes sure that its children do not outlive it.
func stopWithStdin(ctx context.Context, stdin io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, stdin) // its end, however it comes, is what is waited for
		cancel()
	}()
	return ctx
}

// announce says on standard output where a command serves: with port 0 nobody else knows.
func announce(w io.Writer, l net.Listener) {
	fmt.Fprintf(w, "listening on http://%s\n", l.Addr())
}
