package api

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"exportd/export"

	"github.com/gin-gonic/gin"
)

// Of what strangers write, this much is kept.
const (
	mostForwarded = 200
	mostAgent     = 200
	mostAction    = 100
)

// Lines that no order writes are bounded, so that nobody fills the table: refusals of a client and of all, and sign-ins of a client.
const (
	clientLines  = 10 // at once, then
	clientEvery  = time.Minute
	allRefusals  = 100 // at once, then
	refusalEvery = time.Second
	recordTime   = 2 * time.Second // for one of them, which the answer waits for
)

const (
	signInAction = "signIn"
	signInPath   = "/console/sign-in"
)

// sender is from whom a request came, as far as the connection tells, and what it says itself.
type sender struct{ address, forwarded, agent string }

func senderOf(r *http.Request) sender {
	s := sender{
		address:   r.RemoteAddr,
		forwarded: export.Words(strings.Join(r.Header.Values("X-Forwarded-For"), ", "), mostForwarded),
		agent:     export.Words(r.UserAgent(), mostAgent),
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		s.address = host
	}
	if ip, err := netip.ParseAddr(s.address); err == nil {
		s.address = ip.Unmap().String()
	}
	return s
}

// role is what the tokens file says; of nobody known it is empty.
func (c caller) role() string {
	switch {
	case c.operator:
		return "operator"
	case c.tenant != "":
		return "submitter"
	}
	return ""
}

// fingerprint is how the token's line in the tokens file begins: too little to try guesses against.
func (c caller) fingerprint() string {
	return hex.EncodeToString([]byte(c.token[:min(len(c.token), 4)]))
}

// order is what the store writes down of an action.
func (r *request) order(action string) export.Order {
	o := export.Order{Action: action, Actor: export.Actor{
		Tenant: r.caller.tenant, Role: r.caller.role(), Token: r.caller.fingerprint(), Address: r.sender.address, Forwarded: r.sender.forwarded, UserAgent: r.sender.agent,
		Via: "api", RequestID: r.id, TraceID: export.TraceID(r.traceparent),
	}}
	if r.page != nil || r.signsIn {
		o.Via = "console"
	}
	return o
}

// redriveOrder tells of a re-drive by filter.
func redriveOrder(r *request, f export.RedriveFilter) export.Order {
	o := r.order("redriveJobs")
	day := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	o.Filter, _ = json.Marshal(redriveBody{Status: string(f.Status), Key: f.Key, From: day(f.From), To: day(f.To), ErrorCode: f.ErrorCode}) // texts only
	return o
}

// auditAction is the operation that was called, by its name in the document.
func (a *API) auditAction(c *gin.Context) string {
	route := c.Request.Method + " " + c.FullPath()
	if name := a.operations[route]; name != "" {
		return name
	}
	return export.Words(route, mostAction)
}

// orders are the operations whose refusals for the job's sake are recorded too.
var orders = map[string]bool{"cancelJob": true, "redriveJob": true}

// audit records sign-ins, and what was refused. What an order did the store has written in the order's own transaction.
func (a *API) audit(c *gin.Context) {
	c.Next()
	if a.Store == nil {
		return
	}
	r, status, action := requestOf(c.Request.Context()), c.Writer.Status(), a.auditAction(c)
	if r.page != nil && r.page.signsIn {
		r.page.caller, r.page.problem = r.caller, r.problem // the line is the page's
		return
	}
	refused := false
	switch {
	case r.signsIn:
		action = signInAction
		refused = status == http.StatusUnauthorized || status == http.StatusForbidden
		if !refused && status != http.StatusSeeOther {
			return
		}
	case status == http.StatusUnauthorized: // a call without any token is nobody's attempt
		refused = c.GetHeader("Authorization") != ""
	case status == http.StatusForbidden: // without a problem it is a page's, of what was recorded when it asked
		refused = r.problem != ""
	case status == http.StatusNotFound, status == http.StatusConflict:
		refused = orders[action]
	}
	if !refused && !r.signsIn {
		return
	}
	l := export.AuditLine{Order: r.order(action)}
	if refused {
		l.Status, l.Problem = status, strings.TrimPrefix(r.problem, "/problems/")
	}
	if id, err := jobID(c.Param("jobId")); err == nil {
		l.JobID = id
	}
	a.record(c, r, l)
}

func (a *API) record(c *gin.Context, r *request, l export.AuditLine) {
	now, client := time.Now(), r.caller.token
	if client == "" {
		client = address(c.Request)
	}
	if a.lines.take(client, now) > 0 || l.Status != 0 && a.refusals.take("", now) > 0 {
		a.metrics.audited.WithLabelValues("left_out").Inc()
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request.Context()), recordTime)
	defer cancel()
	result := "recorded"
	if err := a.Store.Record(ctx, l); err != nil {
		result = "failed"
		a.Log.ErrorContext(ctx, "audit line lost", "action", l.Action, "status", l.Status, "requestId", r.id, "error", err)
	}
	a.metrics.audited.WithLabelValues(result).Inc()
}
