package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"exportd/export"
)

// peer is River doing the same: a job per chunk, whose worker exports the chunk and writes the result into a row like exportd's. In transactional
// mode the result and the job's completion are one transaction; in asynchronous mode River completes jobs in batches some time later, so a crash
// repeats exports that were done.
type peer struct {
	*exporter
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]

	run  int
	left atomic.Int64
	done chan error
}

type chunkArgs struct {
	JobID string
	Key   string
	Date  export.Date
}

func (chunkArgs) Kind() string { return "chunk" }

type chunkWorker struct {
	river.WorkerDefaults[chunkArgs]
	*peer
}

func newPeer(ctx context.Context, t task, e *exporter) (*peer, error) {
	config, err := pgxpool.ParseConfig(t.Database)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(t.Concurrency + 8) // a worker's transaction each, and River's own
	p := &peer{exporter: e, done: make(chan error, 1)}
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &chunkWorker{peer: p})
	p.client, err = river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: t.Concurrency}}, Workers: workers,
		// With its default, 100 ms, River's throughput would be capped by the pauses between fetches.
		FetchCooldown: t.Cooldown, FetchPollInterval: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err == nil {
		err = p.client.Start(ctx)
	}
	if err != nil {
		p.pool.Close()
		return nil, err
	}
	return p, nil
}

func (p *peer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = p.client.Stop(ctx) // its work is done and counted
	p.pool.Close()
}

// enqueue writes the chunks, rows and jobs, in one transaction, the fastest way that River has.
func enqueue(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx], job string, chunks []export.Ref) error {
	jobs := make([]river.InsertManyParams, len(chunks))
	for i, r := range chunks {
		jobs[i].Args = chunkArgs{job, r.Key, r.Date}
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := copyRows(ctx, tx, "peer_chunk", job, chunks); err != nil {
			return err
		}
		_, err := client.InsertManyFastTx(ctx, tx, jobs)
		return err
	})
}

// copyRows is the least that a submission must store: the rows of the chunks, by COPY.
func copyRows(ctx context.Context, tx pgx.Tx, table, job string, chunks []export.Ref) error {
	rows := pgx.CopyFromSlice(len(chunks), func(i int) ([]any, error) {
		return []any{job, chunks[i].ChunkKey(), chunks[i].Key, chunks[i].Date.Time()}, nil
	})
	_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, []string{"job_id", "chunk_key", "key", "effective_date"}, rows)
	return err
}

// work enqueues the chunks and waits until every result is committed.
func (p *peer) work(ctx context.Context, chunks []export.Ref) error {
	p.run++
	p.left.Store(int64(len(chunks)))
	if err := enqueue(ctx, p.pool, p.client, fmt.Sprintf("peer-%d-%d", os.Getpid(), p.run), chunks); err != nil {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *chunkWorker) Work(ctx context.Context, job *river.Job[chunkArgs]) error {
	err := w.chunk(ctx, job)
	if left := w.left.Add(-1); left == 0 || err != nil {
		select {
		case w.done <- err:
		default:
		}
	}
	return err
}

func (w *chunkWorker) chunk(ctx context.Context, job *river.Job[chunkArgs]) error {
	ref := export.Ref{Key: job.Args.Key, Date: job.Args.Date}
	f, err := w.export(ctx, ref)
	if err != nil {
		return err
	}
	if w.Variant == peerAsync {
		return w.record(ctx, w.pool, job.Args.JobID, ref, f)
	}
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if err := w.record(ctx, tx, job.Args.JobID, ref, f); err != nil {
		return err
	}
	_, err = river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
	return cmp.Or(err, tx.Commit(ctx))
}

func (w *chunkWorker) record(ctx context.Context, to interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, job string, r export.Ref, f export.File) error {
	var key string
	err := to.QueryRow(ctx, `update peer_chunk set status = 'DONE', completed_at = now(), s3_object_key = $3, row_count = $4, byte_count = $5, sha256 = $6, etag = $7
		where job_id = $1 and chunk_key = $2 and status = 'PENDING' returning chunk_key`, job, r.ChunkKey(), f.ObjectKey, f.Rows, f.Bytes, f.SHA256, f.ETag).Scan(&key)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("no row of %s to end", r.ChunkKey())
	}
	return err
}
