package console

import (
	"net/http"

	"exportd/client"
	"exportd/export"
)

type overviewData struct {
	Counts   export.Counts
	Activity activity
	Jobs     []jobRow
	Workers  []client.Worker
	Slots    int
	Busy     int
}

// Open are the jobs that have not ended.
func (d overviewData) Open() int {
	return d.Counts.Jobs[export.Submitted] + d.Counts.Jobs[export.InProgress] + d.Counts.Jobs[export.Cancelling]
}

func (d overviewData) Count(status string) int { return d.Counts.Jobs[export.JobStatus(status)] }

// activity is the last hour as columns, for the chart.
type activity struct {
	Times, Done, Failed []int64
	Partial             bool
	DoneSum, FailedSum  int64
	Now                 int64 // done in the last whole minute
	Minutes             []export.Minute
}

func activityOf(a export.Activity) activity {
	v := activity{Partial: a.Partial}
	for _, m := range a.Minutes {
		v.Times, v.Done, v.Failed = append(v.Times, m.At.Unix()), append(v.Done, int64(m.Done)), append(v.Failed, int64(m.Failed))
		v.DoneSum, v.FailedSum = v.DoneSum+int64(m.Done), v.FailedSum+int64(m.Failed)
		if m.Done+m.Failed > 0 {
			v.Minutes = append(v.Minutes, m)
		}
	}
	if n := len(v.Done); n > 1 {
		v.Now = v.Done[n-2]
	}
	return v
}

const jobsOfOverview = 10

func (v *visit) overview() error {
	var d overviewData
	var err error
	if v.wants("now") {
		if d.Counts, err = v.Store.Counts(v.ctx(), v.sees()); err != nil {
			return err
		}
		if v.operator {
			if d.Workers, err = v.api.Workers(v.ctx()); err != nil {
				return err
			}
			for _, w := range d.Workers {
				d.Slots += w.Concurrency
				d.Busy += len(w.Chunks)
			}
		}
	}
	if v.wants("activity") || v.wants("now") {
		a, err := v.Store.Activity(v.ctx(), v.sees())
		if err != nil {
			return err
		}
		d.Activity = activityOf(a)
	}
	if v.wants("latest") {
		jobs, _, err := v.api.Jobs(v.ctx(), client.JobsFilter{Limit: jobsOfOverview}, "")
		if err != nil {
			return err
		}
		if d.Jobs, err = v.jobRows(jobs); err != nil {
			return err
		}
	}
	return v.render(http.StatusOK, "overview", view{Title: "Overview", Nav: "overview", Data: d})
}
