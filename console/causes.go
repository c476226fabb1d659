package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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

// normalised is the message with an ellipsis for what differs from chunk to chunk: its key, quoted text, words with a digit. A SQLSTATE stays.
func normalised(f export.FailedChunk) string {
	text := f.Error
	if len(f.Key) > 1 {
		text = strings.ReplaceAll(text, f.Key, "…")
	}
	b := make([]byte, 0, len(text)+8)
	const ellipsis = "…"
	for i := 0; i < len(text); {
		c, end := text[i], i
		digits := false
		for ; end < len(text) && inWord(text[end]); end++ {
			digits = digits || '0' <= text[end] && text[end] <= '9'
		}
		quoted := 0
		if c == '"' || c == '\'' && (i == 0 || !inWord(text[i-1])) {
			quoted = strings.IndexByte(text[i+1:], c) + 1
		}
		switch {
		case digits && !bytes.HasSuffix(b, []byte("SQLSTATE ")):
			b, i = append(b, ellipsis...), end
		case end > i:
			b, i = append(b, text[i:end]...), end
		case quoted > 0:
			b, i = append(b, ellipsis...), i+quoted+1
		case c <= ' ': // of several in a row one stays
			if len(b) > 0 && b[len(b)-1] != ' ' {
				b = append(b, ' ')
			}
			i++
		default:
			b, i = append(b, c), i+1
		}
	}
	return strings.TrimRight(string(b), " ")
}

// inWord says whether a byte is of a word: a number, a date, an identifier, a path, or anything that is not ASCII.
func inWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '-' <= c && c <= '9' || c == '_' || c >= 0x80 // '-', '.', '/' and the digits are neighbours
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
