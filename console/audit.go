package console

import (
	"net/http"
	"strings"

	"exportd/client"
)

// auditQuery is what the lines are searched for, as it stands in the address.
type auditQuery struct{ Job, Tenant, Token, From, To, Cursor string }

func (q auditQuery) Any() bool { return q.Job+q.Tenant+q.Token+q.From+q.To != "" }

func (q auditQuery) path(cursor string) string {
	return "/console/audit" + query("job", q.Job, "tenant", q.Tenant, "token", q.Token, "from", q.From, "to", q.To, "cursor", cursor)
}

type auditData struct {
	Query       auditQuery
	Lines       []client.AuditLine
	First, Next string
}

const auditPerPage = 100

func (v *visit) audit() error {
	if !v.operator {
		return errOperators
	}
	f := v.r.URL.Query()
	q := auditQuery{strings.TrimSpace(f.Get("job")), strings.TrimSpace(f.Get("tenant")), strings.TrimSpace(f.Get("token")), f.Get("from"), f.Get("to"), f.Get("cursor")}
	lines, next, err := v.api.Audit(v.ctx(), client.AuditFilter{JobID: q.Job, Tenant: q.Tenant, Token: q.Token, From: q.From, To: q.To, Limit: auditPerPage}, q.Cursor)
	if err != nil {
		return err
	}
	data := auditData{Query: q, Lines: lines, First: q.path("")}
	if next != "" {
		data.Next = q.path(next)
	}
	return v.render(http.StatusOK, "audit", view{Title: "Audit", Nav: "audit", Data: data})
}
