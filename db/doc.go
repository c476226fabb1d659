// Package db is exportd's hold on Postgres: the store of jobs, chunks, claims and debts, which is the only truth, and the source of rows.
//
// Every change of a status is one guarded statement. It names the claim it acts under and the state it expects; a row that does not answer
// is [export.ErrStale], and the loser changes nothing. Claim, announce, renew and settle may be repeated: a claim that already has
// what it asks for, or was already settled by its own hand, answers as it did the first time. Callers repeat them when the answer was lost.
//
// Locks are taken in one order everywhere: job, chunks by (job_id, chunk_key), dispatch, outbox, file_cache. Claim, renew and
// settle never lock a job; only a dead-lettering does, and it takes the job first. Deadlocks and serialization failures are tried again
// here and never seen outside.
//
// A debt is a row of dispatch. It is written by the transaction that owes the run (submission, retry, give-back, an expired lease,
// re-drive) and deleted by the claim, or by whatever ends the chunk without one. The relay only moves it between READY, SENDING and SENT.
//
// All times come from the database clock.
package db
