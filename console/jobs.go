package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"exportd/client"
	"exportd/export"
)

// jobRow is a job in a list.
type jobRow struct {
	client.Job
	Bar    bar
	Tenant string // for operators
}

// bar is a job's chunks as segments of a whole.
type bar struct {
	Total    int
	Segments []segment
	Words    string // for who cannot see it
}

type segment struct {
	Class       string
	From, Count int
}

func barOf(j client.Job) bar {
	b := bar{Total: max(1, j.Total)}
	var words []string
	at := 0
	for _, s := range []struct {
		class string
		n     int
	}{{"done", j.Done}, {"dlq", j.Failed}, {"cancelled", j.Cancelled}, {"running", j.Running}, {"retry_wait", j.Retrying}, {"pending", j.Pending}} {
		if s.n > 0 {
			b.Segments = append(b.Segments, segment{s.class, at, s.n})
			words = append(words, fmt.Sprintf("%d %s", s.n, statusWords(strings.ToUpper(s.class))))
			at += s.n
		}
	}
	b.Words = strings.Join(words, ", ")
	return b
}

// jobRows are jobs as lists show them. Where there are several tenants, operators are told whose each is.
func (v *visit) jobRows(jobs []client.Job) ([]jobRow, error) {
	rows := make([]jobRow, len(jobs))
	ids := make([]string, len(jobs))
	for i, j := range jobs {
		rows[i].Job, rows[i].Bar, ids[i] = j, barOf(j), j.JobID
	}
	if v.open || !v.operator || len(jobs) == 0 {
		return rows, nil
	}
	tenants, err := v.Store.Tenants(v.ctx(), ids)
	for i, id := range ids {
		rows[i].Tenant = tenants[id]
	}
	return rows, err
}

// jobQuery is what the list is searched for, as it stands in the address.
type jobQuery struct{ Search, Status, From, To, Tenant, Cursor string }

func (q jobQuery) Any() bool { return q.Search+q.Status+q.From+q.To+q.Tenant != "" }

func (q jobQuery) path(cursor, part string) string {
	return "/console/jobs" + query("q", q.Search, "status", q.Status, "from", q.From, "to", q.To, "tenant", q.Tenant, "cursor", cursor, "part", part)
}

// query encodes the pairs that are not empty.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
}

type jobsData struct {
	Query             jobQuery
	States            []string
	Jobs              []jobRow
	Self, First, Next string
}

var jobStates = []string{"SUBMITTED", "IN_PROGRESS", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"}

const (
	jobsPerPage = 50
	searchTime  = time.Second // that one page searches on
)

func (v *visit) jobs() error {
	f := v.r.URL.Query()
	q := jobQuery{strings.TrimSpace(f.Get("q")), f.Get("status"), f.Get("from"), f.Get("to"), f.Get("tenant"), f.Get("cursor")}
	if export.ValidJobID(q.Search) {
		return v.back(jobPath(q.Search), nil)
	}
	filter := client.JobsFilter{Status: q.Status, Key: q.Search, From: q.From, To: q.To, Tenant: q.Tenant, Limit: jobsPerPage}
	jobs, next, err := v.api.Jobs(v.ctx(), filter, q.Cursor)
	if err != nil {
		return err
	}
	// Pages of the API that is searched for a key may be short, even empty, and yet have a next one.
	for began := time.Now(); next != "" && len(jobs) < jobsPerPage && time.Since(began) < searchTime; {
		filter.Limit = jobsPerPage - len(jobs)
		more, then, err := v.api.Jobs(v.ctx(), filter, next)
		if err != nil {
			break // what was found is shown
		}
		jobs, next = append(jobs, more...), then
	}
	rows, err := v.jobRows(jobs)
	if err != nil {
		return err
	}
	data := jobsData{Query: q, States: jobStates, Jobs: rows, Self: q.path(q.Cursor, "list"), First: q.path("", "")}
	if next != "" {
		data.Next = q.path(next, "")
	}
	return v.render(http.StatusOK, "jobs", view{Title: "Jobs", Nav: "jobs", Data: data})
}
