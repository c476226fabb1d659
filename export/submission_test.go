package export_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"exportd/export"

	"github.com/google/go-cmp/cmp"
)

var limits = export.Limits{MaxChunks: 1000}

const full = `{
  "items": [
    { "key": " XYZ ", "effectiveDates": ["20250215"] },
    { "effectiveDates": ["20250315", "20250215", "20250315"], "key": "ABC" },
    { "key": "XYZ\t", "effectiveDates": ["20250214", "20250215"] }
  ],
  "output": { "format": "CSV", "compression": "ZSTD" },
  "onFailure": "CONTINUE", "reuse": false, "priority": 9,
  "callbackUrl": "https://client.example/exports?a=1", "idempotencyKey": "req-550e8400"
}`

func TestDecodeSubmissionNormalises(t *testing.T) {
	got, err := export.DecodeSubmission([]byte(full), limits)
	if err != nil {
		t.Fatal(err)
	}
	want := export.Submission{
		Items: []export.Item{
			{Key: "ABC", Dates: []export.Date{20250215, 20250315}},
			{Key: "XYZ", Dates: []export.Date{20250214, 20250215}},
		},
		Compression: export.Zstd, OnFailure: export.Continue, Reuse: false, Priority: 9,
		CallbackURL: "https://client.example/exports?a=1", IdempotencyKey: "req-550e8400",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Total() != 4 || len(got.Refs("J20260102_000123")) != 4 {
		t.Errorf("total %d, refs %v", got.Total(), got.Refs("J20260102_000123"))
	}
	if last := got.Refs("J20260102_000123")[3]; last != (export.Ref{JobID: "J20260102_000123", Key: "XYZ", Date: 20250215}) {
		t.Errorf("last ref is %v", last)
	}
}

func TestDecodeSubmissionFillsInDefaults(t *testing.T) {
	_, err := export.DecodeSubmission([]byte(`{"items":[{"key":"\u00c4\ud83d\ude00\/%:","effectiveDates":["00010101","20240229"]}]}`), limits)
	var invalid *export.Invalid
	if !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Pointer != "/items/0/effectiveDates/0" {
		t.Fatalf("error %v", err)
	}
	got, err := export.DecodeSubmission([]byte(`{"items":[{"key":"\u00c4\ud83d\ude00\/%:","effectiveDates":["20240229"]}]}`), limits)
	if err != nil {
		t.Fatal(err)
	}
	want := export.Submission{
		Items:       []export.Item{{Key: "Ä😀/%:", Dates: []export.Date{20240229}}},
		Compression: export.None, OnFailure: export.FailFast, Reuse: true, Priority: 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// with puts members beside valid items.
func with(members string) string {
	return `{"items":[{"key":"A","effectiveDates":["20250101"]}],` + members + `}`
}

func TestDecodeSubmissionNamesEveryFault(t *testing.T) {
	type faults map[string]string
	for name, c := range map[string]struct {
		body string
		want faults // pointer to a part of the detail
	}{
		"empty":             {" \n", faults{"": "is empty"}},
		"not JSON":          {"{\n \"items\": nope}", faults{"": "line 2, column 12"}},
		"cut short":         {`{"items":[`, faults{"": "unexpected end"}},
		"trailing value":    {with(`"reuse":true`) + `{}`, faults{"": "after top-level value"}},
		"trailing garbage":  {with(`"reuse":true`) + ` x`, faults{"": "after top-level value"}},
		"invalid UTF-8":     {"{\"items\":[{\"key\":\"\xff\",\"effectiveDates\":[\"20250101\"]}]}", faults{"": "not valid UTF-8 at byte 18"}},
		"deep nesting":      {strings.Repeat("[", 100_000), faults{"": "exceeded max depth"}},
		"no object":         {`[1]`, faults{"": "must be an object, not an array"}},
		"null":              {`null`, faults{"": "must be an object, not null"}},
		"no items":          {`{}`, faults{"/items": "is required"}},
		"items empty":       {`{"items":[]}`, faults{"/items": "must not be empty"}},
		"items no array":    {`{"items":{"key":[1,{"a":"]"}]}}`, faults{"/items": "must be an array, not an object"}},
		"item no object":    {`{"items":["A",null]}`, faults{"/items/0": "not a string", "/items/1": "not null"}},
		"item empty":        {`{"items":[{}]}`, faults{"/items/0/key": "is required", "/items/0/effectiveDates": "is required"}},
		"key blank":         {`{"items":[{"key":" \t ","effectiveDates":["20250101"]}]}`, faults{"/items/0/key": "must not be empty"}},
		"key long":          {`{"items":[{"key":"` + strings.Repeat("k", 129) + `","effectiveDates":["20250101"]}]}`, faults{"/items/0/key": "129 bytes"}},
		"key control":       {`{"items":[{"key":"a\u0000b","effectiveDates":["20250101"]}]}`, faults{"/items/0/key": "U+0000"}},
		"key half a pair":   {`{"items":[{"key":"a\ud800","effectiveDates":["20250101"]}]}`, faults{"/items/0/key": "half of a surrogate pair"}},
		"key encoded":       {`{"items":[{"key":"` + strings.Repeat("%", 67) + `","effectiveDates":["20250101"]}]}`, faults{"/items/0/key": "201 bytes once encoded"}},
		"dates empty":       {`{"items":[{"key":"A","effectiveDates":[]}]}`, faults{"/items/0/effectiveDates": "must not be empty"}},
		"date types":        {`{"items":[{"key":"A","effectiveDates":[20250101,["x"],"20250230","2025-01-01","18991231","` + strings.Repeat("9", 99) + `"]}]}`, faults{"/items/0/effectiveDates/0": "not a number", "/items/0/effectiveDates/1": "not an array", "/items/0/effectiveDates/2": "not a day of the calendar", "/items/0/effectiveDates/3": "yyyyMMdd", "/items/0/effectiveDates/4": "before the year 1900", "/items/0/effectiveDates/5": "yyyyMMdd"}},
		"repeated member":   {`{"items":[{"key":"A","key":"B","effectiveDates":["20250101"]}]}`, faults{"/items/0/key": "more than once"}},
		"unknown near":      {with(`"call_back_url":{"deep":[1,2]},"Priority":1`), faults{"/call_back_url": `did you mean "callbackUrl"?`, "/Priority": `did you mean "priority"?`}},
		"unknown far":       {`{"items":[{"key":"A","effectiveDates":["20250101"],"a/b~c":1}]}`, faults{"/items/0/a~1b~0c": "known are key, effectiveDates"}},
		"unknown nameless":  {with(`"":[{}]`), faults{"": "name of 0 bytes"}},
		"output":            {with(`"output":{"format":"XML","compression":"gzip","x":0}`), faults{"/output/format": "must be one of [CSV]", "/output/compression": "must be one of [NONE GZIP ZSTD]", "/output/x": "known are format, compression"}},
		"output null":       {with(`"output":null`), faults{"/output": "must be an object, not null"}},
		"onFailure":         {with(`"onFailure":"STOP"`), faults{"/onFailure": "[FAIL_FAST CONTINUE]"}},
		"reuse":             {with(`"reuse":"true"`), faults{"/reuse": "must be a boolean, not a string"}},
		"priority high":     {with(`"priority":10`), faults{"/priority": "from 0 to 9"}},
		"priority negative": {with(`"priority":-1`), faults{"/priority": "from 0 to 9"}},
		"priority fraction": {with(`"priority":4.5`), faults{"/priority": "from 0 to 9"}},
		"priority string":   {with(`"priority":"4"`), faults{"/priority": "must be an integer, not a string"}},
		"callback relative": {with(`"callbackUrl":"//host/x"`), faults{"/callbackUrl": "absolute http or https"}},
		"callback scheme":   {with(`"callbackUrl":"javascript:alert(1)"`), faults{"/callbackUrl": "absolute http or https"}},
		"callback login":    {with(`"callbackUrl":"https://u:p@host/"`), faults{"/callbackUrl": "user name"}},
		"callback port":     {with(`"callbackUrl":"https://host:70000/"`), faults{"/callbackUrl": "port from 1 to 65535"}},
		"callback newline":  {with(`"callbackUrl":"https://host/\r\nx"`), faults{"/callbackUrl": "is not a URL"}},
		"callback long":     {with(`"callbackUrl":"https://host/` + strings.Repeat("a", 2048) + `"`), faults{"/callbackUrl": "2061 bytes"}},
		"idempotency empty": {with(`"idempotencyKey":""`), faults{"/idempotencyKey": "must not be empty"}},
		"idempotency long":  {with(`"idempotencyKey":"` + strings.Repeat("i", 256) + `"`), faults{"/idempotencyKey": "256 bytes"}},
		"idempotency tab":   {with(`"idempotencyKey":"a\tb"`), faults{"/idempotencyKey": "printable"}},
		"everything at once": {`{"items":[{"key":1,"effectiveDates":["x"]}],"output":[],"onFailure":0,"reuse":0,"priority":{},"callbackUrl":"x","idempotencyKey":[],"more":0}`,
			faults{"/items/0/key": "must be", "/items/0/effectiveDates/0": "yyyyMMdd", "/output": "must be", "/onFailure": "must be", "/reuse": "must be", "/priority": "must be", "/callbackUrl": "must be", "/idempotencyKey": "must be", "/more": "not a known"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := export.DecodeSubmission([]byte(c.body), limits)
			var invalid *export.Invalid
			if !errors.As(err, &invalid) {
				t.Fatalf("error %v", err)
			}
			if len(invalid.Faults) != len(c.want) || invalid.TooMany != 0 {
				t.Errorf("faults %v, too many %d", invalid.Faults, invalid.TooMany)
			}
			for _, f := range invalid.Faults {
				part, ok := c.want[f.Pointer]
				if !ok || !strings.Contains(f.Detail, part) {
					t.Errorf("fault %q: %q, want %q", f.Pointer, f.Detail, part)
				}
			}
		})
	}
}

func TestDecodeSubmissionCountsChunksAfterCollapsing(t *testing.T) {
	body := `{"items":[{"key":"A","effectiveDates":["20250101","20250102","20250101"]},{"key":" A","effectiveDates":["20250102"]}]}`
	if _, err := export.DecodeSubmission([]byte(body), export.Limits{MaxChunks: 2}); err != nil {
		t.Errorf("two chunks of two allowed: %v", err)
	}
	_, err := export.DecodeSubmission([]byte(body), export.Limits{MaxChunks: 1})
	var invalid *export.Invalid
	if !errors.As(err, &invalid) || invalid.TooMany != 2 || invalid.Faults[0] != (export.Fault{Pointer: "/items", Detail: "has 2 chunks; at most 1 are allowed"}) {
		t.Errorf("error %#v", err)
	}
	_, err = export.DecodeSubmission([]byte(strings.Replace(body, "{", `{"priority":10,`, 1)), export.Limits{MaxChunks: 1})
	if !errors.As(err, &invalid) || invalid.TooMany != 0 || len(invalid.Faults) != 2 {
		t.Errorf("with another fault, which makes it a bad request: %#v", err)
	}
}

func TestInvalidListsAHundredFaultsAndCountsTheRest(t *testing.T) {
	body := `{"items":[{"key":"A","effectiveDates":["x"` + strings.Repeat(`,"x"`, 149) + `]}]}`
	_, err := export.DecodeSubmission([]byte(body), limits)
	var invalid *export.Invalid
	if !errors.As(err, &invalid) || len(invalid.Faults) != export.MaxFaults || invalid.More != 50 {
		t.Fatalf("%d faults and %d more", len(invalid.Faults), invalid.More)
	}
	if !strings.HasSuffix(err.Error(), "(and 149 more)") {
		t.Errorf("error %q", err)
	}
}

func TestHashIsOfTheNormalisedRequest(t *testing.T) {
	hash := func(body string) [32]byte {
		t.Helper()
		s, err := export.DecodeSubmission([]byte(body), limits)
		if err != nil {
			t.Fatal(err)
		}
		return s.Hash()
	}
	plain := hash(`{"items":[{"key":"A","effectiveDates":["20250101","20250102"]}]}`)
	for _, same := range []string{
		`{"idempotencyKey":"x","items":[{"effectiveDates":["20250102"],"key":"A"},{"key":"A ","effectiveDates":["20250101"]}]}`,
		`{"priority":4,"reuse":true,"onFailure":"FAIL_FAST","output":{},"items":[{"key":"\u0041","effectiveDates":["20250102","20250101"]}]}`,
	} {
		if hash(same) != plain {
			t.Errorf("another hash for the same request: %s", same)
		}
	}
	for _, other := range []string{
		`{"items":[{"key":"A","effectiveDates":["20250101"]},{"key":"B","effectiveDates":["20250102"]}]}`,
		`{"priority":5,"items":[{"key":"A","effectiveDates":["20250101","20250102"]}]}`,
		`{"callbackUrl":"http://h","items":[{"key":"A","effectiveDates":["20250101","20250102"]}]}`,
	} {
		if hash(other) == plain {
			t.Errorf("the same hash for another request: %s", other)
		}
	}
}

func FuzzDecodeSubmission(f *testing.F) {
	for _, seed := range []string{
		full, `{}`, `[]`, `null`, `"x"`, `1`, ``, `{"items":[]}`, `{"items":[{}]}`, with(`"output":{"format":"CSV"}`), with(`"a/b":[{"c":[1e9]}]`),
		with(`"callbackUrl":"http://[::1]:8080/a%20b"`), with(`"idempotencyKey":"é\u0022\\"`), with(`"priority":-0`), with(`"items":{}`),
		`{"items":[{"key":"\ud83d\ude00 \ud800\"","effectiveDates":["20250101","\u0032\u0030250101"]}]}`,
		`{"items":[{"key":"<&>\"\\","effectiveDates":["99991231","19000101"]}]} `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		s, err := export.DecodeSubmission(body, limits)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			var invalid *export.Invalid
			if !errors.As(err, &invalid) || len(invalid.Faults) == 0 || len(invalid.Faults) > export.MaxFaults {
				t.Fatalf("error %#v", err)
			}
			return
		}
		checkRules(t, s)
		again, err := export.DecodeSubmission(s.Canonical(), limits)
		if err != nil {
			t.Fatalf("canonical form %s: %v", s.Canonical(), err)
		}
		again.IdempotencyKey = s.IdempotencyKey
		if diff := cmp.Diff(s, again); diff != "" || s.Hash() != again.Hash() {
			t.Fatalf("canonical form differs: %s", diff)
		}
	})
}

func checkRules(t *testing.T, s export.Submission) {
	if n := s.Total(); n < 1 || n > limits.MaxChunks || len(s.Refs("J")) != n {
		t.Errorf("total %d", n)
	}
	if !slices.IsSortedFunc(s.Items, func(a, b export.Item) int {
		if a.Key == b.Key {
			t.Errorf("key %q twice", a.Key)
		}
		return strings.Compare(a.Key, b.Key)
	}) {
		t.Errorf("items out of order: %v", s.Items)
	}
	for _, it := range s.Items {
		if err := export.CheckKey(it.Key); err != nil || strings.TrimSpace(it.Key) != it.Key {
			t.Errorf("key %q: %v", it.Key, err)
		}
		if len(it.Dates) == 0 || !slices.IsSorted(it.Dates) || len(slices.Compact(slices.Clone(it.Dates))) != len(it.Dates) {
			t.Errorf("dates %v", it.Dates)
		}
		for _, d := range it.Dates {
			if _, err := export.ParseDate(d.String()); err != nil {
				t.Error(err)
			}
		}
	}
	if s.Priority < 0 || s.Priority > 9 || len(s.CallbackURL) > 2048 || s.IdempotencyKey != "" && export.CheckIdempotencyKey(s.IdempotencyKey) != nil {
		t.Errorf("accepted %+v", s)
	}
}

func BenchmarkDecodeSubmission(b *testing.B) {
	for _, shape := range []struct{ keys, dates int }{{10, 1000}, {10_000, 1}} {
		var items []string
		for k := range shape.keys {
			day := export.Date(20000101)
			var dates []string
			for range shape.dates {
				dates = append(dates, `"`+day.String()+`"`)
				day = day.AddDays(1)
			}
			items = append(items, fmt.Sprintf(`{"key":"KEY-%d","effectiveDates":[%s]}`, k*7919%shape.keys, strings.Join(dates, ",")))
		}
		body := []byte(`{"items":[` + strings.Join(items, ",") + `]}`)
		b.Run(fmt.Sprintf("%dx%d", shape.keys, shape.dates), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				s, err := export.DecodeSubmission(body, export.Limits{MaxChunks: 10_000})
				if err != nil || s.Total() != 10_000 {
					b.Fatal(s.Total(), err)
				}
				s.Hash()
			}
		})
	}
}
