package consumer_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"exportd/consumer"
	"exportd/export"
)

// messages is an intake of the test's own.
type messages struct {
	silent
	out chan consumer.Delivery
}

func (m messages) Deliveries() <-chan consumer.Delivery { return m.out }

// deliver delivers the work message of a chunk, and returns when a slot has taken it.
func (m messages) deliver(id, key string) *message {
	d := &message{Work: export.WorkMessage(export.Debt{Ref: export.Ref{JobID: id, Key: key, Date: 20200131}, Attempt: 1})}
	m.out <- d
	return d
}

type message struct {
	Work  export.Message
	acked atomic.Bool
}

func (m *message) Message() export.Message { return m.Work }
func (m *message) Ack() error              { m.acked.Store(true); return nil }

// A broker sends the next message when one is acknowledged. A slot whose chunks take milliseconds must not wait for it; where chunks take long, others are to get it.
func TestAMessageIsAcknowledgedAtItsClaimWhereChunksEndAtOnceAndAtItsEndWhereTheyTakeLong(t *testing.T) {
	w := newWorld(t)
	intake := messages{out: make(chan consumer.Delivery)}
	begun, gate := make(chan string, 1), make(chan struct{})
	w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
		if key[0] == 'L' {
			begun <- key
			<-gate
		}
		return rows(ctx, key, out)
	}}, func(c *consumer.Config) { c.Intake, c.Concurrency = intake, 1 })
	list := []string{"LONG"}
	for i := range 40 {
		list = append(list, fmt.Sprint("SHORT_", i), fmt.Sprint("LATER_", i))
	}
	id := w.submit(export.FailFast, list...)

	long := intake.deliver(id, "LONG")
	<-begun
	if long.acked.Load() {
		t.Error("a message is acknowledged while its chunk is at work, with nothing that ended before")
	}
	gate <- struct{}{}
	w.eventually("it is acknowledged", long.acked.Load)

	early := 0
	for i := range 40 {
		short := intake.deliver(id, fmt.Sprint("SHORT_", i))
		later := intake.deliver(id, fmt.Sprint("LATER_", i))
		<-begun
		if later.acked.Load() {
			early++
		}
		gate <- struct{}{}
		w.eventually("both are acknowledged", func() bool { return short.acked.Load() && later.acked.Load() })
	}
	if early == 0 { // each had a quarter of a second to be claimed in
		t.Error("no message is acknowledged at its claim")
	}
	w.ended(id, export.Completed)
}
