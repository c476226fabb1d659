package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"exportd/client"
	"exportd/export"
)

// ordered is what a user ordered, with where each part was said: the API names faults by places in a body that the user never saw.
type ordered struct {
	items   []client.Item
	origins []origin       // of the items
	byKey   map[string]int // place in items
	chunks  int
}

// origin is where an item was said: its key, and each of its dates.
type origin struct {
	key   string
	dates []string
}

// mostOrdered is as many chunks as any API takes.
const mostOrdered = 1_000_000

func (o *ordered) add(key string, dates []export.Date, where string) error {
	if o.chunks += len(dates); o.chunks > mostOrdered {
		return fmt.Errorf("there are more than %d chunks: submit several jobs", mostOrdered)
	}
	if o.byKey == nil {
		o.byKey = map[string]int{}
	}
	i, known := o.byKey[key]
	if !known {
		i = len(o.items)
		o.byKey[key] = i
		o.items = append(o.items, client.Item{Key: key})
		o.origins = append(o.origins, origin{key: where})
	}
	for _, d := range dates {
		o.items[i].EffectiveDates = append(o.items[i].EffectiveDates, d.String())
		o.origins[i].dates = append(o.origins[i].dates, where)
	}
	return nil
}

// placed is the value of a flag, with its place among the flags of its kind on the command line.
type placed struct {
	at   int
	text string
}

// addPairs takes the dates of each --key from the --dates that follow it. Keys with no dates between them share those that follow.
func (o *ordered) addPairs(keys, dates []placed) []error {
	type flag struct {
		placed
		isKey bool
	}
	var flags []flag
	for _, k := range keys {
		flags = append(flags, flag{k, true})
	}
	for _, d := range dates {
		flags = append(flags, flag{d, false})
	}
	slices.SortFunc(flags, func(a, b flag) int { return cmp.Compare(a.at, b.at) })
	var wrong []error
	var group []string
	dated := true
	for _, f := range flags {
		switch {
		case f.isKey && dated:
			group, dated = []string{f.text}, false
		case f.isKey:
			group = append(group, f.text)
		case len(group) == 0:
			wrong = append(wrong, fmt.Errorf("--dates %s comes before any --key: give the key first", f.text))
		default:
			dated = true
			days, err := parseDates(f.text)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("--dates %s: %w", f.text, err))
			}
			for _, key := range group {
				if err := o.add(key, days, fmt.Sprintf("--key %q --dates %s", key, f.text)); err != nil {
					return append(wrong, err)
				}
			}
		}
	}
	if !dated {
		wrong = append(wrong, fmt.Errorf("--key %s has no --dates after it: add --dates 20250131, or 20250101..20250131", strings.Join(group, " --key ")))
	}
	return wrong
}

// parseDates reads days and ranges of days with commas between them: 20250131,2025-02-01..2025-02-28.
func parseDates(s string) (days []export.Date, err error) {
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "..")
		from, err := parseDay(first)
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			if to, err = parseDay(last); err != nil {
				return nil, err
			}
		}
		if to < from {
			return nil, fmt.Errorf("the range %s ends before it begins", part)
		}
		for d := from; d <= to; d = d.AddDays(1) {
			if days = append(days, d); len(days) > mostOrdered {
				return nil, fmt.Errorf("there are more than %d days", mostOrdered)
			}
		}
	}
	return days, nil
}

// parseDay reads yyyyMMdd and yyyy-MM-dd.
func parseDay(s string) (export.Date, error) {
	digits := s
	if len(s) == len("yyyy-MM-dd") && s[4] == '-' && s[7] == '-' {
		digits = s[:4] + s[5:7] + s[8:]
	}
	d, err := export.ParseDate(digits)
	if err != nil && (len(digits) != len("yyyyMMdd") || strings.Trim(digits, "0123456789") != "") {
		return 0, fmt.Errorf("%q is not a day such as 20250131 or 2025-01-31", s)
	}
	return d, err
}

// mostFaults is how many faults of a file are listed.
const mostFaults = 20

// addCSV reads lines of key,date. A first line that names the columns is left out. The error has a line for each fault.
func (o *ordered) addCSV(text []byte, name string) error {
	lines := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	lines.FieldsPerRecord, lines.ReuseRecord = -1, true
	var wrong []error
	for first := true; ; first = false {
		record, err := lines.Read()
		if err == io.EOF {
			break
		}
		if parse, ok := errors.AsType[*csv.ParseError](err); ok {
			return errors.Join(append(wrong, fmt.Errorf("%s line %d: %w", name, parse.Line, parse.Err))...)
		} else if err != nil {
			return err
		}
		line, _ := lines.FieldPos(0)
		where := fmt.Sprintf("%s line %d", name, line)
		if first && isHeader(record) {
			continue
		}
		if err := o.addRecord(record, where); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", where, err))
		}
		if len(wrong) > mostFaults {
			wrong[mostFaults] = errors.New("and perhaps more")
			break
		}
	}
	if len(wrong) == 0 && len(o.items) == 0 {
		return fmt.Errorf("%s holds no line: write one key,date a line, such as ABC,20250131", name)
	}
	return errors.Join(wrong...)
}

func isHeader(record []string) bool {
	if len(record) != 2 {
		return false
	}
	_, err := parseDates(record[1])
	return err != nil && strings.EqualFold(strings.TrimSpace(record[0]), "key")
}

func (o *ordered) addRecord(record []string, where string) error {
	if len(record) != 2 {
		return fmt.Errorf("it must be key,date, and has %d field(s); a key with a comma in it wants quotes", len(record))
	}
	days, err := parseDates(record[1])
	if err != nil {
		return err
	}
	return o.add(record[0], days, where)
}

// flagOf are the flags that say what the body's members say.
var flagOf = map[string]string{
	"/onFailure": "--on-failure", "/priority": "--priority", "/callbackUrl": "--callback-url", "/output/compression": "--compression",
	"/idempotencyKey": "--idempotency-key", "/reuse": "--reuse", "/items": "the job",
}

// place says in the user's words what a JSON pointer into the body means; "" when that is nothing.
func (o *ordered) place(pointer string) string {
	if flag := flagOf[pointer]; flag != "" {
		return flag
	}
	parts := strings.Split(pointer, "/")
	if len(parts) < 3 || parts[1] != "items" {
		return ""
	}
	i, err := strconv.Atoi(parts[2])
	if err != nil || i < 0 || i >= len(o.origins) {
		return ""
	}
	from := o.origins[i]
	if len(parts) == 5 && parts[3] == "effectiveDates" {
		if d, err := strconv.Atoi(parts[4]); err == nil && d >= 0 && d < len(from.dates) {
			return from.dates[d]
		}
	}
	return from.key
}

// explain is a refusal in the user's words, a line for each fault.
func (o *ordered) explain(refused *client.Problem) string {
	if len(refused.Errors) == 0 {
		return refused.Error()
	}
	text := strings.TrimSuffix(refused.Title, ".") + "; nothing was stored:"
	for _, f := range refused.Errors {
		where := cmp.Or(o.place(f.Pointer), f.Pointer, f.Header, f.Parameter)
		switch {
		case where == "":
			text += "\n  " + f.Detail
		case strings.HasSuffix(f.Pointer, "/key"):
			text += fmt.Sprintf("\n  %s: the key %s", where, f.Detail)
		default:
			text += fmt.Sprintf("\n  %s: %s", where, f.Detail)
		}
	}
	return text
}
