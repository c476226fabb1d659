package db

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// Bytes are read in hex: a database may have bytea_output = escape, and behind a pooler they come as text.

// LeaseOutbox takes up to limit messages owed to the destination, for debtLease. What is not deleted by then is due again.
func (s *Store) LeaseOutbox(ctx context.Context, destination string, limit int) (messages []export.OutboxMessage, err error) {
	err = again(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `
			with picked as (
			    select id from outbox where destination = $1 and due_at <= now() order by due_at, id limit $2 for update skip locked
			)
			update outbox o set due_at = now() + $3::interval, tries = o.tries + 1 from picked p where o.id = p.id
			returning o.id, o.tries - 1, o.headers, encode(o.body, 'hex')`, destination, limit, debtLease)
		if err != nil {
			return err
		}
		var headers []byte
		var body string
		m := export.OutboxMessage{Destination: destination}
		messages = nil
		_, err = pgx.ForEachRow(rows, []any{&m.ID, &m.Tries, &headers, &body}, func() (err error) {
			if m.Body, err = hex.DecodeString(body); err != nil {
				return err
			}
			m.Headers = nil
			if s.readable(m.ID, headers, &m.Headers) {
				messages = append(messages, m)
			}
			return nil
		})
		return err
	})
	return messages, err
}

// readable reads JSON of an outbox row. A row that cannot be read, of another version or another hand, is logged with every lease, and holds up no other.
func (s *Store) readable(id int64, text []byte, into any) bool {
	if err := json.Unmarshal(text, into); err != nil {
		s.Log.Error("a row of the outbox cannot be read; repair or delete it", "id", id, "error", err)
		return false
	}
	return true
}

// DeleteOutbox removes messages that their receiver confirmed.
func (s *Store) DeleteOutbox(ctx context.Context, ids []int64) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `delete from outbox where id in (select id from outbox where id = any($1) order by id for update)`, ids)
		return err
	})
}

// SetAsideOutbox notes that the receiver refuses the message; it is tried again with a growing delay, up to an hour.
func (s *Store) SetAsideOutbox(ctx context.Context, id int64, reason string) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `update outbox set error = $2, due_at = now() + least(interval '1 hour', interval '15 s' * power(2, least(tries, 10))) where id = $1`,
			id, export.ErrorText(reason))
		return err
	})
}

// ParkAsItCame owes the parking queue a message that is no chunk of ours.
func (s *Store) ParkAsItCame(ctx context.Context, m export.Message) error {
	var b pgx.Batch
	queueOutbox(&b, export.OutboxParking, m)
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return s.pool.SendBatch(ctx, &b).Close()
}

// webhookLease is how long a delivery may take, and be recorded; a process that dies meanwhile costs that time.
const webhookLease = 30 * time.Second

// LeaseWebhooks takes up to limit events that are due, the oldest of each host, none of the hosts named busy. What is neither deleted nor put off within
// webhookLease is due again.
func (s *Store) LeaseWebhooks(ctx context.Context, busy []string, limit int) (events []export.Webhook, err error) {
	err = again(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, `
			with waiting as (
			    select id, due_at, host from (
			        select id, due_at, lower(substring(destination from '^[^:]*://([^/?#]*)')) as host from outbox where destination <> $1 and due_at <= now()) w
			    where host <> all($2) order by due_at, id limit 1000
			), picked as (
			    select id, host from (select distinct on (host) id, due_at, host from waiting order by host, due_at, id) oldest order by due_at, id limit $3
			), held as (
			    select o.id, p.host from outbox o join picked p using (id) where o.due_at <= now() for update of o skip locked
			)
			update outbox o set due_at = now() + $4::interval, tries = o.tries + 1 from held h where o.id = h.id
			returning o.id, o.headers ->> 'id', o.destination, h.host, o.tries, extract(epoch from now() - o.created_at)::float8, encode(o.body, 'hex'), coalesce(o.headers ->> 'requestId', '')`,
			export.OutboxParking, busy, limit, webhookLease)
		if err != nil {
			return err
		}
		var e export.Webhook
		var age float64
		var body string
		events = nil
		_, err = pgx.ForEachRow(rows, []any{&e.ID, &e.EventID, &e.URL, &e.Host, &e.Tries, &age, &body, &e.RequestID}, func() error {
			job, err := hex.DecodeString(body)
			if err != nil {
				return err
			}
			e.Age, e.Job = time.Duration(age*float64(time.Second)), export.Job{}
			if s.readable(e.ID, job, &e.Job) {
				events = append(events, e)
			}
			return nil
		})
		return err
	})
	return events, err
}

// DropWebhook removes an event that its receiver is not told. export.ErrStale when the lease was over and somebody else tries already.
func (s *Store) DropWebhook(ctx context.Context, e export.Webhook) error {
	return again(ctx, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `delete from outbox where id = $1 and tries = $2`, e.ID, e.Tries)
		if err == nil && tag.RowsAffected() == 0 {
			return export.ErrStale
		}
		return err
	})
}

// PutOffWebhook has a delivery that failed tried again after the delay. export.ErrStale when its lease was over and somebody else tries already.
func (s *Store) PutOffWebhook(ctx context.Context, e export.Webhook, delay time.Duration, reason string) error {
	return again(ctx, func(ctx context.Context) error {
		tag, err := s.pool.Exec(ctx, `update outbox set error = $3, due_at = now() + $4::interval where id = $1 and tries = $2`,
			e.ID, e.Tries, export.ErrorText(reason), delay)
		if err == nil && tag.RowsAffected() == 0 {
			return export.ErrStale
		}
		return err
	})
}

// heartbeatFresh is how old the last heartbeat of a live worker may be.
const heartbeatFresh = 30 * time.Second

// Heartbeat says that the worker is alive. The fleet's concurrency is the sum over live workers.
func (s *Store) Heartbeat(ctx context.Context, host, version string, concurrency, inFlight int) error {
	return again(ctx, func(ctx context.Context) error {
		_, err := s.pool.Exec(ctx, `
			insert into worker (worker_id, host, version, concurrency, in_flight) values ($1, $2, $3, $4, $5)
			on conflict (worker_id) do update set concurrency = excluded.concurrency, in_flight = excluded.in_flight, heartbeat_at = now()`,
			s.Worker, host, version, concurrency, inFlight)
		return err
	})
}

// Goodbye removes the worker from the fleet.
func (s *Store) Goodbye(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `delete from worker where worker_id = $1`, s.Worker)
	return err
}
