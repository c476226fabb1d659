// Package embedded is a STOMP 1.2 broker in this process, for the demo and for tests that need no ActiveMQ. It behaves like ActiveMQ
// where exportd could notice a difference, and passes the same conformance suite (brokertest). go-stomp's own server does not: its STOMP 1.2 ACK fails.
//
// Queues live in memory: they outlast connections and Close with Reopen, not the process. A message belongs to exactly one place: its queue, or the
// subscription that it was sent to and that has not acknowledged it. When a connection ends, what it held returns to the head of its queue in the
// original order with redelivered:true. A transaction takes effect at its COMMIT as a whole, or not at all.
//
// One lock guards everything but the sockets. Each connection has a reader and a writer; messages are sent to a connection only while less than a
// megabyte waits for its writer, and a reader stops while its answers pile up, so a slow peer costs bounded memory and delays nobody else. A
// peer that takes nothing for half a minute, is silent for longer than its heart-beat allows, or breaks the protocol is dropped, after an ERROR frame where one can
// still be sent.
//
// Not here: topics, selectors, priorities, expiry, delayed messages, STOMP 1.0 and 1.1.
package embedded
