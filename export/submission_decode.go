package export

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Limits bound a submission.
type Limits struct {
	MaxChunks int // chunks after normalisation
}

const (
	maxCallbackURL    = 2048
	maxIdempotencyKey = 255
)

// Names of the members, in the order of the switches below.
var (
	submissionFields = []string{"items", "output", "onFailure", "reuse", "priority", "callbackUrl", "idempotencyKey"}
	itemFields       = []string{"key", "effectiveDates"}
	outputFields     = []string{"format", "compression"}
)

// DecodeSubmission reads the body of a submission and normalises it. Its error is an [*Invalid] that names every fault at once. Nothing is
// taken for granted: unknown, repeated and null members are faults, and so is anything after the JSON value. The body is not kept. Beside an error the submission holds its idempotency key, if valid, and no more.
func DecodeSubmission(body []byte, limits Limits) (Submission, error) {
	if err := checkJSON(body); err != nil {
		return Submission{}, &Invalid{Faults: []Fault{{Detail: err.Error()}}}
	}
	d := decoder{
		reader: reader{json: string(body), path: make([]step, 0, 8)},
		Submission: Submission{
			Compression: None, OnFailure: FailFast, Reuse: true, Priority: DefaultPriority,
		},
	}
	d.submission()
	d.normalise()
	total := d.Total()
	if total > limits.MaxChunks {
		if len(d.bad.Faults) == 0 {
			d.bad.TooMany = total
		}
		d.push(step{name: "items"})
		d.faultf("has %d chunks; at most %d are allowed", total, limits.MaxChunks)
	}
	if len(d.bad.Faults) > 0 {
		return Submission{IdempotencyKey: d.IdempotencyKey}, &d.bad
	}
	return d.Submission, nil
}

type decoder struct {
	reader
	Submission
	keys   map[string]int // key to its place in order
	order  []string       // keys as they came
	chunks []numbered     // valid ones, repeats included
	dates  []Date         // of the current item
}

// numbered is a chunk as its key's number (high half) and its date: sorting it sorts by key, then by date.
type numbered uint64

func number(key int, date Date) numbered { return numbered(key)<<32 | numbered(date) }
func (n numbered) key() int              { return int(n >> 32) }
func (n numbered) date() Date            { return Date(uint32(n)) }

func (d *decoder) submission() {
	d.keys = make(map[string]int)
	seen := d.object(submissionFields, func(i int) {
		switch submissionFields[i] {
		case "items":
			if d.array(d.item) == 0 {
				d.faultf("must not be empty")
			}
		case "output":
			d.output()
		case "onFailure":
			choose(&d.reader, &d.OnFailure, FailFast, Continue)
		case "reuse":
			if d.is("tf", "a boolean") {
				d.Reuse = d.literal() == "true"
			}
		case "priority":
			if d.is("-0123456789", "an integer") {
				if n := d.literal(); len(n) == 1 {
					d.Priority = int(n[0] - '0')
				} else {
					d.faultf("must be an integer from 0 to 9")
				}
			}
		case "callbackUrl":
			checked(&d.reader, &d.CallbackURL, checkCallbackURL)
		case "idempotencyKey":
			checked(&d.reader, &d.IdempotencyKey, CheckIdempotencyKey)
		}
	})
	d.require(seen, submissionFields[:1])
}

func (d *decoder) item() {
	var key string
	valid := false
	d.dates = d.dates[:0]
	seen := d.object(itemFields, func(i int) {
		switch itemFields[i] {
		case "key":
			s, ok := d.str()
			key = strings.TrimSpace(s)
			if !ok {
				break
			}
			if err := CheckKey(key); err != nil {
				d.faultf("%v", err)
				break
			}
			valid = true
		case "effectiveDates":
			if d.array(d.date) == 0 {
				d.faultf("must not be empty")
			}
		}
	})
	d.require(seen, itemFields)
	if !valid {
		return
	}
	n, known := d.keys[key]
	if !known {
		n = len(d.order)
		d.keys[key] = n
		d.order = append(d.order, key)
	}
	for _, date := range d.dates {
		d.chunks = append(d.chunks, number(n, date))
	}
}

func (d *decoder) date() {
	s, ok := d.str()
	if !ok {
		return
	}
	if len(s) > 32 {
		d.faultf("is not a date of the form yyyyMMdd")
		return
	}
	date, err := ParseDate(s)
	if err != nil {
		d.faultf("%v", err)
		return
	}
	d.dates = append(d.dates, date)
}

func (d *decoder) output() {
	format := "CSV"
	d.object(outputFields, func(i int) {
		switch outputFields[i] {
		case "format":
			choose(&d.reader, &format, "CSV")
		case "compression":
			choose(&d.reader, &d.Compression, None, Gzip, Zstd)
		}
	})
}

func (r *reader) require(seen uint, names []string) {
	for i, name := range names {
		if seen&(1<<i) == 0 {
			r.push(step{name: name})
			r.faultf("is required")
			r.pop()
		}
	}
}

// choose reads a string that must be one of the choices.
func choose[T ~string](r *reader, into *T, choices ...T) {
	s, ok := r.str()
	if !ok {
		return
	}
	if !slices.Contains(choices, T(s)) {
		r.faultf("must be one of %v", choices)
		return
	}
	*into = T(s)
}

// checked reads a string that must pass check.
func checked(r *reader, into *string, check func(string) error) {
	s, ok := r.str()
	if !ok {
		return
	}
	if err := check(s); err != nil {
		r.faultf("%v", err)
		return
	}
	*into = s
}

// normalise makes the items of the collected chunks. All dates share one array.
func (d *decoder) normalise() {
	byKey := make([]int, len(d.order)) // numbers of the keys, in the order of the keys
	for n := range byKey {
		byKey[n] = n
	}
	slices.SortFunc(byKey, func(a, b int) int { return strings.Compare(d.order[a], d.order[b]) })
	rank := make([]int, len(byKey))
	for place, n := range byKey {
		rank[n] = place
	}
	for i, c := range d.chunks {
		d.chunks[i] = number(rank[c.key()], c.date())
	}
	slices.Sort(d.chunks)
	d.chunks = slices.Compact(d.chunks)

	dates := make([]Date, len(d.chunks))
	d.Items = make([]Item, 0, len(byKey))
	for from := 0; from < len(d.chunks); {
		to := from
		for ; to < len(d.chunks) && d.chunks[to].key() == d.chunks[from].key(); to++ {
			dates[to] = d.chunks[to].date()
		}
		d.Items = append(d.Items, Item{Key: d.order[byKey[d.chunks[from].key()]], Dates: dates[from:to:to]})
		from = to
	}
}

func checkCallbackURL(s string) error {
	if len(s) > maxCallbackURL {
		return fmt.Errorf("has %d bytes; at most %d are allowed", len(s), maxCallbackURL)
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || strings.ContainsFunc(s, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }):
		return fmt.Errorf("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return fmt.Errorf("must be an absolute http or https URL")
	case u.Port() != "" && !validPort(u.Port()):
		return fmt.Errorf("must have a port from 1 to 65535")
	case u.User != nil:
		return fmt.Errorf("must not hold a user name or password")
	}
	return nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// CheckIdempotencyKey says what is wrong with an idempotency key: 1 to 255 bytes of printable UTF-8.
func CheckIdempotencyKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("must not be empty")
	case len(key) > maxIdempotencyKey:
		return fmt.Errorf("has %d bytes; at most %d are allowed", len(key), maxIdempotencyKey)
	case strings.ContainsFunc(key, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return fmt.Errorf("must consist of printable characters")
	}
	return nil
}
