package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

// queueView is a queue as the broker tells of it.
type queueView struct {
	_ struct{} `additionalProperties:"true"`

	Queue     string  `json:"queue" example:"job.chunk.work"`
	Known     bool    `json:"known" doc:"The broker told of it; else the numbers are null."`
	Reason    *string `json:"reason" doc:"Why nothing is known."`
	Messages  *int64  `json:"messages" example:"64" doc:"In the queue, those in flight included."`
	InFlight  *int64  `json:"inFlight" example:"16"`
	Consumers *int64  `json:"consumers" example:"2"`
}

type queuesOutput struct {
	Body struct {
		_ struct{} `additionalProperties:"true"`

		Queues []queueView `json:"queues" nullable:"false" doc:"Empty when chunks are dispatched without a broker."`
	}
}

// workerView is a member of the fleet.
type workerView struct {
	_ struct{} `additionalProperties:"true"`

	WorkerID      string            `json:"workerId" example:"host-1/4711/k3x9q2ab"`
	Host          string            `json:"host" example:"host-1"`
	Version       string            `json:"version" example:"1.0.0"`
	Concurrency   int               `json:"concurrency" example:"8"`
	InFlight      int               `json:"inFlight" example:"1" doc:"As of its last heartbeat."`
	StartedAt     string            `json:"startedAt" format:"date-time"`
	LastHeartbeat string            `json:"lastHeartbeat" format:"date-time"`
	Chunks        []workerChunkView `json:"chunks" nullable:"false" doc:"That it holds a claim of."`
}

type workerChunkView struct {
	_ struct{} `additionalProperties:"true"`

	JobID     string `json:"jobId" example:"J20260102_000123"`
	ChunkKey  string `json:"chunkKey" example:"key=ABC:date=20250215"`
	StartedAt string `json:"startedAt" format:"date-time"`
}

type workersOutput struct {
	Body struct {
		_ struct{} `additionalProperties:"true"`

		Workers []workerView `json:"workers" nullable:"false"`
	}
}

func (a *API) registerFleet(h huma.API) {
	register(a, h, huma.Operation{
		OperationID: "listQueues", Method: http.MethodGet, Path: "/queues", Tags: []string{"operators"},
		Summary:     "Depths of the queues, for operators",
		Description: "As the broker tells them, at most a second ago. Messages are hints: what has to run is in the database.",
		Responses:   responses(http.StatusOK, "The queues").problems(),
	}, a.queues)
	register(a, h, huma.Operation{
		OperationID: "listWorkers", Method: http.MethodGet, Path: "/workers", Tags: []string{"operators"},
		Summary:     "The live fleet, for operators",
		Description: "Consumers whose heartbeat was seen of late, and what each has in hand.",
		Responses:   responses(http.StatusOK, "The workers").problems(kindUnavailable),
	}, a.workers)
}

// depths remembers the broker's last answer for a second: each question costs it a connection.
type depths struct {
	mu   sync.Mutex // held while asking: whoever comes meanwhile waits for that answer
	at   time.Time
	last []export.QueueDepth
}

func (d *depths) ask(ctx context.Context, ask func(context.Context) []export.QueueDepth) []export.QueueDepth {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || time.Since(d.at) > time.Second {
		d.last, d.at = ask(context.WithoutCancel(ctx)), time.Now()
	}
	return d.last
}

func (a *API) queues(ctx context.Context, _ *struct{}) (*queuesOutput, error) {
	if !requestOf(ctx).caller.operator {
		return nil, errNotOperator
	}
	out := &queuesOutput{}
	out.Body.Queues = []queueView{}
	if a.Queues == nil {
		return out, nil
	}
	for _, q := range a.depths.ask(ctx, a.Queues) {
		v := queueView{Queue: q.Queue, Known: q.Known, Reason: maybe(q.Reason)}
		if q.Known {
			v.Reason, v.Messages, v.InFlight, v.Consumers = nil, &q.Messages, &q.InFlight, &q.Consumers
		}
		out.Body.Queues = append(out.Body.Queues, v)
	}
	return out, nil
}

func (a *API) workers(ctx context.Context, _ *struct{}) (*workersOutput, error) {
	if !requestOf(ctx).caller.operator {
		return nil, errNotOperator
	}
	ctx, cancel := context.WithTimeout(ctx, a.Timeouts.Query)
	defer cancel()
	workers, err := a.Store.Workers(ctx)
	if err != nil {
		return nil, err
	}
	out := &workersOutput{}
	out.Body.Workers = make([]workerView, len(workers))
	for i, w := range workers {
		v := workerView{
			WorkerID: w.ID, Host: w.Host, Version: w.Version, Concurrency: w.Concurrency, InFlight: w.InFlight,
			StartedAt: stamp(w.StartedAt), LastHeartbeat: stamp(w.HeartbeatAt), Chunks: make([]workerChunkView, len(w.Chunks)),
		}
		for j, c := range w.Chunks {
			v.Chunks[j] = workerChunkView{JobID: c.JobID, ChunkKey: c.ChunkKey, StartedAt: stamp(c.StartedAt)}
		}
		out.Body.Workers[i] = v
	}
	return out, nil
}
