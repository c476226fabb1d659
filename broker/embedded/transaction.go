package embedded

import (
	"fmt"

	"github.com/go-stomp/stomp/v3/frame"
)

// A transaction holds memory until it ends.
const (
	maxTransactionBytes = 64 << 20
	maxTransactionOps   = 100_000
)

// transaction collects what its COMMIT will do, under one lock, in order.
type transaction struct {
	ops   []op
	bytes int
}

type op struct {
	apply   func()
	settled []*delivery // of an ACK or NACK: out of the window already, still the consumer's until the COMMIT
}

func (s *session) transaction(id string) (*transaction, error) {
	tx := s.txs[id]
	if tx == nil {
		return nil, fmt.Errorf("Invalid transaction id: %s", id)
	}
	return tx, nil
}

func (tx *transaction) add(bytes int, apply func(), settled []*delivery) error {
	tx.bytes += bytes
	if tx.bytes > maxTransactionBytes || len(tx.ops) == maxTransactionOps {
		return fmt.Errorf("a transaction is larger than %d bytes or %d frames", maxTransactionBytes, maxTransactionOps)
	}
	for _, d := range settled {
		d.settled = true
		d.sub.inFlight--
	}
	tx.ops = append(tx.ops, op{apply, settled})
	return nil
}

// forget drops what concerns messages that went back to their queue because their subscription ended.
func (tx *transaction) forget(sub *subscription) {
	for i := range tx.ops {
		if settled := tx.ops[i].settled; len(settled) > 0 && settled[0].sub == sub {
			tx.ops[i] = op{apply: func() {}}
		}
	}
}

// transact takes BEGIN, COMMIT and ABORT.
func (s *session) transact(f *frame.Frame) error {
	id, ok := f.Header.Contains(frame.Transaction)
	if !ok {
		return fmt.Errorf("Must specify the transaction you are %sing", f.Command)
	}
	if f.Command == frame.BEGIN {
		if s.txs[id] != nil {
			return fmt.Errorf("The transaction was already started: %s", id)
		}
		s.txs[id] = &transaction{}
		return nil
	}
	tx, err := s.transaction(id)
	if err != nil {
		return err
	}
	delete(s.txs, id)
	for _, o := range tx.ops {
		if f.Command == frame.COMMIT {
			o.apply()
			continue
		}
		for _, d := range o.settled {
			d.settled = false
			d.sub.inFlight++
		}
	}
	return nil
}

// settle ends a delivery. A refused message goes to the dead-letter queue; one that is refused there, to ActiveMQ.DLQ; one refused there is gone.
func (s *session) settle(d *delivery, refused bool) {
	q := d.sub.queue
	delete(s.held, d.ack)
	d.sub.held.Remove(d.place)
	if !d.settled {
		d.sub.inFlight--
	}
	q.dequeued++
	if !refused {
		return
	}
	target := s.broker.opts.DeadLetter
	if q.name == target {
		target = lastResort
	}
	if q.name == target {
		return
	}
	m := &message{headers: d.msg.headers.Clone(), body: d.msg.body}
	m.headers.Set("original-destination", q.display)
	s.broker.enqueue(s.broker.queue(target), m)
}
