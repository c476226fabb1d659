package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

const (
	documentPath = "/openapi.json"
	docsPath     = "/docs"
	htmlMedia    = "text/html; charset=utf-8"
)

//go:embed docs.html
var docsPage string

//go:embed docs.css
var docsStyle string

// registerDocs serves the document and a page made of it, as they stand after the last operation.
func (a *API) registerDocs(spec *huma.OpenAPI) {
	documentService(spec)
	document, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("encode openapi: %v", err))
	}
	page, err := renderDocs(spec)
	if err != nil {
		panic(fmt.Sprintf("render docs: %v", err)) // a mistake in docs.html: every test would meet it
	}
	a.engine.GET(documentPath, func(c *gin.Context) { c.Data(http.StatusOK, "application/json; charset=utf-8", document) })
	style := sha256.Sum256([]byte(docsStyle))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	a.engine.GET(docsPath, func(c *gin.Context) {
		c.Header("Content-Security-Policy", policy)
		c.Data(http.StatusOK, htmlMedia, page)
	})
}

// documentService adds what is served beside the operations, and needs no token.
func documentService(spec *huma.OpenAPI) {
	ready := schemaOf[readyAnswer](spec)
	text := &huma.Schema{Type: huma.TypeString}
	object := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	for _, s := range []struct {
		path, id, summary, description, media string
		schema                                *huma.Schema
	}{
		{healthPath, "getHealth", "Does the process live", "Asks no dependency.", jsonMedia, object},
		{readyPath, "getReadiness", "Can it work", "Names each dependency. 503 when one is down, and once the process is stopping.", jsonMedia, ready},
		{metricsPath, "getMetrics", "Prometheus metrics", "In the text format, or in the one that Accept asks for.", "text/plain", text},
		{documentPath, "getDocument", "This document", "OpenAPI 3.1.", jsonMedia, object},
		{docsPath, "getDocs", "This document as a page", "One page without scripts.", "text/html", text},
	} {
		docs := responses(http.StatusOK, "OK")
		docs["200"].Content = content(s.media, s.schema)
		docs["403"] = problemDoc(kindForbidden)
		if s.path == readyPath {
			docs["503"] = &huma.Response{Description: "Not ready", Content: content(jsonMedia, ready)}
		}
		spec.AddOperation(&huma.Operation{
			OperationID: s.id, Method: http.MethodGet, Path: s.path, Summary: s.summary, Description: s.description, Tags: []string{"service"},
			Security: []map[string][]string{{}}, Responses: docs,
		})
	}
}

// docsGroup is the operations of a tag.
type docsGroup struct {
	*huma.Tag
	Operations []*huma.Operation
}

type docsData struct {
	*huma.OpenAPI
	Groups  []docsGroup
	Schemas map[string]*huma.Schema
	Kinds   []kind
}

func renderDocs(spec *huma.OpenAPI) ([]byte, error) {
	data := docsData{OpenAPI: spec, Schemas: spec.Components.Schemas.Map(), Kinds: kinds}
	for _, tag := range spec.Tags {
		group := docsGroup{Tag: tag}
		for _, path := range slices.Sorted(maps.Keys(spec.Paths)) {
			item := spec.Paths[path]
			for _, op := range []*huma.Operation{item.Post, item.Get} {
				if op != nil && slices.Contains(op.Tags, tag.Name) {
					group.Operations = append(group.Operations, op)
				}
			}
		}
		if tag.Name == callbackTag {
			group.Operations = append(group.Operations, spec.Paths["/jobs"].Post.Callbacks["jobEnded"][callbackPath].Post)
		}
		data.Groups = append(data.Groups, group)
	}
	page, err := template.New("docs").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(docsStyle) },
		"name":   func(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] },
		"type":   typeInWords,
		"rules":  rulesInWords,
		"pretty": pretty,
		"has":    func(list []string, s string) bool { return slices.Contains(list, s) },
		"kind": func(k kind) map[string]any {
			return map[string]any{"Type": k.problemType(), "Status": k.status, "Title": k.title}
		},
	}).Parse(docsPage)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, data)
	return out.Bytes(), err
}

// typeInWords says what a value is, but for a reference to another schema.
func typeInWords(s *huma.Schema) string {
	words := s.Type
	if s.Format != "" && s.Format != "int64" {
		words = s.Format
	}
	if s.Nullable {
		words += " or null"
	}
	return words
}

// rulesInWords says what else is true of a value.
func rulesInWords(s *huma.Schema) string {
	var rules []string
	add := func(format string, args ...any) { rules = append(rules, fmt.Sprintf(format, args...)) }
	if len(s.Enum) > 0 {
		add("one of %s", strings.Trim(fmt.Sprint(s.Enum), "[]"))
	}
	if s.Minimum != nil {
		add("from %g", *s.Minimum)
	}
	if s.Maximum != nil {
		add("to %g", *s.Maximum)
	}
	if s.MaxLength != nil {
		add("at most %d characters", *s.MaxLength)
	}
	if s.MinItems != nil {
		add("at least %d", *s.MinItems)
	}
	if s.Default != nil {
		add("default %v", s.Default)
	}
	if len(s.Examples) > 0 {
		add("e.g. %v", s.Examples[0])
	}
	return strings.Join(rules, ", ")
}

func pretty(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	return string(b), err
}
