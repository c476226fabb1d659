package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"exportd/e2e/stack"
)

// clients submits the orders, each at its time, and waits for the end of every job. It returns when all have ended or ctx has.
func (w *world) clients(ctx context.Context, orders []order, submitUntil context.Context) {
	var all sync.WaitGroup
	for _, o := range orders {
		if !w.report.sleepUntil(submitUntil, o.at) {
			break
		}
		w.ordered = append(w.ordered, o.name())
		c := &client{world: w, order: o, http: stack.Client{URL: "http://" + w.proxies["clients/api"].addr()}}
		all.Go(func() { c.run(ctx) })
	}
	all.Wait()
}

// client is behind one order.
type client struct {
	world *world
	order order
	http  stack.Client
	id    string

	cancelled bool // the order to cancel was accepted, for the current run
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
		c.cancelled = c.persist(ctx, "cancel")
	}
	job, ok := c.wait(ctx)
	if ok && c.order.redriveAfter > 0 && job.Status != "COMPLETED" {
		pause(ctx, c.order.redriveAfter)
		if c.persist(ctx, "redrive") {
			c.cancelled = c.cancelled && job.Done == job.Total // everything had ended well before the order to end came: nothing runs again
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
		if status(err)/100 == 4 {
			c.breach("POST: %v", err)
			return ""
		}
		pause(ctx, 300*time.Millisecond)
	}
	c.breach("the POST was never answered")
	return ""
}

// status of the answer that an error tells of, 0 for none.
func status(err error) int {
	var s *stack.StatusError
	if errors.As(err, &s) {
		return s.Status
	}
	return 0
}

// persist gives an order until it is answered; true when it was accepted. An order whose answer was lost, and that the job's state now forbids, has had
// its effect.
func (c *client) persist(ctx context.Context, order string) bool {
	doubt := false
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, callLimit)
		err := c.http.Order(bounded, c.id, order)
		cancel()
		switch code := status(err); {
		case err == nil:
			return true
		case code == http.StatusConflict:
			return doubt && order == "redrive" // a cancel may be repeated
		case code/100 == 4:
			c.breach("%s: %v", order, err)
			return false
		}
		doubt = true
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
		} else if status(err) == http.StatusNotFound {
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
