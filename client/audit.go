package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// AuditLine is an order that was done, or what was refused.
type AuditLine struct {
	At                                 time.Time
	Action, Outcome                    string // DONE or REFUSED
	Status                             int    // of HTTP, of the refusal
	Problem                            string
	Tenant, Role, Token                string // empty: nobody known; Token: the first digits of its sha256
	Address, Forwarded, UserAgent, Via string
	JobID, JobTenant                   string
	Chunks                             *int
	RequestID, TraceID                 string
	Raw                                Raw `json:"-"`
}

// AuditFilter leaves out what is empty. From and To are RFC 3339 or UTC days; Limit is 1 to 200.
type AuditFilter struct {
	Tenant, Token, Action, JobID, From, To string
	Limit                                  int
}

// Audit is a page of the audit log, newest first, and the cursor of the next one, which is empty on the last.
func (c Client) Audit(ctx context.Context, f AuditFilter, cursor string) (lines []AuditLine, next string, err error) {
	var page struct {
		Lines      []Raw
		NextCursor string
	}
	_, err = c.call(ctx, http.MethodGet, "/audit", values("tenant", f.Tenant, "token", f.Token, "action", f.Action, "jobId", f.JobID, "from", f.From, "to", f.To,
		"limit", strconv.Itoa(f.Limit), "cursor", cursor), nil, &page)
	if err != nil {
		return nil, "", err
	}
	lines, err = each(c, page.Lines, func(l *AuditLine, raw Raw) { l.Raw = raw })
	return lines, page.NextCursor, err
}
