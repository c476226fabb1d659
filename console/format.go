package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"
)

var functions = template.FuncMap{
	"asset": assetURL, "num": number, "size": size, "stamp": stamp, "clock": clock, "machine": machineTime, "took": took, "since": since,
	"jobPath": jobPath, "chunkPath": chunkPath, "filePath": filePath, "day": day, "lower": strings.ToLower, "words": statusWords, "plural": plural, "json": jsonText,
	"list": func(items ...any) []any { return items },
}

// number separates thousands by a narrow space that does not break.
func number(n any) string {
	if p, ok := n.(*int64); ok {
		n = *p
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1\u00a0" + one
	}
	return number(n) + "\u00a0" + many
}

func size(n int64) string {
	units, f := []string{"B", "kB", "MB", "GB", "TB", "PB"}, float64(n)
	for ; f >= 999.5 && len(units) > 1; f /= 1000 {
		units = units[1:]
	}
	if units[0] == "B" || f >= 99.5 {
		return fmt.Sprintf("%.0f\u00a0%s", f, units[0])
	}
	return fmt.Sprintf("%.1f\u00a0%s", f, units[0])
}

// timeOf takes a time, a pointer to one, or nothing.
func timeOf(v any) (time.Time, bool) {
	switch t := v.(type) {
	case time.Time:
		return t.UTC(), !t.IsZero()
	case *time.Time:
		if t != nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

func formatted(v any, layout string) string {
	if t, ok := timeOf(v); ok {
		return t.Format(layout)
	}
	return "–"
}

func stamp(v any) string       { return formatted(v, "2006-01-02 15:04:05") }
func clock(v any) string       { return formatted(v, "15:04:05") }
func machineTime(v any) string { return formatted(v, time.RFC3339Nano) }

// day is an effective date as the API writes it, with hyphens.
func day(s string) string {
	if len(s) != 8 {
		return s
	}
	return s[:4] + "-" + s[4:6] + "-" + s[6:]
}

// took is how long it was between two times; until now when there is no second one.
func took(from, to any) string {
	begin, ok := timeOf(from)
	if !ok {
		return "–"
	}
	end, ok := timeOf(to)
	if !ok {
		end = time.Now()
	}
	return duration(max(0, end.Sub(begin)))
}

func since(v any) string { return took(v, nil) }

func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d\u00a0ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f\u00a0s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f\u00a0s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%d\u00a0min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d\u00a0h %d\u00a0min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d\u00a0days", int(d.Hours())/24)
}

func jobPath(id string) string { return "/console/jobs/" + url.PathEscape(id) }

func chunkPath(jobID, chunkKey string) string {
	return jobPath(jobID) + "/chunks/" + url.PathEscape(chunkKey)
}

func filePath(jobID, chunkKey string) string {
	return jobPath(jobID) + "/files/" + url.PathEscape(chunkKey)
}

// statusWords are what people read for the states of jobs, chunks and attempts.
func statusWords(status string) string {
	switch status {
	case "DLQ":
		return "dead letter"
	case "IN_PROGRESS":
		return "in progress"
	case "RETRY_WAIT":
		return "waiting to retry"
	case "GIVEN_BACK":
		return "given back"
	case "RETRY":
		return "failed, retried"
	}
	return strings.ToLower(status)
}

func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
