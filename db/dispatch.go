package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// virtualTime is where the fair queue stands: the rank of the debt that is next. Debts are laid out from there, those of one job
// rankStride/(priority+1) apart (start-time fair queueing), so that jobs take turns in proportion to priority+1 and neither a giant
// job nor many later ones can starve anybody. When nothing is in line it starts again at 0.
const virtualTime = `coalesce((select min(rank) from dispatch where state = 'READY'), 0)`

// virtualTimeFrom is virtualTime, looked for from a rank on.
func virtualTimeFrom(rank string) string {
	return `coalesce((select min(rank) from dispatch where state = 'READY' and rank >= ` + rank + `), (select min(rank) from dispatch where state = 'READY'), 0)`
}

// dueMost bounds what one look brings into line.
const dueMost = 1000

// rankStride divides by every priority+1 from 1 to 10.
const rankStride = 2520

// debtLease is how long a relay may take to publish what it leased.
const debtLease = 15 * time.Second

// relaxed has the transaction commit without waiting until its WAL is on the disk. For what may be taken back by a crash of the database: a lease of debts, or that
// they were sent. They are sent once more then, and a message too many is refused.
const relaxed = `set_config('synchronous_commit', 'off', true)`

// relayLock is the advisory lock under which debts are leased, so that relays together respect the backlog.
const relayLock = 0x65787064 // "expd"

// debtColumns are what publishing a debt needs; d is the debt.
const debtColumns = `d.rank, d.debt_id, d.job_id, c.key, c.effective_date, c.attempts + 1, j.priority, d.sends, j.request_id, j.traceparent`

// LeaseDebts takes up to limit due debts for debtLease, fewer when the backlog in the broker would grow beyond its bound. What is not confirmed in time is due again.
func (s *Store) LeaseDebts(ctx context.Context, limit int) ([]export.Debt, error) {
	return s.leaseDebts(ctx, func(b *pgx.Batch, rank int64, _ time.Duration) {
		b.Queue(leaseSQL(`least($1, greatest(0,
			coalesce(nullif($4, 0), (select greatest(64, 2 * coalesce(sum(concurrency), 0)) from worker where heartbeat_at > now() - interval '30 s'))
			- (select count(*) from dispatch where state in ('SENDING', 'SENT') and due_at > now())))`, "true", ""), limit, debtLease, rank, s.Backlog)
	})
}

// TakeDebts takes up to limit debts, in their order, for a consumer that works from the database. With an age it waits until one near the front has been
// due, or published and unclaimed, for that long, also while a relay that cannot reach its broker leases it again and again. The claim deletes them; what
// is not claimed within debtLease is due again.
func (s *Store) TakeDebts(ctx context.Context, limit int, age time.Duration) ([]export.Debt, error) {
	return s.leaseDebts(ctx, func(b *pgx.Batch, rank int64, back time.Duration) {
		// Taking it starts its age anew: another consumer is to leave it alone until this one had its time.
		const set = ", owed_at = now()"
		if age > 0 {
			b.Queue(agedSQL, age, limit, back)
			b.Queue(leaseSQL("$1", agedFront, set), limit, debtLease, rank, age)
		} else {
			b.Queue(leaseSQL("$1", "true", set), limit, debtLease, rank)
		}
	})
}

// agedSQL brings what was published or leased by a relay too long ago into line. It finds the locked rows again by their place, as leaseSQL does.
const agedSQL = `update dispatch set state = 'READY', owed_at = least(owed_at, sent_at) where ctid = any(array(
	select ctid from dispatch
	where due_at > now() - $3::interval and state <> 'READY'
	  and (state = 'SENT' and sent_at < now() - $1::interval or state = 'SENDING' and greatest(owed_at, sent_at) < now() - $1::interval)
	order by due_at limit $2 for update skip locked))`

// agedFront looks no further than the thousandth debt in line: what is in front of an old one ages too. Who is taken is not asked for its own age: jobs take
// turns, and with new ones coming all the while, the front would be full of debts too young to be taken.
const agedFront = `exists (select from (select due_at, owed_at from dispatch where state = 'READY' and rank >= $3 order by rank limit 1000) front where least(due_at, owed_at) <= now() - $4::interval)`

// leaseSQL finds the locked rows again by their place (ctid): the planner cannot know how few they are, and would read the whole table.
func leaseSQL(limit, guard, set string) string {
	return `
with picked as (
    select ctid from dispatch where state = 'READY' and rank >= $3 and ` + guard + `
    order by rank, debt_id limit ` + limit + `
    for update skip locked
), leased as (
    update dispatch d set state = 'SENDING', due_at = now() + $2::interval` + set + ` where d.ctid = any(array(select ctid from picked))
    returning d.*
)
select ` + debtColumns + `
from leased d join job j on j.job_id = d.job_id
cross join lateral (select * from job_chunk c where c.job_id = d.job_id and c.chunk_key = d.chunk_key offset 0) c
order by d.rank, d.debt_id`
}

// dueSQL brings what has become due into line, the first dueMost of it.
const dueSQL = `
with due as (
    select ctid as place, job_id, due_at from dispatch where state <> 'READY' and due_at <= now() and due_at > now() - $1::interval order by due_at limit 1000 for update skip locked
)
update dispatch d set state = 'READY', owed_at = case when d.state = 'WAIT' then d.due_at else d.owed_at end, rank = ` + virtualTime + ` + p.n * p.stride
from (select due.*, 2520 / (j.priority + 1) as stride, row_number() over (partition by job_id order by due_at) as n from due join job j using (job_id)) p
where d.ctid = p.place`

// leaseDebts brings what has become due into line and then runs the lease that queue adds.
func (s *Store) leaseDebts(ctx context.Context, queue func(b *pgx.Batch, rank int64, back time.Duration)) (debts []export.Debt, err error) {
	began := time.Now()
	rank, back := s.front.bounds()
	l, err := s.look(ctx, queue, rank, back)
	switch {
	case err != nil:
	case rank == everything && l.due < dueMost:
		s.front.sawAll(began, l.first)
	case rank != everything && len(l.debts) == 0:
		if l, err = s.look(ctx, queue, everything, back); err == nil {
			s.front.moved(l.first)
		}
	}
	return l.debts, err
}

// look is what one look for debts found.
type look struct {
	debts []export.Debt
	first int64 // rank of the first one
	due   int64 // brought into line before
}

// look looks for debts once, in one implicit transaction and one round trip, under the relay lock: statements that wait for nothing but each other.
func (s *Store) look(ctx context.Context, queue func(b *pgx.Batch, rank int64, back time.Duration), rank int64, back time.Duration) (l look, err error) {
	err = again(ctx, func(ctx context.Context) error {
		l = look{first: everything}
		var b pgx.Batch
		b.Queue(`select pg_advisory_xact_lock($1), `+relaxed, relayLock)
		b.Queue(dueSQL, back)
		queue(&b, rank, back)
		res := s.pool.SendBatch(ctx, &b)
		defer res.Close()
		for i := range b.Len() - 1 {
			tag, err := res.Exec()
			if err != nil {
				return err
			}
			if i == 1 {
				l.due = tag.RowsAffected()
			}
		}
		rows, err := res.Query()
		if err != nil {
			return err
		}
		l.debts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (export.Debt, error) {
			d, rank, err := scanDebt(row)
			if l.first == everything {
				l.first = rank
			}
			return d, err
		})
		if err != nil {
			return err
		}
		return res.Close()
	})
	return l, err
}

func scanDebt(row pgx.CollectableRow) (d export.Debt, rank int64, err error) {
	var day time.Time
	err = row.Scan(&rank, &d.ID, &d.JobID, &d.Key, &day, &d.Attempt, &d.Priority, &d.Sends, &d.RequestID, &d.Traceparent)
	d.Date = export.DateOf(day)
	return d, rank, err
}

// ReturnDebts puts leased debts back into line, where they were: they were not sent.
func (s *Store) ReturnDebts(ctx context.Context, unsent []export.Debt) error {
	s.front.moved(everything)
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `
update dispatch set state = 'READY', due_at = now() where ctid = any(array(
    select d.ctid
    from unnest((select $1::text[]), (select $2::text[]), (select $3::bigint[])) as w(job_id, chunk_key, debt_id)
    cross join lateral (
        select ctid, state, debt_id from dispatch d where d.job_id = w.job_id and d.chunk_key = w.chunk_key for update skip locked
    ) d
    where d.state = 'SENDING' and d.debt_id = w.debt_id))`, debtArrays(unsent)...)
		return err
	})
}

// ConfirmSent notes that the broker has the debts. Each is due again after RepublishAfter, twice that the next time, and so on: that is how a
// lost message is found. A debt that was claimed or leased anew meanwhile is left alone. The lookups are those of paidSQL; with the state among their
// conditions they would read the index of states whole.
func (s *Store) ConfirmSent(ctx context.Context, sent []export.Debt) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `
with held as (
    select d.ctid
    from unnest((select $1::text[]), (select $2::text[]), (select $3::bigint[])) as w(job_id, chunk_key, debt_id)
    cross join lateral (select ctid from dispatch d where d.job_id = w.job_id and d.chunk_key = w.chunk_key and d.debt_id = w.debt_id for update skip locked) d
)
update dispatch d set state = 'SENT', sent_at = now(), sends = d.sends + 1, error = null,
    due_at = now() + $4::interval * power(2, least(d.sends, 20))
where d.ctid = any(array(select ctid from held)) and d.state = 'SENDING' and (select `+relaxed+`) is not null`, append(debtArrays(sent), s.RepublishAfter)...)
		return err
	})
}

func debtArrays(debts []export.Debt) []any {
	jobs, chunks, ids := make([]string, len(debts)), make([]string, len(debts)), make([]int64, len(debts))
	for i, d := range debts {
		jobs[i], chunks[i], ids[i] = d.JobID, d.ChunkKey(), d.ID
	}
	return []any{jobs, chunks, ids}
}

// SetAsideDebt notes that the broker refuses the debt's message. It is tried again as if it had been sent; consumers may take it from the database.
func (s *Store) SetAsideDebt(ctx context.Context, d export.Debt, reason string) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `update dispatch set state = 'SENT', sent_at = now(), sends = sends + 1, error = $4,
			due_at = now() + $5::interval * power(2, least(sends, 20))
			where job_id = $1 and chunk_key = $2 and debt_id = $3 and state = 'SENDING'`, d.JobID, d.ChunkKey(), d.ID, export.ErrorText(reason), s.RepublishAfter)
		return err
	})
}

// NextDue says how long it is until a waiting debt becomes due: 0 when one is, an hour when nothing waits.
func (s *Store) NextDue(ctx context.Context) (time.Duration, error) {
	var micros int64
	_, back := s.front.bounds()
	err := s.pool.QueryRow(ctx, `
		select greatest(0, 1000000 * extract(epoch from least(
			(select min(due_at) from dispatch where state <> 'READY' and due_at > now() - $1::interval), now() + interval '1 hour') - now()))::bigint`, back).Scan(&micros)
	return time.Duration(micros) * time.Microsecond, err
}
