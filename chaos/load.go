package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"exportd/e2e/stack"
)

// order is one submission and what its client does about it.
type order struct {
	n            int
	at           time.Duration
	request      stack.Submission
	twice        bool          // the same POST is sent twice at once
	cancelAfter  time.Duration // of the answer; 0 never
	redriveAfter time.Duration // of an end as FAILED or CANCELLED; 0 never
}

// name is the idempotency key, by which jobs are known again in the database.
func (o order) name() string { return o.request.IdempotencyKey }

// broken says whether a chunk fails by design, whatever the attempt.
func (o order) broken() bool {
	return slices.ContainsFunc(o.request.Items, func(i stack.Item) bool { return fails(i.Key) })
}

// fails says whether chunks of the key are to be dead-lettered: see e2e/stack/function.sql.
func fails(key string) bool { return strings.HasPrefix(key, "DIV_") || strings.HasPrefix(key, "ERR_") }

// changing says whether the rows of the key change from run to run.
func changing(key string) bool { return strings.HasPrefix(key, "VER") }

// mixes are the kinds of jobs, with their weights.
var mixes = []struct {
	weight int
	items  func(r *rand.Rand) []stack.Item
}{
	{6, func(r *rand.Rand) []stack.Item { return items(r, 1, 3, "ROWS_%d", 50) }}, // tiny
	{5, func(r *rand.Rand) []stack.Item {
		return []stack.Item{{Key: fmt.Sprint("ROWS_1000", r.IntN(4)), EffectiveDates: days(r, 2, 8)}}
	}}, // typical: 10 000 rows
	{1, func(r *rand.Rand) []stack.Item { return items(r, 30, 250, "ROWS_%d", 9) }}, // wide
	{4, func(r *rand.Rand) []stack.Item {
		return append(items(r, 1, 2, []string{"BIG_1%d", "VERBIG_1%d", "STREAM_1%d"}[r.IntN(3)], 9), items(r, 1, 2, "ROWS_%d", 5)...)
	}},
	{3, func(r *rand.Rand) []stack.Item { return items(r, 1, 4, "SLOW_%d", 7) }},
	{3, func(r *rand.Rand) []stack.Item {
		return append(items(r, 1, 4, "FLAKY_%d", 4), items(r, 1, 4, "ROWS_%d", 90)...)
	}},
	{3, func(r *rand.Rand) []stack.Item {
		return append(items(r, 1, 2, []string{"DIV_%d", "DIV_%d", "ERR_%d"}[r.IntN(3)], 99), items(r, 3, 12, "ROWS_%d", 900)...)
	}},
	{2, func(r *rand.Rand) []stack.Item {
		return append(items(r, 1, 2, "NASTY%d", 3), append(items(r, 1, 2, "EMPTY %d", 3), items(r, 1, 2, "ROWS_%d/../é %%+?#&", 9)...)...)
	}},
	{5, func(r *rand.Rand) []stack.Item {
		return append(items(r, 1, 6, "VER_%d", 4), items(r, 1, 2, "VERBIG_%d", 7)...)
	}},
}

// drawOrders draws jobs about a second apart. Some come as twins: another job on the same files at the same time.
func drawOrders(r *rand.Rand, duration time.Duration) (orders []order) {
	total := 0
	for _, m := range mixes {
		total += m.weight
	}
	for at := time.Duration(0); at < duration; at += time.Duration(r.ExpFloat64() * float64(1200*time.Millisecond)) {
		n, i := r.IntN(total), 0
		for ; n >= mixes[i].weight; i++ {
			n -= mixes[i].weight
		}
		o := order{at: at.Truncate(time.Millisecond), twice: r.IntN(8) == 0}
		o.request.Items = mixes[i].items(r)
		o.dress(r)
		o.number(&orders)
		if r.IntN(4) == 0 {
			twin := o
			twin.at += time.Duration(r.IntN(3)) * 150 * time.Millisecond
			twin.dress(r)
			if r.IntN(2) == 0 {
				twin.request.Output = o.request.Output // or the files have other names
			}
			twin.number(&orders)
		}
	}
	slices.SortStableFunc(orders, func(a, b order) int { return int(a.at - b.at) })
	return orders
}

func (o *order) number(orders *[]order) {
	o.n = len(*orders) + 1
	o.request.IdempotencyKey = fmt.Sprintf("order-%04d", o.n)
	*orders = append(*orders, *o)
}

// dress draws everything but the items.
func (o *order) dress(r *rand.Rand) {
	o.request.Output, o.request.Reuse, o.cancelAfter, o.redriveAfter = nil, nil, 0, 0
	if c := []string{"", "", "", "GZIP", "ZSTD"}[r.IntN(5)]; c != "" {
		o.request.Output = &stack.Output{Compression: c}
	}
	o.request.OnFailure = []string{"FAIL_FAST", "CONTINUE"}[r.IntN(2)]
	if r.IntN(3) == 0 {
		no := false
		o.request.Reuse = &no
	}
	priority := r.IntN(10)
	o.request.Priority = &priority
	if r.IntN(7) == 0 {
		o.cancelAfter = 1 + time.Duration(r.IntN(6000))*time.Millisecond
	}
	if r.IntN(3) == 0 {
		o.redriveAfter = 1 + time.Duration(r.IntN(3000))*time.Millisecond
	}
}

// items are from least to most chunks of keys of the format, with a number from 1 to n in it, on a few days: jobs meet on the same files.
func items(r *rand.Rand, least, most int, format string, n int) (list []stack.Item) {
	for left := least + r.IntN(most-least+1); left > 0; {
		d := days(r, 1, min(left, 40))
		list = append(list, stack.Item{Key: fmt.Sprintf(format, 1+r.IntN(n)), EffectiveDates: d})
		left -= len(d)
	}
	return list
}

// days are from least to most days in a row: long past, where files are reused, or far ahead, where they are always made anew.
func days(r *rand.Rand, least, most int) (list []string) {
	first := time.Date([]int{2019, 2019, 2090}[r.IntN(3)], 1, 1+r.IntN(5), 0, 0, 0, 0, time.UTC)
	for i := range least + r.IntN(most-least+1) {
		list = append(list, first.AddDate(0, 0, i).Format("20060102"))
	}
	return list
}
