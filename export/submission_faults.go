package export

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxFaults is the number of faults that an Invalid lists; the rest is only counted.
const MaxFaults = 100

// Fault is one thing wrong with a request.
type Fault struct {
	Pointer string // RFC 6901, into the request's body; empty means the body as a whole
	Detail  string
}

// Invalid is the error of a request that breaks its rules. It holds every fault of the request.
type Invalid struct {
	Faults []Fault
	More   int // faults beyond MaxFaults
	// TooMany is the number of chunks found, when there are more than allowed and nothing else is wrong.
	TooMany int
}

func (e *Invalid) Error() string {
	if len(e.Faults) == 0 {
		return "invalid request"
	}
	text := fmt.Sprintf("%q %s", e.Faults[0].Pointer, e.Faults[0].Detail)
	if n := len(e.Faults) + e.More - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// step is one part of a path into the body: a member's name, or the index of an element when the name is empty.
type step struct {
	name  string
	index int
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []step) string {
	var b strings.Builder
	for _, s := range path {
		b.WriteByte('/')
		if s.name == "" {
			b.WriteString(strconv.Itoa(s.index))
		} else {
			pointerEscapes.WriteString(&b, s.name)
		}
	}
	return b.String()
}

// nearest finds the known name that was probably meant by an unknown one: at most two edits away, case and separators apart.
func nearest(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	name = strings.ToLower(plain.Replace(name))
	best, least := "", 3
	for _, k := range known {
		if d := edits(name, strings.ToLower(k)); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
