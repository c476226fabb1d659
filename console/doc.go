// Package console is the operator's view of exportd in a browser: pages rendered on the server, refreshed in place, all served from the binary.
//
// It decides nothing. Jobs, chunks, files, orders, queues and workers come from the HTTP API itself, called in process with the token that the visitor signed
// in with: who may see and do what, and how much of it, is the API's word. Only what the API has no call for comes from [Store], for the tenant that
// the token is of. State changes are POSTs of the console's own pages; every page works without scripts.
package console
