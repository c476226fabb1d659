package api

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const jsonMedia = "application/json"

func humaConfig(version string) huma.Config {
	c := huma.DefaultConfig("exportd", version)
	c.Info.Description = "Exports of (key, effective date) chunks as CSV files in a bucket. Errors are problems by RFC 9457: their type is stable, and errors " +
		"names each bad field by JSON pointer. Every answer carries X-Request-Id. Answers may gain fields."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		return strings.TrimSuffix(strings.TrimSuffix(name, "View"), "Body")
	})
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	c.Security = []map[string][]string{{"token": {}}}
	c.Servers = []*huma.Server{{URL: "/"}}
	c.Tags = []*huma.Tag{
		{Name: "jobs", Description: "Submit jobs, look at them, give them orders."},
		{Name: "chunks", Description: "The parts of a job: one key on one effective date each."},
		{Name: "files", Description: "What came out."},
		{Name: "operators", Description: "The system behind it."},
		{Name: callbackTag, Description: "Calls that this server makes."},
		{Name: "service", Description: "The process itself. These calls need no token."},
	}
	return c
}

// schemaOf documents a type that huma does not come across by itself.
func schemaOf[T any](spec *huma.OpenAPI) *huma.Schema {
	return spec.Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

func content(media string, schema *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{media: {Schema: schema}}
}

type responseDocs map[string]*huma.Response

// responses documents answers: pairs of status and description.
func responses(pairs ...any) responseDocs {
	docs := responseDocs{}
	for i := 0; i < len(pairs); i += 2 {
		docs[strconv.Itoa(pairs[i].(int))] = &huma.Response{Description: pairs[i+1].(string)}
	}
	return docs
}

// problems documents errors: the given ones and those that any call may end with.
func (docs responseDocs) problems(kinds ...kind) map[string]*huma.Response {
	for _, k := range append(kinds, kindUnauthorized, kindForbidden, kindTooMany, kindInternal) {
		doc := problemDoc(k)
		if other := docs[strconv.Itoa(k.status)]; other != nil {
			doc.Description = other.Description + "; or: " + doc.Description
		}
		docs[strconv.Itoa(k.status)] = doc
	}
	return docs
}

func problemDoc(k kind) *huma.Response {
	doc := &huma.Response{
		Description: k.title,
		Content:     map[string]*huma.MediaType{problemMedia: {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}},
	}
	switch k {
	case kindTooMany, kindUnavailable:
		doc.Headers = headers("Retry-After", &huma.Schema{Type: huma.TypeInteger, Description: "Seconds to wait before the next try."})
	case kindUnauthorized:
		doc.Headers = headers("WWW-Authenticate", &huma.Schema{Type: huma.TypeString})
	}
	return doc
}

func headers(name string, schema *huma.Schema) map[string]*huma.Param {
	return map[string]*huma.Param{name: {Schema: schema}}
}

// submissionBody documents what export.DecodeSubmission reads; a test keeps the two together.
type submissionBody struct {
	Items          []itemBody  `json:"items" minItems:"1" nullable:"false"`
	Output         *outputBody `json:"output,omitempty"`
	OnFailure      string      `json:"onFailure,omitempty" enum:"FAIL_FAST,CONTINUE" default:"FAIL_FAST" doc:"FAIL_FAST: the first dead-lettered chunk ends the job. CONTINUE: every chunk is tried."`
	Reuse          bool        `json:"reuse,omitempty" default:"true" doc:"Take files that are there already, where the rules allow it."`
	Priority       int         `json:"priority,omitempty" minimum:"0" maximum:"9" default:"4"`
	CallbackURL    string      `json:"callbackUrl,omitempty" format:"uri" maxLength:"2048" doc:"Told of the end of the job: see the callback jobEnded. https, and a public address, unless the server allows others."`
	IdempotencyKey string      `json:"idempotencyKey,omitempty" minLength:"1" maxLength:"255" doc:"As the header Idempotency-Key."`
}

type itemBody struct {
	Key            string   `json:"key" minLength:"1" maxLength:"128" example:"ABC"`
	EffectiveDates []string `json:"effectiveDates" minItems:"1" nullable:"false" doc:"yyyyMMdd; repeated dates of a key make one chunk."`
}

type outputBody struct {
	Format      string `json:"format,omitempty" enum:"CSV" default:"CSV"`
	Compression string `json:"compression,omitempty" enum:"NONE,GZIP,ZSTD" default:"NONE"`
}

const submissionExample = `{
  "items": [
    { "key": "ABC", "effectiveDates": ["20250215", "20250315"] },
    { "key": "XYZ", "effectiveDates": ["20250215"] }
  ],
  "output": { "format": "CSV", "compression": "NONE" },
  "onFailure": "FAIL_FAST",
  "reuse": true,
  "priority": 4,
  "callbackUrl": "https://client.example/exports",
  "idempotencyKey": "req-550e8400"
}`

func submissionDoc(h huma.API) *huma.RequestBody {
	return jsonBody(schemaOf[submissionBody](h.OpenAPI()), submissionExample)
}

// jsonBody documents a body that huma does not read.
func jsonBody(schema *huma.Schema, example string) *huma.RequestBody {
	return &huma.RequestBody{
		Required: true, Content: map[string]*huma.MediaType{jsonMedia: {Schema: schema, Example: json.RawMessage(example)}},
	}
}

// pathParam documents a value in the path of a route that huma does not serve.
func pathParam(name, example string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{example}}}
}
