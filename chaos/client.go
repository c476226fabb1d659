package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"exportd/db"
	"exportd/e2e/stack"
	"exportd/export"
)

// clients submits the orders, each at its time, and waits for the end of every job. It returns when all have ended or ctx has.
func (w *world) clients(ctx context.Context, orders []order, submitUntil context.Context) {
	store, err := db.Open(ctx, db.Config{URL: w.Database, Pool: 4, Log: discard})
	if err != nil {
		w.report.breach("open the store: %v", err)
		return
	}
	defer store.Close()
	var all sync.WaitGroup
	for _, o := range orders {
		if !w.report.sleepUntil(submitUntil, o.at) {
			break
		}
		w.ordered = append(w.ordered, o.name())
		c := &client{world: w, order: o, store: store, http: stack.Client{URL: "http://" + w.proxies["clients/api"].addr()}}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
}

// client is behind one order.
type client struct {
	world *world
	order order
	store *db.Store
	http  stack.Client
	id    string

	cancelled bool // the order to cancel was accepted, for the current run
	redriven  bool
}

const callLimit = 8 * time.Second

func (c *client) run(ctx context.Context) {
	ids := []string{"", ""}
	var posts sync.WaitGroup
	posts.Go(func() { ids[0] = c.submit(ctx) })
	if c.order.twice {
		posts.Go(func() { ids[1] = c.submit(ctx) })
	}
	posts.Wait()
	if c.id = ids[0]; c.id == "" {
		return
	}
	if c.order.twice && ids[1] != "" && ids[0] != ids[1] {
		c.breach("two POSTs with the same key are the jobs %s and %s", ids[0], ids[1])
	}
	if c.order.cancelAfter > 0 {
		pause(ctx, c.order.cancelAfter)
		c.cancelled = c.persist(ctx, "cancel", func(ctx context.Context) error { return c.store.Cancel(ctx, "", c.id) })
	}
	job, ok := c.wait(ctx)
	if ok && c.order.redriveAfter > 0 && job.Status != "COMPLETED" {
		pause(ctx, c.order.redriveAfter)
		if c.persist(ctx, "redrive", func(ctx context.Context) error {
			_, err := c.store.Redrive(ctx, "", c.id)
			return err
		}) {
			c.cancelled, c.redriven = false, true
			c.wait(ctx)
		}
	}
}

// submit posts until there is an answer, always with the same key.
func (c *client) submit(ctx context.Context) (id string) {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, callLimit)
		job, err := c.http.Submit(bounded, c.order.request)
		cancel()
		if err == nil {
			return job.JobID
		}
		if strings.Contains(err.Error(), ": 4") { // stack.Client tells the status in words only
			c.breach("POST: %v", err)
			return ""
		}
		pause(ctx, 300*time.Millisecond)
	}
	c.breach("the POST was never answered")
	return ""
}

// persist gives an order to the store until it answers; true when it was accepted.
func (c *client) persist(ctx context.Context, what string, do func(context.Context) error) bool {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, callLimit)
		err := do(bounded)
		cancel()
		switch {
		case err == nil:
			return true
		case errors.Is(err, export.ErrEnded):
			return false
		case errors.Is(err, export.ErrNotFound):
			c.breach("%s: the job is gone", what)
			return false
		}
		pause(ctx, 300*time.Millisecond)
	}
	return false
}

// wait asks for the job until it has ended, and checks every answer.
func (c *client) wait(ctx context.Context) (job stack.Job, ended bool) {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, callLimit)
		j, err := c.http.Job(bounded, c.id)
		cancel()
		if err == nil {
			job = j
			if sum := j.Pending + j.Running + j.Retrying + j.Done + j.Failed + j.Cancelled; sum != j.Total {
				c.breach("its counts add up to %d of %d: %+v", sum, j.Total, j)
			}
			if j.Ended() {
				c.checkEnd(j)
				return j, true
			}
		} else if strings.Contains(err.Error(), ": 404") {
			c.breach("the job is gone: %v", err)
			return job, false
		}
		pause(ctx, 700*time.Millisecond)
	}
	c.breach("the job has not ended: %+v", job)
	return job, false
}

// checkEnd compares the end of the job with what was ordered.
func (c *client) checkEnd(j stack.Job) {
	want := "COMPLETED"
	switch {
	case c.cancelled:
		want = "CANCELLED"
	case c.order.broken():
		want = "FAILED"
	}
	if j.Status != want {
		c.breach("it ended %s and not %s: %+v", j.Status, want, j)
	}
}

func (c *client) breach(format string, args ...any) {
	c.world.report.breach("order %d (%s): %s", c.order.n, c.id, fmt.Sprintf(format, args...))
}
