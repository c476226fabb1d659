package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Watch calls seen with the job now and after each change, until it has ended. It outlasts an API that is away for less than Patience,
// but not one that was never there.
func (c Client) Watch(ctx context.Context, id string, seen func(Job) error) (last Job, err error) {
	return c.watch(ctx, id, time.Time{}, seen)
}

// WatchOn is Watch of a job that the API has just told of.
func (c Client) WatchOn(ctx context.Context, job Job, seen func(Job) error) (last Job, err error) {
	return c.watch(ctx, job.JobID, time.Now(), seen)
}

// watch looks at the job, follows its events, and begins anew when they break off. Why they do is no matter: the look tells how things are, and is all
// that a proxy may let through.
func (c Client) watch(ctx context.Context, id string, answered time.Time, seen func(Job) error) (last Job, err error) {
	lastID := ""
	news := func(job Job) error {
		answered = time.Now()
		known := sameView(job, last)
		last = job
		if known {
			return nil
		}
		return seen(job)
	}
	for {
		job, err := c.Job(ctx, id)
		if _, unwell := errors.AsType[*unwell](err); unwell && answered.IsZero() {
			answered = time.Now() // an API is there; else the URL may be wrong
		}
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err == nil:
			if err := news(job); err != nil || job.Ended() {
				return job, err
			}
			for job, broken := range c.events(ctx, id, &lastID) {
				if broken != nil {
					break
				}
				if err := news(job); err != nil || job.Ended() {
					return job, err
				}
			}
		case !errors.Is(err, ErrUnreachable) || time.Since(answered) > c.Patience:
			return last, err
		case c.Away != nil:
			c.Away(err)
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(c.Every):
		}
	}
}

// sameView says whether two answers tell the same, however they are written.
func sameView(a, b Job) bool {
	a.Raw, b.Raw = nil, nil
	x, _ := json.Marshal(a) // a Job has nothing that JSON cannot hold
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
