// Package apitest holds answers of an exportd API against the OpenAPI document that it serves, and counts which of the documented ones were seen.
package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Contract is an OpenAPI document. Its methods may be called side by side.
type Contract struct {
	Operations []*Operation
	schemas    *jsonschema.Compiler

	mu   sync.Mutex // the compiler's, and that of what was seen
	seen map[string]bool
}

// Operation is a documented call.
type Operation struct {
	ID         string `json:"operationId"`
	Method     string
	Path       string // a template: /jobs/{jobId}
	Parameters []Parameter
	Body       map[string]any  // schema of the JSON that it takes; nil for none
	Example    json.RawMessage // of such JSON
	Open       bool            // needs no token
	responses  map[string]response
	pointer    string // to the operation within the document
	path       *regexp.Regexp
}

// Parameter is a documented value outside of the body.
type Parameter struct {
	Name, In string
	Schema   map[string]any
}

// Target is the path with the examples of its parameters.
func (op *Operation) Target() string {
	values := map[string]string{}
	for _, p := range op.Parameters {
		if p.In == "path" {
			values[p.Name] = p.Example()
		}
	}
	return op.At(values)
}

// At is the path with the values of its parameters, those of other paths being left out.
func (op *Operation) At(values map[string]string) string {
	target := op.Path
	for name, value := range values {
		target = strings.ReplaceAll(target, "{"+name+"}", url.PathEscape(value))
	}
	return target
}

// Example is a value that fits.
func (p Parameter) Example() string {
	if examples, _ := p.Schema["examples"].([]any); len(examples) > 0 {
		return fmt.Sprint(examples[0])
	}
	if enum, _ := p.Schema["enum"].([]any); len(enum) > 0 {
		return fmt.Sprint(enum[0])
	}
	return "1"
}

type response struct {
	Headers map[string]any
	Content map[string]struct{ Schema map[string]any }
}

const document = "openapi.json"

// Parse reads a document.
func Parse(text []byte) (*Contract, error) {
	var doc struct {
		Paths map[string]map[string]struct {
			Operation
			RequestBody struct {
				Content map[string]struct {
					Schema  map[string]any
					Example json.RawMessage
				}
			}
			Security  []any
			Responses map[string]response
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	closeSchemas(plain)
	c := &Contract{schemas: jsonschema.NewCompiler(), seen: map[string]bool{}}
	c.schemas.DefaultDraft(jsonschema.Draft2020)
	c.schemas.AssertFormat()
	if err := c.schemas.AddResource(document, plain); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			it := doc.Paths[path][method]
			op := it.Operation
			op.Method, op.Path, op.responses = strings.ToUpper(method), path, it.Responses
			op.pointer = "#/paths/" + escape(path) + "/" + method
			op.path = regexp.MustCompile("^" + regexp.MustCompile(`\\{\w+\\}`).ReplaceAllString(regexp.QuoteMeta(path), "[^/]*") + "$")
			op.Body, op.Example = it.RequestBody.Content["application/json"].Schema, it.RequestBody.Content["application/json"].Example
			op.Open = it.Security != nil
			if ref, ok := op.Body["$ref"].(string); ok {
				op.Body = doc.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]]
			}
			c.Operations = append(c.Operations, &op)
		}
	}
	return c, nil
}

// closeSchemas forbids further fields where clients are told to expect them: what is served is to be documented.
func closeSchemas(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, object := v["properties"]; object && v["additionalProperties"] == true {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			closeSchemas(inner)
		}
	case []any:
		for _, inner := range v {
			closeSchemas(inner)
		}
	}
}

// escape is for one step of a JSON pointer in a fragment.
func escape(s string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(s))
}

// ours are headers that a client may act on.
var ours = []string{"Location", "Retry-After", "Etag", "Www-Authenticate", "Idempotency-Replayed", "Preference-Applied"}

// Check says in what way the answer to a request is not as documented. What is of no documented call must be a problem, and a HEAD is a GET without body.
func (c *Contract) Check(method, escapedPath string, answer *http.Response, body []byte) error {
	head := method == http.MethodHead
	if head {
		method = http.MethodGet
	}
	if err := c.check(method, escapedPath, answer, body, head); err != nil {
		return fmt.Errorf("%s %s: %d is not as documented: %w", method, escapedPath, answer.StatusCode, err)
	}
	return nil
}

// CheckEvent says in what way what a callback URL was told is not as documented.
func (c *Contract) CheckEvent(body []byte) error {
	return c.validate("#/paths/~1jobs/post/callbacks/jobEnded/"+escape("{$request.body#/callbackUrl}")+"/post/requestBody/content/"+escape("application/json")+"/schema", body)
}

func (c *Contract) check(method, escapedPath string, answer *http.Response, body []byte, head bool) error {
	if answer.Header.Get("X-Request-Id") == "" {
		return errors.New("no X-Request-Id")
	}
	op := c.find(method, escapedPath)
	if op == nil {
		return c.checkStray(method, answer, body, head)
	}
	status := strconv.Itoa(answer.StatusCode)
	documented, ok := op.responses[status]
	if !ok {
		return errors.New("no such status")
	}
	c.mu.Lock()
	c.seen[op.ID+" "+status] = true
	c.mu.Unlock()
	for _, name := range ours {
		if answer.Header.Get(name) != "" && !hasHeader(documented.Headers, name) {
			return fmt.Errorf("header %s", name)
		}
	}
	if len(documented.Content) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("there is a body: %.200s", body)
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("content type %q: %w", answer.Header.Get("Content-Type"), err)
	}
	if _, ok := documented.Content[media]; !ok {
		return fmt.Errorf("content type %s", media)
	}
	if head || !strings.HasSuffix(media, "json") {
		return nil
	}
	return c.validate(op.pointer+"/responses/"+status+"/content/"+escape(media)+"/schema", body)
}

func hasHeader(documented map[string]any, name string) bool {
	for d := range documented {
		if strings.EqualFold(d, name) {
			return true
		}
	}
	return false
}

func (c *Contract) find(method, escapedPath string) *Operation {
	path, _, _ := strings.Cut(escapedPath, "?")
	for _, op := range c.Operations {
		if op.Method == method && op.path.MatchString(path) {
			return op
		}
	}
	return nil
}

// checkStray checks an answer to what is no documented call.
func (c *Contract) checkStray(method string, answer *http.Response, body []byte, head bool) error {
	switch answer.StatusCode {
	case http.StatusNoContent:
		if method == http.MethodOptions && len(body) == 0 {
			return nil
		}
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		if media := answer.Header.Get("Content-Type"); media != "application/problem+json" {
			return fmt.Errorf("content type %q", media)
		}
		if head {
			return nil
		}
		return c.CheckSchema("Problem", body)
	}
	return errors.New("the call is not documented")
}

// CheckSchema validates JSON against a schema of the document's components.
func (c *Contract) CheckSchema(name string, body []byte) error {
	return c.validate("#/components/schemas/"+name, body)
}

func (c *Contract) validate(pointer string, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %.500s", err, body)
	}
	c.mu.Lock()
	schema, err := c.schemas.Compile(document + pointer)
	c.mu.Unlock()
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		return fmt.Errorf("%w in %.1000s", err, body)
	}
	return nil
}

// Unseen lists the documented answers that Check has not come across: operation and status.
func (c *Contract) Unseen() (unseen []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range c.Operations {
		for status := range op.responses {
			if name := op.ID + " " + status; !c.seen[name] {
				unseen = append(unseen, name)
			}
		}
	}
	slices.Sort(unseen)
	return unseen
}

// Fetch reads the document of an API.
func Fetch(client *http.Client, base string) (*Contract, error) {
	resp, err := client.Get(base + "/openapi.json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return Parse(text)
}
