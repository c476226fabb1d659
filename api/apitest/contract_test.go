package apitest

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

const small = `{
  "openapi": "3.1.0",
  "paths": {
    "/things/{id}": {"get": {"operationId": "getThing", "security": [{}],
      "parameters": [{"name": "id", "in": "path", "schema": {"examples": ["a/b"]}}],
      "responses": {
        "200": {"headers": {"ETag": {}}, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
        "304": {"description": "nothing new"},
        "404": {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}}}}
  },
  "components": {"schemas": {
    "Thing": {"type": "object", "additionalProperties": true, "required": ["at"], "properties": {"at": {"type": "string", "format": "date-time"}}},
    "Problem": {"type": "object", "additionalProperties": true, "properties": {"type": {"type": "string"}}}}}
}`

func TestCheckFindsEachDeviation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, path string
		status       int
		header       []string // pairs
		body         string
		want         string // nothing: as documented
	}{
		"as documented":         {"GET", "/things/a%2Fb?x=1", 200, nil, `{"at":"2026-01-02T10:00:00Z"}`, ""},
		"not modified":          {"GET", "/things/1", 304, nil, "", ""},
		"head":                  {"HEAD", "/things/1", 200, nil, "", ""},
		"stray problem":         {"GET", "/nothing", 404, []string{"Content-Type", "application/problem+json"}, `{"type":"x"}`, ""},
		"options":               {"OPTIONS", "/things/1", 204, nil, "", ""},
		"status":                {"GET", "/things/1", 202, nil, `{}`, "no such status"},
		"undocumented call":     {"POST", "/things/1", 200, nil, `{}`, "the call is not documented"},
		"deeper path":           {"GET", "/things/1/2", 200, nil, `{}`, "the call is not documented"},
		"header":                {"GET", "/things/1", 200, []string{"Retry-After", "1"}, `{"at":"2026-01-02T10:00:00Z"}`, "header Retry-After"},
		"missing field":         {"GET", "/things/1", 200, nil, `{}`, "missing property"},
		"field of another type": {"GET", "/things/1", 200, nil, `{"at":1}`, "want string"},
		"format":                {"GET", "/things/1", 200, nil, `{"at":"yesterday"}`, "date-time"},
		"undocumented field":    {"GET", "/things/1", 200, nil, `{"at":"2026-01-02T10:00:00Z","b":1}`, "additional properties"},
		"two values":            {"GET", "/things/1", 200, nil, `{"at":"2026-01-02T10:00:00Z"}{}`, "after top-level value"},
		"content type":          {"GET", "/things/1", 200, []string{"Content-Type", "text/html"}, `{}`, "content type text/html"},
		"body of a 304":         {"GET", "/things/1", 304, nil, "x", "there is a body"},
		"stray page":            {"GET", "/nothing", 404, []string{"Content-Type", "text/html"}, "x", "content type"},
		"no request id":         {"GET", "/things/1", 304, []string{"X-Request-Id", ""}, "", "X-Request-Id"},
	} {
		contract, err := Parse([]byte(small))
		if err != nil {
			t.Fatal(err)
		}
		answer := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}}}
		for i := 0; i < len(c.header); i += 2 {
			answer.Header.Set(c.header[i], c.header[i+1])
		}
		err = contract.Check(c.method, c.path, answer, []byte(c.body))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestUnseenListsWhatNoAnswerWas(t *testing.T) {
	t.Parallel()
	contract, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if err := contract.Check("GET", "/things/1", &http.Response{StatusCode: 304, Header: http.Header{"X-Request-Id": {"r"}}}, nil); err != nil {
		t.Error(err)
	}
	if got := contract.Unseen(); !slices.Equal(got, []string{"getThing 200", "getThing 404"}) {
		t.Errorf("got %v", got)
	}
	if op := contract.Operations[0]; op.Target() != "/things/a%2Fb" || !op.Open {
		t.Errorf("got %+v", op)
	}
}
