package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"exportd/api"
	"exportd/broker"
	"exportd/console"
	"exportd/db"
	"exportd/export"
	"exportd/s3out"
	"exportd/webhook"
)

// startWebhooks calls the callback URLs of jobs that have ended. Without a secret none is called.
func startWebhooks(ctx context.Context, c webhookConfig, store *db.Store, body func(export.Job) ([]byte, error), closing *closers, tell telling) {
	d := webhook.New(webhook.Config{
		Store: store, Secrets: c.secrets, AllowPrivate: c.AllowPrivate, Body: body, Version: buildVersion().version, Log: tell.log,
	})
	tell.metrics.webhooks(d)
	if c.secrets != nil {
		closing.background(ctx, "webhooks", d.Run)
	}
}

// callbacks says why a callback URL cannot be called; nil when none can.
func (c webhookConfig) callbacks() func(url string) error {
	if c.secrets == nil {
		return nil
	}
	return func(url string) error { return webhook.CheckURL(url, c.AllowPrivate) }
}

// downloads is the bucket as the API sees it.
type downloads struct{ *s3out.Store }

func (d downloads) Open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	content, info, err := d.Get(ctx, key)
	if err != nil && export.FailureOf(err).Code == "S3_NO_SUCH_KEY" {
		err = export.ErrNotFound
	}
	return content, info.Size, err
}

// knownDepths are those that the broker tells of, by work and parking; nil without a broker.
func knownDepths(c brokerConfig, log *slog.Logger) func(context.Context) (map[string]export.QueueDepth, error) {
	ask := queueDepths(c, log)
	if ask == nil {
		return nil
	}
	return func(ctx context.Context) (map[string]export.QueueDepth, error) {
		known := map[string]export.QueueDepth{}
		var unknown error
		for i, q := range ask(ctx) {
			if q.Known {
				known[[]string{"work", "parking"}[i]] = q
			} else {
				unknown = errors.New(q.Reason)
			}
		}
		if len(known) == 0 {
			return nil, unknown
		}
		return known, nil
	}
}

// queueDepths asks the broker for both queues; nil without a broker.
func queueDepths(c brokerConfig, log *slog.Logger) func(context.Context) []export.QueueDepth {
	if !c.used() {
		return nil
	}
	return func(ctx context.Context) []export.QueueDepth {
		depths := broker.Depth(ctx, c.config(log), c.Work, c.Parking)
		list := make([]export.QueueDepth, len(depths))
		for i, d := range depths {
			list[i] = export.QueueDepth{Queue: d.Queue, Known: d.Known, Reason: d.Reason, Messages: d.Messages, InFlight: d.InFlight, Consumers: d.Consumers}
		}
		return list
	}
}

// newConsole makes what api.Config.Console asks for.
func newConsole(store *db.Store, tokens *api.Tokens, b brokerConfig, log *slog.Logger) func(http.Handler) http.Handler {
	return func(api http.Handler) http.Handler {
		return console.New(console.Config{API: api, Store: store, Identify: tokens.Identify, Parked: parkedNotice(b, log), Log: log, Version: buildVersion().version})
	}
}

// mostBrowsed is how far into the parking queue a dead letter's notice is looked for.
const mostBrowsed = 10_000

// parkedNotice finds the newest notice of a dead letter on the parking queue; nil without a broker.
func parkedNotice(c brokerConfig, log *slog.Logger) func(context.Context, export.Ref) (*export.Message, error) {
	if !c.used() {
		return nil
	}
	return func(ctx context.Context, ref export.Ref) (*export.Message, error) {
		all, err := broker.Browse(ctx, c.config(log), c.Parking, mostBrowsed)
		for i := len(all) - 1; i >= 0; i-- {
			if h := all[i].Headers; h[export.HeaderJobID] == ref.JobID && h[export.HeaderChunkKey] == ref.ChunkKey() {
				return &all[i], nil
			}
		}
		return nil, err
	}
}
