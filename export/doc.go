// Package export is the domain of exportd: jobs, chunks, claims, the files they make, and every rule about them that needs neither a
// database nor a network. It imports the standard library only.
//
// Three facts carry the system.
//
// The database decides, the broker wakes. A chunk that should run and is not running has exactly one debt (a row in dispatch); the
// claim removes it. A message is a copy of a debt: losing, repeating or reordering messages changes no outcome.
//
// A claim is the only right to act. It is a lease under a unique ID drawn by the worker, which stays on the chunk after settlement, so
// that claim, renewal and settlement can be repeated after a lost answer. Whoever finds another ID there gets [ErrStale] and changes nothing.
//
// The object store is not in the transaction. So an object names its claim and tells its facts, or these are announced on the chunk, before the
// last, conditional step of its upload, and whoever takes over looks for the object first.
//
// Failures are told apart by [Class]: who knows says permanent, the loop obeys, unknown means try again.
package export
