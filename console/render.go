package console

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates by name; each defines "content", and "part-…" for what is refreshed by itself.
type pages map[string]*template.Template

func parsePages() pages {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html"))
	p := pages{}
	names, _ := fs.Glob(templateFiles, "templates/*.html")
	for _, name := range names {
		if base := strings.TrimSuffix(path.Base(name), ".html"); base != "layout" && base != "parts" {
			p[base] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, name))
		}
	}
	return p
}

// view is what a page is made of.
type view struct {
	Title string
	Nav   string // the entry of the menu that it belongs to
	Told  string // what was just done
	Data  any

	Visitor visitorView
	Version string
}

type visitorView struct {
	Known, Open, Operator bool
	Tenant                string
}

// part is the part of the page that was asked for; empty is all of it.
func (v *visit) part() string { return v.r.URL.Query().Get("part") }

// wants says whether a part is to be shown.
func (v *visit) wants(part string) bool { return v.part() == "" || v.part() == part }

func (v *visit) render(status int, page string, data view) error {
	data.Visitor = visitorView{Known: v.known, Open: v.open, Operator: v.operator, Tenant: v.tenant}
	data.Version = v.Version
	t, name := v.pages[page], "layout"
	if part := "part-" + v.part(); t.Lookup(part) != nil && status == http.StatusOK {
		name = part
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, data); err != nil {
		return fmt.Errorf("render %s: %w", page, err)
	}
	return v.send(status, "text/html; charset=utf-8", out.Bytes())
}

// worthZipping is the size from which an answer is compressed: a grid of 10 000 chunks shrinks to a twentieth.
const worthZipping = 8 << 10

func (v *visit) send(status int, media string, body []byte) error {
	h := v.w.Header()
	h.Set("Content-Type", media)
	h.Add("Vary", "Accept-Encoding, HX-Request")
	if len(body) >= worthZipping && strings.Contains(v.r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		v.w.WriteHeader(status)
		z, _ := gzip.NewWriterLevel(v.w, gzip.BestSpeed) // the level is a valid one
		_, _ = z.Write(body)                             // the visitor left: nobody is to be told
		_ = z.Close()
		return nil
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(body)
	return nil
}
