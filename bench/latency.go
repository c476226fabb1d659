package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"exportd/db"
	"exportd/export"
)

const (
	submitName = "submission"
	loadedName = "job of 10 chunks under load"
	loneName   = "lone chunk"
)

// note keeps one measured time.
func (b *bench) note(workload, variant string, chunks int, took time.Duration) {
	b.results = append(b.results, result{Workload: workload, Variant: variant, Round: -1, Chunks: chunks, Took: took, Load: load()})
}

// The ways to submit.
const (
	submitBare  = "COPY of the chunk rows alone"
	submitStore = "exportd's store"
	submitHTTP  = "exportd, POST to answer"
	submitPeer  = "River: COPY of the chunk rows, InsertManyFastTx"
)

// submissions takes turns between the bare rows, exportd, and the peer.
func (b *bench) submissions(ctx context.Context) error {
	chunks := refs("TINY", 0, b.sizes.Submitted)
	body := submission(chunks, true)
	decoded, err := export.DecodeSubmission(body, export.Limits{MaxChunks: len(chunks)})
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, b.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: discard})
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, db.Config{URL: b.database, Worker: "bench", Lease: time.Minute, MaxAttempts: 5, RepublishAfter: time.Minute, Bucket: bucket, Function: "export_rows", Log: discard})
	if err != nil {
		return err
	}
	defer store.Close()
	in, err := b.startExportd(ctx, exportdBroker, "bench/submit", 0)
	if err != nil {
		return err
	}
	defer in.stop()
	ways := []struct {
		name string
		do   func() error
	}{
		{submitBare, func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return copyRows(ctx, tx, "job_chunk", "bare", chunks) })
		}},
		{submitStore, func() error {
			_, _, err := store.Submit(ctx, export.SubmitRequest{Submission: decoded, Tenant: "default"})
			return err
		}},
		{submitHTTP, func() error {
			_, _, _, err := in.post(ctx, body)
			return err
		}},
		{submitPeer, func() error { return enqueue(ctx, pool, client, "bare", chunks) }},
	}
	for round := range 2*b.rounds + 1 {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			if err := b.forgetJobs(ctx); err != nil {
				return err
			}
			began := time.Now()
			if err := w.do(); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 { // the first warms up
				b.note(submitName, w.name, len(chunks), time.Since(began))
			}
		}
	}
	return b.forgetJobs(ctx)
}

// forgetJobs empties the tables of jobs, as retention does in time. Messages of theirs that are left in the queue will be acknowledged by the next consumer.
func (b *bench) forgetJobs(ctx context.Context) error {
	for _, table := range tables {
		if _, err := b.conn.Exec(ctx, "delete from "+table); err != nil {
			return err
		}
	}
	return b.vacuum(ctx)
}

// loaded measures how long a small job's submission takes while consumer, database and bucket are busy with large ones.
func (b *bench) loaded(ctx context.Context) error {
	for _, variant := range []string{exportdDB, exportdBroker} {
		if err := b.settle(ctx); err != nil {
			return err
		}
		if err := b.loadedWith(ctx, variant); err != nil {
			return err
		}
		if err := b.forgetJobs(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) loadedWith(ctx context.Context, variant string) error {
	in, err := b.startExportd(ctx, variant, "bench/loaded", 16)
	if err != nil {
		return err
	}
	defer in.stop()
	var large string
	for range 2 + 2*b.sizes.Loaded*2/b.sizes.Big { // more work than there is time for
		if large, _, _, err = in.post(ctx, submission(refs("BIG", 0, b.sizes.Big), false)); err != nil {
			return err
		}
	}
	if err := sleep(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	for i := range b.sizes.Loaded {
		_, began, answered, err := in.post(ctx, submission(refs("TINY", 10*i, 10*i+10), true))
		if err != nil {
			return err
		}
		b.note(loadedName, variant, 10, answered.Sub(began))
		if err := sleep(ctx, rand.N(20*time.Millisecond)); err != nil {
			return err
		}
	}
	var open int
	if err := b.conn.QueryRow(ctx, `select count(*) from job where job_id = $1 and completed_at is null`, large).Scan(&open); err != nil {
		return err
	}
	if open == 0 {
		return fmt.Errorf("the load ended before the small jobs were submitted")
	}
	return in.kill()
}

// lone measures from the POST of a job with one small chunk to that chunk's DONE, and to the end of the job, when nothing else is to be done.
func (b *bench) lone(ctx context.Context) error {
	for _, variant := range []string{exportdDB, exportdBroker} {
		if err := b.settle(ctx); err != nil {
			return err
		}
		if err := b.loneWith(ctx, variant); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) loneWith(ctx context.Context, variant string) error {
	in, err := b.startExportd(ctx, variant, fmt.Sprintf("bench/lone-%d", len(b.results)), 8)
	if err != nil {
		return err
	}
	defer in.stop()
	for i := range b.sizes.Lone + 3 {
		if err := sleep(ctx, 200*time.Millisecond+rand.N(300*time.Millisecond)); err != nil {
			return err
		}
		id, began, _, err := in.post(ctx, submission(refs("TINY", i, i+1), true))
		if err != nil {
			return err
		}
		ended, err := in.ended(ctx, id)
		if err != nil {
			return err
		}
		var done time.Time
		if err := b.conn.QueryRow(ctx, `select completed_at from job_chunk where job_id = $1`, id).Scan(&done); err != nil {
			return err
		}
		if i >= 3 { // the first warm up
			b.note(loneName, variant+", POST to DONE", 1, done.Sub(began))
			b.note(loneName, variant+", POST to COMPLETED", 1, ended.Sub(began))
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
