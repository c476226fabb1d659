package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"exportd/export"
)

// cause is what several chunks failed of: an error code and the message without what differs from chunk to chunk.
type cause struct {
	ID     string // for addresses
	Code   string
	Text   string // normalised
	Sample export.FailedChunk
	Dead   int // dead letters
	Tried  int // chunks that will be tried again
	Jobs   int
}

func (c cause) Count() int { return c.Dead + c.Tried }

// varying is what is left out of a message: quoted text, identifiers in hex, numbers.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|\b[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b|\d+(?:[.:,-]\d+)*`)

var sqlState = regexp.MustCompile(`\(SQLSTATE \w{5}\)`)

// normalised is the message with an ellipsis for what differs, the chunk's own key and date above all. A SQLSTATE stays.
func normalised(f export.FailedChunk) string {
	s := strings.ReplaceAll(strings.ReplaceAll(f.Error, f.Date.ISO(), "…"), f.Date.String(), "…")
	if len(f.Key) > 1 {
		s = strings.ReplaceAll(s, f.Key, "…")
	}
	var b strings.Builder
	at := 0
	for _, keep := range sqlState.FindAllStringIndex(s, -1) {
		b.WriteString(varying.ReplaceAllString(s[at:keep[0]], "…") + s[keep[0]:keep[1]])
		at = keep[1]
	}
	b.WriteString(varying.ReplaceAllString(s[at:], "…"))
	return strings.Join(strings.Fields(b.String()), " ")
}

// causeID names a cause in an address.
func causeID(code, text string) string {
	sum := sha256.Sum256([]byte(code + "\x00" + text))
	return hex.EncodeToString(sum[:6])
}

// causesOf groups failures, the most frequent cause first.
func causesOf(list []export.FailedChunk) []cause {
	type name struct{ code, text string }
	groups := map[name]*cause{}
	jobs := map[name]map[string]bool{}
	for _, f := range list {
		n := name{f.ErrorCode, normalised(f)}
		c := groups[n]
		if c == nil {
			c = &cause{ID: causeID(n.code, n.text), Code: n.code, Text: n.text, Sample: f}
			groups[n], jobs[n] = c, map[string]bool{}
		}
		if f.Status == export.DeadLetter {
			c.Dead++
		} else {
			c.Tried++
		}
		jobs[n][f.JobID] = true
		c.Jobs = len(jobs[n])
	}
	causes := make([]cause, 0, len(groups))
	for _, c := range groups {
		causes = append(causes, *c)
	}
	slices.SortFunc(causes, func(a, b cause) int {
		return cmp.Or(cmp.Compare(b.Count(), a.Count()), strings.Compare(a.Code+a.Text, b.Code+b.Text))
	})
	return causes
}
