package client

import (
	"context"
	"net/http"
	"time"
)

// Queue is what the broker tells of a queue; what is nil it does not tell, and Reason says why.
type Queue struct {
	Queue                         string
	Known                         bool
	Reason                        string
	Messages, InFlight, Consumers *int64
	Raw                           Raw `json:"-"`
}

// Queues is empty when chunks are dispatched without a broker.
func (c Client) Queues(ctx context.Context) ([]Queue, error) {
	var answer struct{ Queues []Raw }
	if _, err := c.call(ctx, http.MethodGet, "/queues", nil, nil, &answer); err != nil {
		return nil, err
	}
	return each(c, answer.Queues, func(q *Queue, raw Raw) { q.Raw = raw })
}

// Worker is a consumer process that is alive.
type Worker struct {
	WorkerID, Host, Version  string
	Concurrency, InFlight    int
	StartedAt, LastHeartbeat time.Time
	Chunks                   []struct {
		JobID, ChunkKey string
		StartedAt       time.Time
	}
	Raw Raw `json:"-"`
}

func (c Client) Workers(ctx context.Context) ([]Worker, error) {
	var answer struct{ Workers []Raw }
	if _, err := c.call(ctx, http.MethodGet, "/workers", nil, nil, &answer); err != nil {
		return nil, err
	}
	return each(c, answer.Workers, func(w *Worker, raw Raw) { w.Raw = raw })
}
