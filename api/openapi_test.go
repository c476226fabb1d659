package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOpenAPIDocumentsWhatIsServed(t *testing.T) {
	t.Parallel()
	w := setup(t, nil)
	spec := w.do("GET", "/openapi.json", "").json(t)
	dig := func(path ...string) any {
		var v any = spec
		for _, p := range path {
			m, ok := v.(map[string]any)
			if !ok || m[p] == nil {
				t.Fatalf("no %q of %v", p, path)
			}
			v = m[p]
		}
		return v
	}
	if v := dig("openapi").(string); !strings.HasPrefix(v, "3.1") {
		t.Errorf("version %s", v)
	}
	example, err := json.Marshal(dig("paths", "/jobs", "post", "requestBody", "content", "application/json", "example"))
	if err != nil {
		t.Fatal(err)
	}
	if a := w.do("POST", "/jobs", string(example)); a.StatusCode != 202 {
		t.Errorf("the example: %d %s", a.StatusCode, a.body)
	}
	keys := func(v any) []string {
		var names []string
		for name := range v.(map[string]any) {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	var sample map[string]any
	if err := json.Unmarshal(example, &sample); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keys(dig("components", "schemas", "Submission", "properties")), keys(sample)); diff != "" {
		t.Errorf("the example shows every field: %s", diff)
	}
	job := w.do("GET", "/jobs/J20260102_000001", "").json(t)
	if diff := cmp.Diff(keys(dig("components", "schemas", "Job", "properties")), keys(job)); diff != "" {
		t.Error(diff)
	}
	dig("components", "schemas", "Problem", "properties", "requestId")
	dig("paths", "/jobs", "post", "responses", "422", "content", "application/problem+json")
	dig("paths", "/jobs/{jobId}", "get", "responses", "304")
}
