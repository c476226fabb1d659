// Package tracestest is a collector for tests: it takes spans by OTLP over HTTP and keeps them.
package tracestest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span as it arrived.
type Span struct {
	Service, Name, Kind       string
	Trace, ID, Parent, Status string // IDs in hex; Status is the description of an error
	Failed                    bool
	Attributes                map[string]string
}

// Collector runs until the test ends.
type Collector struct {
	URL string // for OTEL_EXPORTER_OTLP_ENDPOINT

	mu    sync.Mutex
	spans []Span
	wrong []error
}

// Start runs one.
func Start(t testing.TB) *Collector {
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(func() {
		server.Close()
		for _, err := range c.wrong {
			t.Error(err)
		}
	})
	c.URL = server.URL
	return c
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData // has the wire format of ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	if err == nil && (r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf") {
		err = fmt.Errorf("%s to %s", r.Header.Get("Content-Type"), r.URL.Path)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.wrong = append(c.wrong, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rs := range data.ResourceSpans {
		service := values(rs.Resource.Attributes)["service.name"]
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, Span{
					Service: service, Name: s.Name, Kind: s.Kind.String(), Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Status: s.Status.GetMessage(), Failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR, Attributes: values(s.Attributes),
				})
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty answer is a whole one
}

func values(list []*v1.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.GetValue().(type) {
		case *v1.AnyValue_IntValue:
			m[kv.Key] = strconv.FormatInt(v.IntValue, 10)
		case *v1.AnyValue_BoolValue:
			m[kv.Key] = strconv.FormatBool(v.BoolValue)
		default:
			m[kv.Key] = kv.Value.GetStringValue()
		}
	}
	return m
}

// Spans are those that have arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}
