package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"exportd/client"
	"exportd/export"
)

// deadQuery is what dead letters are searched for, as it stands in the address.
type deadQuery struct{ Code, Key, From, To, Cause string }

func (q deadQuery) Any() bool { return q.Code+q.Key+q.From+q.To+q.Cause != "" }

// Query is the address's, with further pairs.
func (q deadQuery) Query(more ...string) string {
	return query(append([]string{"code", q.Code, "key", q.Key, "from", q.From, "to", q.To, "cause", q.Cause}, more...)...)
}

// Of is the address of a cause.
func (q deadQuery) Of(cause string) string {
	q.Cause = cause
	return "/console/dead-letters" + q.Query() + "#list"
}

func deadQueryOf(f url.Values) deadQuery {
	return deadQuery{strings.TrimSpace(f.Get("code")), strings.TrimSpace(f.Get("key")), f.Get("from"), f.Get("to"), f.Get("cause")}
}

// filter reads the days as the API does: whole ones, of UTC.
func (q deadQuery) filter(tenant string) (f export.RedriveFilter, err error) {
	f.Tenant, f.Key, f.ErrorCode = tenant, q.Key, q.Code
	for name, text := range map[string]string{"key": q.Key, "error code": q.Code} {
		if err := export.CheckKey(text); text != "" && err != nil {
			return f, &client.Problem{Status: http.StatusBadRequest, Title: "That is no " + name, Detail: err.Error()}
		}
	}
	for _, d := range []struct {
		text string
		days int
		into *time.Time
	}{{q.From, 0, &f.From}, {q.To, 1, &f.To}} {
		if d.text == "" {
			continue
		}
		t, err := time.Parse(time.DateOnly, d.text)
		if err != nil {
			return f, &client.Problem{Status: http.StatusBadRequest, Title: "That is no day", Detail: "Give days like 2026-01-31."}
		}
		*d.into = t.AddDate(0, 0, d.days)
	}
	return f, nil
}

type deadData struct {
	Query  deadQuery
	Self   string
	Causes []cause
	Cause  *cause // the one that is shown alone
	Jobs   []deadJob
	Total  int
	Hidden int  // dead letters that match and are not listed
	More   bool // older ones may exist
}

// deadJob is a job with its dead letters: a re-drive is one of jobs.
type deadJob struct {
	ID, Tenant, Status string
	Ended              bool
	Chunks             []export.FailedChunk
	Further            int // not listed
}

const (
	mostDeadListed = 200 // in all
	mostOfJob      = 5
)

func (v *visit) deadLetters() error {
	q := deadQueryOf(v.r.URL.Query())
	d := deadData{Query: q, Self: "/console/dead-letters" + q.Query("part", "dead")}
	list, err := v.deadOf(q, &d)
	if err != nil {
		return err
	}
	d.Total = len(list)
	d.Jobs, d.Hidden = deadJobs(list)
	return v.render(http.StatusOK, "dead", view{Title: "Dead letters", Nav: "dead", Data: d, Told: v.told()})
}

// deadOf finds the dead letters that match, and all causes among those that match but for the cause.
func (v *visit) deadOf(q deadQuery, d *deadData) ([]export.FailedChunk, error) {
	f, err := q.filter(v.sees())
	if err != nil {
		return nil, err
	}
	list, more, err := v.Store.DeadLetters(v.ctx(), f)
	if err != nil {
		return nil, err
	}
	d.More, d.Causes = more, causesOf(list)
	if q.Cause == "" {
		return list, nil
	}
	if i := slices.IndexFunc(d.Causes, func(c cause) bool { return c.ID == q.Cause }); i >= 0 {
		d.Cause = &d.Causes[i]
	}
	return slices.DeleteFunc(list, func(f export.FailedChunk) bool { return causeID(f.ErrorCode, normalised(f)) != q.Cause }), nil
}

// deadJobs puts dead letters together by job, in the order of the newest of each.
func deadJobs(list []export.FailedChunk) (jobs []deadJob, hidden int) {
	place := map[string]int{}
	listed := 0
	for _, f := range list {
		i, known := place[f.JobID]
		if !known {
			if listed >= mostDeadListed {
				hidden++
				continue
			}
			i = len(jobs)
			place[f.JobID] = i
			jobs = append(jobs, deadJob{ID: f.JobID, Tenant: f.Tenant, Status: string(f.JobStatus), Ended: f.JobStatus.Ended()})
		}
		if len(jobs[i].Chunks) < mostOfJob {
			jobs[i].Chunks = append(jobs[i].Chunks, f)
			listed++
		} else {
			jobs[i].Further++
		}
	}
	return jobs, hidden
}

// mostSelected is how many jobs one form re-drives one by one.
const mostSelected = 500

// askRedriveAll asks about the jobs that were selected, or about all that match.
func (v *visit) askRedriveAll() error {
	form := v.r.URL.Query()
	q := deadQueryOf(form)
	back := "/console/dead-letters" + q.Query()
	jobs := form["job"]
	if form.Has("all") {
		if q.Cause == "" {
			return v.askRedriveMatching(q, back)
		}
		// The API knows no causes: the jobs are named one by one.
		list, err := v.deadOf(q, &deadData{})
		if err != nil {
			return err
		}
		jobs = nil
		for _, f := range list {
			if f.JobStatus.Ended() && !slices.Contains(jobs, f.JobID) && len(jobs) < mostSelected {
				jobs = append(jobs, f.JobID)
			}
		}
	}
	if len(jobs) == 0 {
		return v.ask(question{Title: "No job is selected", Text: "Tick the jobs to re-drive first. A job that has not ended cannot be re-driven.", No: "Back", Back: back}, "dead")
	}
	ask := question{
		Title: "Re-drive " + plural(len(jobs), "job", "jobs") + "?", Yes: "Re-drive", No: "Leave them", Action: "/console/dead-letters/redrive", Back: back,
		Text: "All dead letters and cancelled chunks of these jobs are put back, with all their attempts: " + strings.Join(jobs[:min(len(jobs), 20)], ", ") + and(len(jobs)-20) + ".",
	}
	for _, id := range jobs {
		ask.Fields = append(ask.Fields, [2]string{"job", id})
	}
	return v.ask(ask, "dead")
}

func and(more int) string {
	if more <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", more)
}

// redriveFilter is the API's. Only failed jobs: an empty filter would bring every cancelled job back, too.
func (q deadQuery) redriveFilter(dryRun bool) client.RedriveFilter {
	return client.RedriveFilter{Status: "FAILED", Key: q.Key, From: q.From, To: q.To, ErrorCode: q.Code, DryRun: dryRun}
}

func (v *visit) askRedriveMatching(q deadQuery, back string) error {
	r, err := v.api.RedriveAll(v.ctx(), q.redriveFilter(true))
	if err != nil {
		return err
	}
	if r.Jobs == 0 {
		return v.ask(question{Title: "Nothing to re-drive", Text: "No failed job matches.", No: "Back", Back: back}, "dead")
	}
	return v.ask(question{
		Title: "Re-drive " + plural(r.Jobs, "failed job", "failed jobs") + "?", Yes: "Re-drive all", No: "Leave them", Action: "/console/dead-letters/redrive", Back: back,
		Text:   plural(r.Redriven, "chunk is", "chunks are") + " put back, with all their attempts: every dead letter and every cancelled chunk of the failed jobs that match.",
		Fields: [][2]string{{"all", "1"}, {"code", q.Code}, {"key", q.Key}, {"from", q.From}, {"to", q.To}},
	}, "dead")
}

func (v *visit) redriveAll() error {
	if err := v.parseForm(); err != nil {
		return err
	}
	var done client.Redriven
	told := "redrive-all"
	if v.r.PostForm.Has("all") {
		r, err := v.api.RedriveAll(v.ctx(), deadQueryOf(v.r.PostForm).redriveFilter(false))
		if err != nil {
			return err
		}
		if done = r; r.More {
			told = "redrive-more"
		}
	}
	jobs := v.r.PostForm["job"]
	for _, id := range jobs[:min(len(jobs), mostSelected)] {
		r, err := v.api.Redrive(v.ctx(), id)
		if refused := (*client.Problem)(nil); errors.As(err, &refused) || errors.Is(err, client.ErrUnknown) {
			continue // somebody else was first
		}
		if err != nil {
			return err
		}
		done.Jobs, done.Redriven = done.Jobs+1, done.Redriven+r.Redriven
	}
	return v.backTelling("/console/dead-letters", url.Values{"told": {told}, "n": {strconv.Itoa(done.Redriven)}, "jobs": {strconv.Itoa(done.Jobs)}})
}
