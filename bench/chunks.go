package main

import (
	"encoding/json"
	"fmt"
	"time"

	"exportd/e2e/stack"
	"exportd/export"
)

// set is a kind of chunk.
type set struct {
	name   string
	chunks int // in the database
	rows   int // of each
}

const datesPerKey = 50

var firstDate = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) // long ago: files may be reused, so exportd has to look for them

// warm is the number of chunks worked on before the clock starts, at concurrency c.
func warm(c int) int { return 2 * c }

const mostConcurrency = 64

func (b *bench) sets() []set {
	return []set{
		{"BIG", b.sizes.Big + warm(16), 10_000},
		{"TINY", max(b.sizes.Tiny+warm(mostConcurrency), b.sizes.Submitted), 10},
		{"HUGE", 1, b.sizes.HugeRows},
	}
}

// ref is chunk i of the set.
func ref(set string, i int) export.Ref {
	return export.Ref{Key: fmt.Sprintf("%s-%04d", set, i/datesPerKey), Date: export.DateOf(firstDate.AddDate(0, 0, i%datesPerKey))}
}

func refs(set string, from, to int) []export.Ref {
	list := make([]export.Ref, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, ref(set, i))
	}
	return list
}

// submission is the body of a POST for these chunks.
func submission(refs []export.Ref, reuse bool) []byte {
	s := stack.Submission{Reuse: &reuse}
	for _, r := range refs {
		if n := len(s.Items); n == 0 || s.Items[n-1].Key != r.Key {
			s.Items = append(s.Items, stack.Item{Key: r.Key})
		}
		last := &s.Items[len(s.Items)-1]
		last.EffectiveDates = append(last.EffectiveDates, r.Date.String())
	}
	body, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and lists of strings
	}
	return body
}
