package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

func humaConfig(version string) huma.Config {
	c := huma.DefaultConfig("exportd", version)
	c.Info.Description = "Exports of (key, effective date) chunks as CSV files in a bucket."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		return strings.TrimSuffix(strings.TrimSuffix(name, "View"), "Body")
	})
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	c.Security = []map[string][]string{{"token": {}}}
	return c
}

// serveOpenAPI takes the document as it stands, after the last operation.
func (a *API) serveOpenAPI(spec *huma.OpenAPI) {
	body, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("encode openapi: %v", err))
	}
	a.engine.GET("/openapi.json", func(c *gin.Context) { c.Data(http.StatusOK, "application/json; charset=utf-8", body) })
}

// documentProbes adds what is served beside the operations, and needs no token.
func documentProbes(spec *huma.OpenAPI) {
	for _, p := range []struct{ path, id, summary, media string }{
		{healthPath, "getHealth", "Is the process alive (asks no dependency)", "application/json"},
		{readyPath, "getReadiness", "Can it work: each dependency by name; 503 when one is down", "application/json"},
		{metricsPath, "getMetrics", "Prometheus metrics", "text/plain"},
	} {
		spec.AddOperation(&huma.Operation{
			OperationID: p.id, Method: http.MethodGet, Path: p.path, Summary: p.summary, Tags: []string{"probes"}, Security: []map[string][]string{{}},
			Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{p.media: {}}}},
		})
	}
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

func (docs responseDocs) problems(kinds ...kind) map[string]*huma.Response {
	for _, k := range append(kinds, kindInternal) {
		docs[strconv.Itoa(k.status)] = &huma.Response{
			Description: k.title,
			Content:     map[string]*huma.MediaType{problemMedia: {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}},
		}
	}
	return docs
}

// submissionBody documents what export.DecodeSubmission reads; a test keeps the two together.
type submissionBody struct {
	Items          []itemBody  `json:"items" minItems:"1" nullable:"false"`
	Output         *outputBody `json:"output,omitempty"`
	OnFailure      string      `json:"onFailure,omitempty" enum:"FAIL_FAST,CONTINUE" default:"FAIL_FAST" doc:"FAIL_FAST: the first dead-lettered chunk ends the job. CONTINUE: every chunk is tried."`
	Reuse          bool        `json:"reuse,omitempty" default:"true" doc:"Take files that are there already, where the rules allow it."`
	Priority       int         `json:"priority,omitempty" minimum:"0" maximum:"9" default:"4"`
	CallbackURL    string      `json:"callbackUrl,omitempty" format:"uri" maxLength:"2048" doc:"To be called when the job has ended. Stored; calls are not made yet."`
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
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[submissionBody](), true, "Submission")
	return &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{"application/json": {Schema: schema, Example: json.RawMessage(submissionExample)}},
	}
}

// pathParam documents a value in the path of a route that huma does not serve.
func pathParam(name, example string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}, Example: example}
}
