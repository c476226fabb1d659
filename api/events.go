package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

func (a *API) registerEvents(h huma.API) {
	a.engine.Group("/", a.authenticate).GET("/jobs/:jobId/events", a.events)
	docs := responses(http.StatusOK, "Events: progress with the job whenever it changes, and end, the last one, with the job once it has ended",
		http.StatusNoContent, "Last-Event-ID is that of the end: nothing more will come")
	docs["200"].Content = map[string]*huma.MediaType{"text/event-stream": {
		Schema:  &huma.Schema{Type: huma.TypeString},
		Example: "id: 1-COMPLETED\nevent: end\ndata: {\"jobId\":\"J20260102_000123\",\"status\":\"COMPLETED\"}\n\n",
	}}
	h.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "watchJob", Method: http.MethodGet, Path: "/jobs/{jobId}/events", Tags: []string{"jobs"},
		Summary: "Watch a job: server-sent events",
		Description: "The data of each event is the job as the call getJob shows it. A stream that breaks off without the event end is to be opened again: " +
			"clients for server-sent events do so by themselves.",
		Parameters: []*huma.Param{pathParam("jobId", "J20260102_000123"), {
			Name: "Last-Event-ID", In: "header", Description: "The id of the last event seen: the job's run and its state, good for ever.",
			Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{"1-IN_PROGRESS"}, Description: "The id of the last event seen: the job's run and its state, good for ever."},
		}},
		Responses: docs.problems(kindNotFound, kindUnavailable),
	})
}

// events sends the job as it is, then each change. A stream ends with the job's end, with the process, or with a client that does not read.
func (a *API) events(c *gin.Context) {
	ctx := c.Request.Context()
	job, err := a.findJob(ctx, c.Param("jobId"))
	if err != nil {
		a.fail(c, err)
		return
	}
	release, err := a.limits.hold(requestOf(ctx).client)
	if err != nil {
		a.fail(c, err)
		return
	}
	defer release()
	changes, leave := a.watches.join(job.ID)
	defer leave()
	if job, err = a.findJob(ctx, job.ID); err != nil { // again, having joined: nothing is missed in between
		a.fail(c, err)
		return
	}
	if job.Status.Ended() && c.GetHeader("Last-Event-ID") == eventID(job) {
		c.Status(http.StatusNoContent)
		return
	}
	c.Header("Content-Type", "text/event-stream")
	c.Header("Cache-Control", "no-cache")
	c.Header("X-Accel-Buffering", "no")
	c.Status(http.StatusOK)
	if ctx.Value(headKey{}) != nil {
		return
	}
	out := steady(c)
	if _, err := io.WriteString(out, "retry: 2000\n\n"); err != nil {
		return
	}
	alive := time.NewTicker(a.Timeouts.Alive)
	defer alive.Stop()
	for {
		if a.send(out, job) != nil || job.Status.Ended() {
			return
		}
		for changed := false; !changed; {
			select {
			case now, ok := <-changes:
				if !ok {
					return // removed
				}
				changed = !reflect.DeepEqual(now, job) // the watch may have seen what was sent already
				job = now
			case <-alive.C:
				if _, err := io.WriteString(out, ": alive\n\n"); err != nil {
					return
				}
			case <-a.stopping:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// eventID names a state that a job was in, for ever: states of a run are not entered twice.
func eventID(j export.Job) string { return strconv.Itoa(j.Run) + "-" + string(j.Status) }

func (a *API) send(out io.Writer, job export.Job) error {
	name := "progress"
	if job.Status.Ended() {
		name = "end"
	}
	data, err := json.Marshal(a.jobView(job))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "id: %s\nevent: %s\ndata: %s\n\n", eventID(job), name, data)
	return err
}

// slowest is how long a client may take to take what was written to it.
const slowest = 10 * time.Second

// steady writes what has no end in sight: it flushes, and gives each write its time instead of the whole answer.
func steady(c *gin.Context) io.Writer {
	return steadyWriter{c.Writer, http.NewResponseController(c.Writer)}
}

type steadyWriter struct {
	io.Writer
	control *http.ResponseController
}

func (w steadyWriter) Write(p []byte) (int, error) {
	if err := w.control.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
		return 0, err
	}
	n, err := w.Writer.Write(p)
	if err == nil {
		err = w.control.Flush()
	}
	return n, err
}
