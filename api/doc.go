// Package api is the HTTP side of exportd: it checks who asks and what for, hands the order to the store, and shows jobs.
//
// It promises that a request is either stored whole or not at all: the body is read and checked to its end first, and then one call to the
// store runs in its own time, whatever the client does. Every error is application/problem+json from one table ([kind]); what the table
// does not know is "internal" and told to the log alone. Nothing that a client sends becomes a label of a metric.
//
// One file per resource: a huma operation where an answer is one JSON document, a plain gin route where it is a stream.
package api
