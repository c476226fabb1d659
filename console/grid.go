package console

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"exportd/export"
)

// grid is the picture of a job: a cell for each chunk, in rows by key or by date.
type grid struct {
	By    string // what a row is: "key", "date", "month" or "year"
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
		{"date", func(c export.Cell) string { return c.Date.ISO() }},
		{"month", func(c export.Cell) string { return c.Date.ISO()[:7] }},
		{"year", func(c export.Cell) string { return c.Date.ISO()[:4] }},
	}
	g := grid{Count: len(cells), Dense: len(cells) > 600}
	rows := map[string][]export.Cell{}
	for _, way := range by {
		clear(rows)
		for _, c := range cells {
			rows[way.of(c)] = append(rows[way.of(c)], c)
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
	for _, label := range labels {
		g.Rows = append(g.Rows, g.row(jobID, label, rows[label]))
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
	b.Grow(len(cells) * 96)
	for _, c := range cells {
		ref := export.Ref{JobID: jobID, Key: c.Key, Date: c.Date}
		fmt.Fprintf(&b, `<a class=c-%s tabindex=-1 href="%s/chunks/%s" title="%s"></a>`, strings.ToLower(string(c.Status)), url.PathEscape(jobID),
			html.EscapeString(url.PathEscape(ref.ChunkKey())), html.EscapeString(c.Key+" "+c.Date.ISO()+" "+statusWords(string(c.Status))))
	}
	r.Cells = template.HTML(b.String())
	return r
}
