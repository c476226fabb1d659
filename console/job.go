package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportd/client"
)

type jobData struct {
	jobRow
	Path    string
	Percent int
	Left    string // how long it may take yet; empty when nothing can be said

	Grid   grid
	Causes []cause
	Looked int // chunks in trouble whose errors were grouped
	Chunks chunksData
}

// Troubled are the chunks that have an error to show.
func (d jobData) Troubled() int { return d.Job.Failed + d.Job.Retrying }

// Further says whether not all of them were looked at. A job at work may have moved on meanwhile.
func (d jobData) Further() bool { return d.Looked > 0 && d.Looked < d.Troubled() && d.Job.Ended() }

// CanCancel and CanRedrive say which orders make sense now; the API has the last word.
func (d jobData) CanCancel() bool  { return !d.Job.Ended() && d.Job.Status != "CANCELLING" }
func (d jobData) CanRedrive() bool { return d.Job.Status == "FAILED" || d.Job.Status == "CANCELLED" }

// Every is the seconds between two looks at what is large.
func (d jobData) Every() int {
	if d.Job.Ended() {
		return 0
	}
	return 5
}

// chunksData is a page of a job's chunks.
type chunksData struct {
	Status, Key       string
	States            []string
	Chunks            []client.Chunk
	Self, First, Next string
}

var chunkStates = []string{"PENDING", "RUNNING", "RETRY_WAIT", "DONE", "DLQ", "CANCELLED"}

const chunksPerPage = 50

func (v *visit) job() error {
	job, err := v.api.Job(v.ctx(), v.r.PathValue("job"))
	if err != nil {
		return err
	}
	rows, err := v.jobRows([]client.Job{job})
	if err != nil {
		return err
	}
	d := jobData{jobRow: rows[0], Path: jobPath(job.JobID), Percent: ended(job) * 100 / max(1, job.Total), Left: timeLeft(job, time.Now())}
	if v.wants("grid") {
		cells, err := v.Store.Cells(v.ctx(), v.sees(), job.JobID)
		if err != nil {
			return err
		}
		d.Grid = gridOf(job.JobID, cells)
	}
	if v.wants("errors") && (job.Failed > 0 || job.Retrying > 0) {
		failures, err := v.Store.Failures(v.ctx(), v.sees(), job.JobID)
		if err != nil {
			return err
		}
		d.Causes, d.Looked = causesOf(failures), len(failures)
	}
	if v.wants("chunks") {
		if d.Chunks, err = v.chunks(job.JobID); err != nil {
			return err
		}
	}
	return v.render(http.StatusOK, "job", view{Title: job.JobID, Nav: "jobs", Data: d, Told: v.told()})
}

func ended(j client.Job) int { return j.Done + j.Failed + j.Cancelled }

// timeLeft goes by what ended since the job was started.
func timeLeft(j client.Job, now time.Time) string {
	if j.Status != "IN_PROGRESS" || j.StartedAt == nil || ended(j) == 0 || now.Sub(*j.StartedAt) < 2*time.Second {
		return ""
	}
	each := now.Sub(*j.StartedAt) / time.Duration(ended(j))
	return duration(each * time.Duration(j.Total-ended(j)))
}

func (v *visit) chunks(jobID string) (d chunksData, err error) {
	q := v.r.URL.Query()
	d.Status, d.Key, d.States = q.Get("status"), strings.TrimSpace(q.Get("key")), chunkStates
	cursor, next := q.Get("cursor"), ""
	d.Chunks, next, err = v.api.Chunks(v.ctx(), jobID, client.ChunksFilter{Status: d.Status, Key: d.Key, Limit: chunksPerPage}, cursor)
	at := func(cursor, part, anchor string) string {
		return jobPath(jobID) + query("status", d.Status, "key", d.Key, "cursor", cursor, "part", part) + anchor
	}
	d.Self = at(cursor, "chunks", "")
	if cursor != "" {
		d.First = at("", "", "#chunks")
	}
	if next != "" {
		d.Next = at(next, "", "#chunks")
	}
	return d, err
}

func (v *visit) events() error   { return v.pass("events") }
func (v *visit) manifest() error { return v.pass("manifest") }

func (v *visit) file() error {
	address, _, err := v.api.FileURL(v.ctx(), v.r.PathValue("job"), v.r.PathValue("chunk"))
	if err != nil {
		return err
	}
	http.Redirect(v.w, v.r, address, http.StatusTemporaryRedirect)
	return nil
}

// question is asked before an order is given.
type question struct {
	Title, Text   string
	Action        string
	Fields        [][2]string // hidden ones of the form
	Yes, No, Back string
	Danger        bool
}

func (v *visit) ask(q question, nav string) error {
	return v.render(http.StatusOK, "confirm", view{Title: q.Title, Nav: nav, Data: q})
}

func (v *visit) askCancel() error {
	job, err := v.api.Job(v.ctx(), v.r.PathValue("job"))
	if err != nil {
		return err
	}
	return v.ask(question{
		Title: "Cancel " + job.JobID + "?", Danger: true, Yes: "Cancel the job", No: "Let it run", Action: jobPath(job.JobID) + "/cancel", Back: jobPath(job.JobID),
		Text: plural(job.Pending+job.Retrying, "chunk has", "chunks have") + " not started and will not; " + plural(job.Running, "that runs is", "that run are") +
			" stopped within seconds. The " + plural(job.Done, "file", "files") + " made so far stay. A cancelled job can be re-driven later.",
	}, "jobs")
}

func (v *visit) cancel() error {
	job, err := v.api.Cancel(v.ctx(), v.r.PathValue("job"))
	if err != nil {
		return err
	}
	return v.backTelling(jobPath(job.JobID), url.Values{"told": {"cancel"}})
}

func (v *visit) askRedrive() error {
	job, err := v.api.Job(v.ctx(), v.r.PathValue("job"))
	if err != nil {
		return err
	}
	return v.ask(question{
		Title: "Re-drive " + job.JobID + "?", Yes: "Re-drive the job", No: "Leave it", Action: jobPath(job.JobID) + "/redrive", Back: jobPath(job.JobID),
		Text: plural(job.Failed, "dead letter", "dead letters") + " and " + plural(job.Cancelled, "cancelled chunk", "cancelled chunks") +
			" are put back, with all their attempts. What is done stays as it is.",
	}, "jobs")
}

func (v *visit) redrive() error {
	r, err := v.api.Redrive(v.ctx(), v.r.PathValue("job"))
	if err != nil {
		return err
	}
	return v.backTelling(jobPath(r.JobID), url.Values{"told": {"redrive"}, "n": {strconv.Itoa(r.Redriven)}})
}

// told says what the order that led here did.
func (v *visit) told() string {
	if !slices.Contains(cookiesOf(v.r, toldName), v.r.URL.RequestURI()) {
		return ""
	}
	q := v.r.URL.Query()
	n, _ := strconv.Atoi(q.Get("n"))
	jobs, _ := strconv.Atoi(q.Get("jobs"))
	switch q.Get("told") {
	case "cancel":
		return "The job was told to end."
	case "redrive":
		return plural(n, "chunk was", "chunks were") + " put back."
	case "redrive-all":
		return plural(n, "chunk", "chunks") + " of " + plural(jobs, "job", "jobs") + " were put back."
	case "redrive-more":
		return plural(n, "chunk", "chunks") + " of " + plural(jobs, "job", "jobs") + " were put back; there are more: repeat it."
	}
	return ""
}
