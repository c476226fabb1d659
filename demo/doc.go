// Package demo shows the whole system at work on one machine, with nothing to configure: a throw-away PostgreSQL, a STOMP broker and an object
// store inside this process, and around them exportd as it is deployed: one api and two consumers, real processes of this program, of which one
// is killed half-way.
package demo
