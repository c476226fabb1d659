// Package webhook calls the callback URLs of jobs that have ended, by the Standard Webhooks specification (standardwebhooks.com).
//
// The database is authoritative: an event lies in its outbox from the transaction that ended the job until a receiver took it or it was given up. A delivery
// leases the event, calls, and records what came of it; whoever dies in between leaves the event to be tried again, under the same id, when the lease
// is over. So receivers are told at least once and tell repeats by webhook-id.
//
// 2xx takes the event, 410 ends it, everything else is tried again with a growing, jittered delay for a day. Who is slow holds up nobody: few calls go to
// one host at a time, each is bounded in time, and nothing of the answer's body is needed.
//
// URLs come from clients, so a call goes to public addresses only, unless private ones are allowed. The address is checked when the connection is made,
// after the name was resolved; no redirect is followed and no proxy of the environment is used.
package webhook
