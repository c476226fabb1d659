// Package broker carries hints: a message on the work queue says that a chunk may be runnable, a message on the parking queue says that
// one was given up. It is the only package that speaks STOMP.
//
// The database is authoritative. So everything here is at least once: a message may be lost by an operator's purge, repeated by a lost
// receipt, or arrive out of order, and nothing that this package promises depends on the broker remembering anything.
//
// # Duties
//
//   - [Publisher] sends a batch whole or not at all and returns nil only after the receipt of its COMMIT. An error means: unknown, send again.
//   - [Subscriber] hands out messages under a bounded window, for ever, over whatever broker answers. An ACK is sent once, after the database
//     committed, and only on the connection that delivered; otherwise it is dropped and the message comes back.
//   - [Relay] moves debts and parking notices from the database to the queues: lease, send, confirm, in three steps with no transaction around them.
//   - [Depth], [Browse], [Purge] and [Check] look at queues for people. They use connections that are thrown away.
//
// # Connections
//
// Publishing and consuming never share a connection: a receipt that is waited for would hold up every ACK. One connection publishes one batch
// at a time. A connection that met an error or a timeout is destroyed, never used again: go-stomp blocks for ever when a receipt arrives that nobody
// waits for any more. A connection whose broker sent ERROR is closed by go-stomp. What was in flight on it is sent or delivered again.
//
// # Failures
//
//   - No broker answers: Publish fails within seconds, the subscriber tries again with jittered backoff up to 30 s, the database keeps the debts.
//   - The broker hangs: writes time out, a silent broker is noticed after two and a half heart-beats, a COMMIT without receipt after 25 s.
//   - The broker refuses (rights, size, store full): [RefusedError]. The relay sets a row aside only if its neighbours were taken.
//   - This process dies: unconfirmed debts are due again when their lease ends, unacknowledged messages go to other consumers at once.
package broker
