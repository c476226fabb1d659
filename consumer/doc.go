// Package consumer is one member of the worker fleet. It takes hints (messages, or debts straight from the database), claims the chunk each names,
// exports it, settles the claim, and only then acknowledges the hint; where chunks take milliseconds, at the claim, so that the next one is at hand (see pace).
//
// The database is authoritative. A hint that leads to no claim is acknowledged and forgotten: if the chunk is owed a run, its debt is still there.
//
// One attempt goes: claim → (look for the object of the claim that it overtook) → reuse? → rows stream into an upload of which nothing is visible → announce the
// facts on the chunk, where the object cannot tell them itself or the lease is not fresh → the last, conditional step of the upload → settle, while the
// slot goes on to the next chunk. Every claim in flight is renewed each third of a lease. What ends an attempt early is the cause of its context: the claim was
// lost, its job is ending, the process drains, a time limit.
//
// After a kill at any line the lease runs out, the sweeper (in every api and consumer process) owes the chunk a run again, and whoever claims it finds the
// object of the dead claim, if there is one. A failure is spent as an attempt unless its dependency is away for everybody, which a probe without a chunk
// must confirm: then the breaker opens, nothing new is taken, and the chunk is given back.
package consumer
