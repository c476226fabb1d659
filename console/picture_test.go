package console

import (
	"fmt"
	"strings"
	"testing"

	"exportd/export"
)

func cellsOf(keys, dates, step int) (cells []export.Cell) {
	for k := range keys {
		for d := range dates {
			cells = append(cells, export.Cell{Key: fmt.Sprintf("K%05d", k), Date: export.Date(20000101).AddDays(d * step), Status: export.Done})
		}
	}
	return cells
}

func TestTheGridHasAsManyRowsAsCanBeLookedAt(t *testing.T) {
	for _, c := range []struct {
		keys, dates, step int
		by                string
		rows              int
	}{
		{1, 1, 1, "key", 1}, {1, 10_000, 1, "key", 1}, {60, 5, 1, "key", 60}, {61, 5, 1, "date", 5}, {5000, 2, 1, "date", 2}, {100, 100, 1, "month", 4},
		{61, 100, 30, "year", 9},
	} {
		cells := cellsOf(c.keys, c.dates, c.step)
		g := gridOf("J20260102_000001", cells)
		drawn := 0
		for _, r := range g.Rows {
			drawn += strings.Count(string(r.Cells), "<a ")
		}
		if g.By != c.by || len(g.Rows) != c.rows || drawn != len(cells) {
			t.Errorf("%d keys, %d dates: %d rows by %s, %d cells", c.keys, c.dates, len(g.Rows), g.By, drawn)
		}
	}
}

func TestAKeyInTheGridIsNeitherMarkupNorAnotherAddress(t *testing.T) {
	g := gridOf("J20260102_000001", []export.Cell{{Key: `a"><script>/../%2f'`, Date: 20250215, Status: export.DeadLetter}})
	got := string(g.Rows[0].Cells)
	want := `<a class=c-dlq tabindex=-1 href="J20260102_000001/chunks/key=a%22%3E%3Cscript%3E%2F..%2F%252f%27:date=20250215" title="a&#34;&gt;&lt;script&gt;/../%2f&#39; 2025-02-15 dead letter"></a>`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestErrorsOfOneCauseAreGroupedWhateverTheyNameInPassing(t *testing.T) {
	failed := func(key string, day export.Date, code, text string, status export.ChunkStatus) export.FailedChunk {
		return export.FailedChunk{Ref: export.Ref{JobID: "J" + key, Key: key, Date: day}, ErrorCode: code, Error: text, Status: status}
	}
	causes := causesOf([]export.FailedChunk{
		failed("ABC", 20250101, "SQL_P0001", `row 6 of ABC at 2025-01-01 is "cursed" (SQLSTATE P0001)`, export.DeadLetter),
		failed("XYZ", 20250102, "SQL_P0001", `row 17 of XYZ at 2025-01-02 is "blessed" (SQLSTATE P0001)`, export.RetryWait),
		failed("XYZ", 20250103, "SQL_P0001", `row 17 of XYZ at 2025-01-03 is "blessed" (SQLSTATE P0002)`, export.DeadLetter),
		failed("XYZ", 20250104, "S3_503", `row 17 of XYZ at 2025-01-03 is "blessed" (SQLSTATE P0001)`, export.DeadLetter),
		failed("A", 20250104, "", "", export.DeadLetter),
	})
	if len(causes) != 4 {
		t.Fatalf("got %d causes: %+v", len(causes), causes)
	}
	if c := causes[0]; c.Count() != 2 || c.Dead != 1 || c.Tried != 1 || c.Jobs != 2 || c.Text != "row … of … at … is … (SQLSTATE P0001)" || c.Sample.Key != "ABC" {
		t.Errorf("got %+v", c)
	}
	ids := map[string]bool{}
	for _, c := range causes {
		ids[c.ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("causes share names: %v", ids)
	}
}

func TestNumbersSizesAndTimesAreShortAndClear(t *testing.T) {
	seven := int64(1234567)
	for got, want := range map[string]string{
		number(0): "0", number(999): "999", number(1000): "1\u202f000", number(&seven): "1\u202f234\u202f567", number(-1234): "-1\u202f234",
		size(0): "0\u00a0B", size(999): "999\u00a0B", size(1000): "1.0\u00a0kB", size(999_600): "1.0\u00a0MB", size(205_387): "205\u00a0kB", size(1 << 62): "4612\u00a0PB",
		day("20250215"): "2025-02-15", plural(1, "job", "jobs"): "1\u00a0job", plural(2000, "job", "jobs"): "2\u202f000\u00a0jobs", stamp(nil): "–", duration(90e9): "90\u00a0s", duration(5400e9): "90\u00a0min",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
