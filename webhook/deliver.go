package webhook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"exportd/export"
)

const (
	mostCalls   = 32 // at a time
	mostPerHost = 2

	// idle is how long nothing is looked for when nothing was found.
	idle = time.Second
	// recordTimeout bounds the record of a call, which goes on when the process is told to stop.
	recordTimeout = 5 * time.Second

	leaseRetryFirst = 500 * time.Millisecond
	leaseRetryMost  = 30 * time.Second
)

// Config of a Deliverer. Store, Body and Log are required.
type Config struct {
	Store        store
	Secrets      *Secrets                         // to Run with
	AllowPrivate bool                             // call private addresses too, and by http
	Body         func(export.Job) ([]byte, error) // the event of a job that has ended, as JSON
	Version      string
	Log          *slog.Logger

	// Zero means the default in brackets.
	Timeout    time.Duration // of a call [15s]; with its record it must be over before the lease of an event is
	RetryFirst time.Duration // delay after the first failure, doubled with every further one [5s]
	RetryMost  time.Duration // longest delay, of a receiver that asks for one too [1h]
	GiveUp     time.Duration // age at which an event is not tried again [24h]
}

// Deliverer tells receivers. Each api process runs one.
type Deliverer struct {
	cfg    Config
	client *http.Client

	// Calls by what came of them: the receiver took the event; it is tried again; it has been tried for long enough; the receiver wants no more.
	Delivered, Failed, GivenUp, Gone atomic.Int64
}

// New makes a Deliverer that Run starts.
func New(cfg Config) *Deliverer {
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	cfg.RetryFirst = cmp.Or(cfg.RetryFirst, 5*time.Second)
	cfg.RetryMost = cmp.Or(cfg.RetryMost, time.Hour)
	cfg.GiveUp = cmp.Or(cfg.GiveUp, 24*time.Hour)
	return &Deliverer{cfg: cfg, client: newClient(cfg.AllowPrivate)}
}

// Run delivers until ctx ends. Calls that are under way then are cut off; their events are due again when their leases are over.
func (d *Deliverer) Run(ctx context.Context) {
	var calls sync.WaitGroup
	defer calls.Wait()
	underWay, all, failures := map[string]int{}, 0, 0
	landed := make(chan string, mostCalls) // the host of each call that ended; never full
	for ctx.Err() == nil {
		var wait time.Duration
		if all == mostCalls {
			wait = d.cfg.Timeout // one lands before
		} else {
			events, err := d.lease(ctx, busy(underWay), mostCalls-all)
			for _, e := range events {
				underWay[e.Host]++
				all++
				calls.Go(func() {
					defer func() { landed <- e.Host }()
					d.deliver(ctx, e)
				})
			}
			switch {
			case err != nil && ctx.Err() == nil:
				failures++
				wait = export.Backoff(failures, leaseRetryFirst, leaseRetryMost)
				d.cfg.Log.Warn("webhook: look for events again", "error", err, "wait", wait)
			case len(events) == 0:
				failures, wait = 0, idle
			default:
				failures = 0
			}
		}
		timer := time.NewTimer(wait)
		select {
		case host := <-landed:
			all--
			if underWay[host]--; underWay[host] == 0 {
				delete(underWay, host)
			}
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// lease bounds the look, so that a database that hangs is asked again.
func (d *Deliverer) lease(ctx context.Context, busy []string, limit int) ([]export.Webhook, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return d.cfg.Store.LeaseWebhooks(ctx, busy, limit)
}

// busy are the hosts to which no further call may go now.
func busy(underWay map[string]int) []string {
	hosts := []string{}
	for host, n := range underWay {
		if n >= mostPerHost {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// deliver makes one call and records what came of it.
func (d *Deliverer) deliver(ctx context.Context, e export.Webhook) {
	a := d.call(ctx, e)
	if ctx.Err() != nil && !a.taken {
		return // perhaps cut off by us
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	log := d.cfg.Log.With("jobId", e.Job.ID, "requestId", e.RequestID, "webhookId", e.EventID, "host", e.Host, "try", e.Tries)
	delay := max(export.Backoff(e.Tries, d.cfg.RetryFirst, d.cfg.RetryMost), min(a.retryAfter, d.cfg.RetryMost))
	var err error
	switch {
	case a.taken:
		d.Delivered.Add(1)
		log.Info("webhook: delivered")
		err = d.cfg.Store.DeleteOutbox(ctx, []int64{e.ID})
	case a.gone:
		d.Gone.Add(1)
		log.Warn("webhook: the receiver is gone, it is not told", "reason", a.reason)
		err = d.cfg.Store.DropWebhook(ctx, e)
	case e.Age+delay > d.cfg.GiveUp:
		d.GivenUp.Add(1)
		log.Error("webhook: given up, the receiver is not told", "reason", a.reason, "age", e.Age)
		err = d.cfg.Store.DropWebhook(ctx, e)
	default:
		d.Failed.Add(1)
		log.Warn("webhook: trying again", "reason", a.reason, "wait", delay)
		err = d.cfg.Store.PutOffWebhook(ctx, e, delay, a.reason)
	}
	if err != nil && !errors.Is(err, export.ErrStale) { // stale: the lease ran out, and somebody else tries
		log.Warn("webhook: what came of a call is not recorded; it is made again", "error", err)
	}
}
