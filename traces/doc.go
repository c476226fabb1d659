// Package traces records what the other packages do as OpenTelemetry spans and sends them to a collector, by OTLP over HTTP. It is the only user of
// OpenTelemetry; others take an export.StartSpan.
//
// There are none unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. The other standard variables are obeyed too, by the SDK
// itself: headers, timeout, compression, certificates, sampler, resource attributes, batches. Spans wait in a queue of bounded length; when the collector is
// away or slow, new ones are dropped, and nobody waits.
package traces
