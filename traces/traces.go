package traces

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"exportd/export"
)

// Config says who is traced.
type Config struct {
	Getenv                     func(string) string
	Service, Version, Instance string // unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say otherwise
	Log                        *slog.Logger
}

// closeTimeout is how long a process waits at its end for the collector to take the last spans.
const closeTimeout = 3 * time.Second

// patience is with a collector that restarts. Spans that come meanwhile have the queue.
var patience = otlptracehttp.RetryConfig{Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 2 * time.Second, MaxElapsedTime: 5 * time.Second}

// Open makes what begins spans: nil when traces are off. It connects to nothing yet. close sends what waits; call it when no span is begun any more.
func Open(ctx context.Context, cfg Config) (start export.StartSpan, close func() error, err error) {
	endpoint, err := endpointOf(cfg.Getenv)
	if endpoint == "" || err != nil {
		return nil, func() error { return nil }, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint), otlptracehttp.WithRetry(patience))
	if err != nil {
		return nil, nil, fmt.Errorf("send traces to %s: %w", redacted(endpoint), err)
	}
	who, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", cfg.Service),
		attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Instance)), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	over, giveUp := context.WithCancel(context.Background())
	provider := sdk.NewTracerProvider(sdk.WithBatcher(&reporting{SpanExporter: exporter, log: cfg.Log, over: over}), sdk.WithResource(who))
	cfg.Log.Info("traces are sent", "to", redacted(endpoint))
	tracer := provider.Tracer("exportd")
	return func(ctx context.Context, s export.Span) (context.Context, string, export.EndSpan) {
			return begin(ctx, tracer, s)
		},
		func() error {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			defer giveUp() // or an export under way would go on
			return provider.Shutdown(ctx)
		}, nil
}

// endpointOf is the address for traces that the environment names, with its path; empty when traces are off.
func endpointOf(getenv func(string) string) (string, error) {
	name, path := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""
	if getenv(name) == "" {
		name, path = "OTEL_EXPORTER_OTLP_ENDPOINT", "v1/traces"
	}
	exporter := getenv("OTEL_TRACES_EXPORTER")
	if getenv(name) == "" || exporter == "none" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return "", nil
	}
	if exporter != "" && exporter != "otlp" {
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER is %q: it must be otlp, or none", exporter)
	}
	if protocol := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL")); protocol != "" && protocol != "http/protobuf" {
		return "", fmt.Errorf("the OTLP protocol is %q: only http/protobuf is spoken; set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to that, with an endpoint for it, or OTEL_TRACES_EXPORTER to none", protocol)
	}
	u, err := url.Parse(getenv(name))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s is not of the form http://host:4318", name) // its value may hold a password
	}
	if path != "" {
		u = u.JoinPath(path)
	}
	return u.String(), nil
}

func redacted(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "?"
	}
	return u.Redacted()
}

// reporting logs when the collector goes away and when it is back, and says so to nobody else: the SDK would write to standard error.
type reporting struct {
	sdk.SpanExporter
	log  *slog.Logger
	over context.Context // ends when nobody waits for an export any more
	away atomic.Bool
}

func (r *reporting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if was := r.away.Swap(err != nil); err != nil && !was {
		r.log.Warn("traces cannot be sent, and are dropped until they can", "error", err)
	} else if err == nil && was {
		r.log.Info("traces are sent again")
	}
	return nil
}

var kinds = map[export.SpanKind]trace.SpanKind{
	export.SpanInternal: trace.SpanKindInternal, export.SpanServer: trace.SpanKindServer, export.SpanClient: trace.SpanKindClient,
	export.SpanProducer: trace.SpanKindProducer, export.SpanConsumer: trace.SpanKindConsumer,
}

const headerTraceparent = "traceparent"

func begin(ctx context.Context, tracer trace.Tracer, s export.Span) (context.Context, string, export.EndSpan) {
	var w3c propagation.TraceContext
	if s.Parent != "" {
		ctx = w3c.Extract(ctx, propagation.MapCarrier{headerTraceparent: s.Parent})
	}
	ctx, span := tracer.Start(ctx, s.Name, trace.WithSpanKind(kinds[s.Kind]), trace.WithAttributes(attributes(s.Attrs)...))
	named := propagation.MapCarrier{}
	w3c.Inject(ctx, named)
	return ctx, named[headerTraceparent], func(err error, attrs ...slog.Attr) {
		span.SetAttributes(attributes(attrs)...)
		if err != nil {
			span.SetStatus(codes.Error, export.ErrorText(err.Error()))
		}
		span.End()
	}
}

func attributes(attrs []slog.Attr) []attribute.KeyValue {
	list := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		switch a.Value.Kind() {
		case slog.KindInt64:
			list[i] = attribute.Int64(a.Key, a.Value.Int64())
		case slog.KindBool:
			list[i] = attribute.Bool(a.Key, a.Value.Bool())
		default:
			list[i] = attribute.String(a.Key, a.Value.String())
		}
	}
	return list
}
