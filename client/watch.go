package client

import (
	"context"
	"errors"
	"time"
)

// Watch calls seen with the job now and after each change, until it has ended. It outlasts an API that is away for less than Patience,
// but not one that was never there.
func (c Client) Watch(ctx context.Context, id string, seen func(Job) error) (last Job, err error) {
	answered := time.Time{}
	for {
		job, err := c.Job(ctx, id)
		switch {
		case ctx.Err() != nil:
			return last, ctx.Err()
		case err == nil:
			answered = time.Now()
			if string(job.Raw) != string(last.Raw) {
				if err := seen(job); err != nil {
					return job, err
				}
			}
			if last = job; job.Ended() {
				return job, nil
			}
		case !errors.Is(err, ErrUnreachable) || time.Since(answered) > c.Patience:
			return last, err
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(c.Every):
		}
	}
}
