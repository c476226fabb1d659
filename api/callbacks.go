package api

import (
	"encoding/json"
	"net/http"
	"strings"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
)

// eventBody is what the callback URL of a job is told once the job has ended.
type eventBody struct {
	_ struct{} `additionalProperties:"true"`

	Type      string  `json:"type" enum:"job.completed,job.failed,job.cancelled"`
	Timestamp string  `json:"timestamp" format:"date-time" example:"2026-01-02T10:00:02.500Z" doc:"When the job ended."`
	Data      JobView `json:"data" doc:"The job as it was then."`
}

// EventBody is the event of a job that has ended, as its callback URL is told.
func (a *API) EventBody(j export.Job) ([]byte, error) {
	v := a.jobView(j)
	e := eventBody{Type: "job." + strings.ToLower(v.Status), Timestamp: v.UpdatedAt, Data: v}
	if v.CompletedAt != nil {
		e.Timestamp = *v.CompletedAt
	}
	return json.Marshal(e)
}

// checkCallback refuses a callback URL that will not be called.
func (a *API) checkCallback(url string) error {
	if url == "" {
		return nil
	}
	detail := "no calls are made by this server: leave callbackUrl out, or have its operator set EXPORTD_WEBHOOK_SECRET"
	if a.Callbacks != nil {
		err := a.Callbacks(url)
		if err == nil {
			return nil
		}
		detail = err.Error()
	}
	pointer := "/callbackUrl"
	p := newProblem(kindCallback, "1 fault, see errors")
	p.Errors = []fault{{Pointer: &pointer, Detail: detail}}
	return p
}

const (
	callbackTag = "callbacks"
	// callbackPath is where the call goes, as OpenAPI writes it.
	callbackPath = "{$request.body#/callbackUrl}"
)

// documentCallback adds the call that follows a submission to the document. It stands there and not among the webhooks, because generators
// leave out what only those refer to.
func documentCallback(spec *huma.OpenAPI) {
	header := func(name, example, description string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Required: true, Description: description, Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{example}, Description: description}}
	}
	spec.Paths["/jobs"].Post.Callbacks = map[string]map[string]*huma.PathItem{"jobEnded": {callbackPath: {Post: &huma.Operation{
		OperationID: "jobEnded", Method: http.MethodPost, Path: "callbackUrl", Tags: []string{callbackTag}, Security: []map[string][]string{{}},
		Summary: "A job has ended",
		Description: "Sent to the callbackUrl of a job at least once for each of its ends, a re-driven job has several, and signed by Standard Webhooks. Verify the signature, and tell repeats by webhook-id. " +
			"No redirect is followed. An answer is waited for up to 15 seconds; tries go on for a day, with growing delays or as Retry-After asks, up to an hour.",
		Parameters: []*huma.Param{
			header("webhook-id", "evt_0b6c7a3e-6f0e-4a58-9a52-5d2b8f1f3c11", "Of the event, the same with every try."),
			header("webhook-timestamp", "1767348002", "Of the try, in Unix seconds."),
			header("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "v1 and the base64 HMAC-SHA256 of id.timestamp.body, once for each secret in use, with spaces between."),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: content(jsonMedia, schemaOf[eventBody](spec))},
		Responses:   map[string]*huma.Response{"2XX": {Description: "The event is taken"}, "410": {Description: "Do not try this event again"}, "default": {Description: "Try again later"}},
	}}}}
}
