package console

import (
	"cmp"
	"html"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"exportd/export"
)

// grid is the picture of a job: a cell for each chunk, in rows by key or by date.
type grid struct {
	By    string // what a row is: "key", "date", "month" or "year"
	Note  string // what is true of all rows
	Dense bool   // many cells: they are drawn small
	Rows  []gridRow
	Count int
}

type gridRow struct {
	Label, Note string
	Cells       template.HTML
}

// mostRows is up to how many rows a picture is one that can be looked at.
const mostRows = 60

// gridOf puts the chunks of a key in a row, by date. With more keys than rows can be looked at, those of a date are, or of a month or a year.
func gridOf(jobID string, cells []export.Cell) grid {
	by := []struct {
		name string
		of   func(export.Cell) string
	}{
		{"key", func(c export.Cell) string { return c.Key }},
		{"date", func(c export.Cell) string { return day(digits(c.Date)) }},
		{"month", func(c export.Cell) string { return day(digits(c.Date))[:7] }},
		{"year", func(c export.Cell) string { return digits(c.Date)[:4] }},
	}
	g := grid{Count: len(cells), Dense: len(cells) > 600}
	rows := map[string][]export.Cell{}
	for _, way := range by {
		clear(rows)
		for _, c := range cells {
			row := way.of(c)
			rows[row] = append(rows[row], c)
		}
		if g.By = way.name; len(rows) <= mostRows {
			break
		}
	}
	labels := make([]string, 0, len(rows))
	for label := range rows {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	alike := true
	for _, label := range labels {
		g.Rows = append(g.Rows, g.row(jobID, label, rows[label]))
		alike = alike && g.Rows[0].Note == g.Rows[len(g.Rows)-1].Note
	}
	if alike && len(g.Rows) > 0 { // said once
		if g.Note = g.Rows[0].Note; len(g.Rows) > 1 {
			g.Note += " each"
		}
		for i := range g.Rows {
			g.Rows[i].Note = ""
		}
	}
	return g
}

func (g grid) row(jobID, label string, cells []export.Cell) gridRow {
	slices.SortFunc(cells, func(a, b export.Cell) int { return cmp.Or(cmp.Compare(a.Date, b.Date), strings.Compare(a.Key, b.Key)) })
	r := gridRow{Label: label, Note: plural(len(cells), "chunk", "chunks")}
	if g.By == "key" && len(cells) > 1 {
		r.Note += ", " + cells[0].Date.ISO() + " to " + cells[len(cells)-1].Date.ISO()
	}
	// By hand: 10 000 cells through the template engine take longer than the whole page may.
	var b strings.Builder
	b.Grow(len(cells) * 120)
	key, inAddress, inTitle := "", "", ""
	for i, c := range cells {
		if i == 0 || c.Key != key {
			ref := export.Ref{Key: c.Key}
			key, inTitle = c.Key, html.EscapeString(c.Key)
			inAddress = html.EscapeString(jobID + "/chunks/" + url.PathEscape(strings.TrimSuffix(ref.ChunkKey(), ref.Date.String())))
		}
		date := digits(c.Date)
		for _, part := range [...]string{"<a class=c-", classes[c.Status], ` tabindex=-1 href="`, inAddress, date, `" title="`, inTitle, " ", day(date), " ", statusWords(string(c.Status)), `"></a>`} {
			b.WriteString(part)
		}
	}
	r.Cells = template.HTML(b.String())
	return r
}

// digits are those of a date, of which every year has four. Date.String takes five times as long, for each of 10 000 cells.
func digits(d export.Date) string { return strconv.Itoa(int(d)) }

// classes of the cells in the style sheet.
var classes = map[export.ChunkStatus]string{
	export.Pending: "pending", export.Running: "running", export.RetryWait: "retry_wait", export.Done: "done", export.DeadLetter: "dlq", export.ChunkCancelled: "cancelled",
}
