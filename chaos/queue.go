package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"exportd/broker"
	"exportd/e2e/stack"
	"exportd/export"
)

// chaosHeader marks messages that only the chaos program sends.
const chaosHeader = "chaos"

// strikeQueue does to the work queue what anyone may do in the broker's console.
func (w *world) strikeQueue(ctx context.Context, f fault) error {
	turn := w.turns["broker"] // the broker is not killed meanwhile: what was moved is to be counted
	turn.Lock()
	defer turn.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	w.report.line("%s", f)
	switch f.kind {
	case purge:
		brief, cancel := context.WithTimeout(bounded, 4*time.Second) // while others publish there is no end
		defer cancel()
		n, err := broker.Purge(brief, w.Broker, w.Work)
		w.report.line("purged %d messages", n)
		if n > 0 {
			return nil
		}
		return err
	case garbage:
		var msgs []export.Message
		for i := range f.size {
			msgs = append(msgs, export.Message{Body: fmt.Appendf(nil, `{"chaos":"garbage %d of %d"}`, i, f.seed), Headers: map[string]string{chaosHeader: "garbage"}})
		}
		return w.send(bounded, w.Work, msgs)
	case misplace:
		msgs, err := w.takeMessages(bounded, f.size)
		if err != nil {
			return err
		}
		for i := range msgs {
			msgs[i].Headers[chaosHeader] = "misplaced"
		}
		w.report.line("moved %d messages", len(msgs))
		return w.send(bounded, w.Parking, msgs)
	}
	msgs, err := broker.Browse(bounded, w.Broker, w.Work, f.size)
	if err != nil {
		return err
	}
	more, err := w.anyMessages(bounded, f.size-len(msgs))
	if err != nil {
		return err
	}
	msgs = append(msgs, more...)
	for i := range msgs {
		msgs[i].Headers[chaosHeader] = "copy"
	}
	if f.kind == copyToDLQ {
		return w.send(bounded, "ActiveMQ.DLQ", msgs)
	}
	return w.send(bounded, w.Work, append(msgs, msgs...))
}

func (w *world) send(ctx context.Context, queue string, msgs []export.Message) error {
	p := broker.NewPublisher(w.Broker)
	defer p.Close()
	return p.Publish(ctx, queue, msgs)
}

// takeMessages takes up to n messages out of the work queue, if they come.
func (w *world) takeMessages(ctx context.Context, n int) (msgs []export.Message, err error) {
	s := broker.NewSubscriber(w.Broker, w.Work, n)
	running := make(chan struct{})
	go func() {
		defer close(running)
		_ = s.Run(context.WithoutCancel(ctx)) // ends with Close
	}()
	timeout := time.After(2 * time.Second)
	for len(msgs) < n {
		select {
		case d := <-s.Deliveries():
			if d.Headers[chaosHeader] == "" || d.Headers[chaosHeader] == "copy" {
				msgs = append(msgs, d.Message())
			} else {
				w.report.line("took garbage out of the work queue")
			}
			if err := d.Ack(); err != nil {
				return msgs, err
			}
			continue
		case <-timeout:
		}
		break
	}
	err = s.Close(ctx)
	<-running
	return msgs, err
}

// anyMessages makes up messages for chunks of any state: the queue itself is often empty.
func (w *world) anyMessages(ctx context.Context, n int) (msgs []export.Message, err error) {
	err = w.query(ctx, func(conn conn) error {
		rows, err := conn.Query(ctx, `select json_build_object('jobId', job_id, 'key', key, 'effectiveDate', to_char(effective_date, 'YYYYMMDD'))::text from job_chunk order by random() limit $1`, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		msgs = nil
		for rows.Next() {
			var body string
			if err := rows.Scan(&body); err != nil {
				return err
			}
			msgs = append(msgs, export.Message{Body: []byte(body), Headers: map[string]string{}})
		}
		return rows.Err()
	})
	return msgs, err
}

// strangers looks at the parking queue for what should not be there: messages that are neither notices nor ours. The broker dead-letters to it. It also
// waits for the garbage that came after the last purge or move, which must be there.
func (w *world) strangers(ctx context.Context, faults []fault) error {
	var last time.Duration
	for _, f := range faults {
		if f.kind == purge || f.kind == misplace {
			last = f.at
		}
	}
	want := map[string]bool{}
	for _, f := range faults {
		// A purge that waited for its turn may have come later than planned.
		if f.kind == garbage && f.at > last+10*time.Second && w.report.was(f) {
			for i := range f.size {
				want[fmt.Sprintf(`{"chaos":"garbage %d of %d"}`, i, f.seed)] = true
			}
		}
	}
	var strange []string
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := stack.Poll(bounded, 500*time.Millisecond, func() (bool, error) {
		parked, err := broker.Browse(bounded, w.Broker, w.Parking, 10_000)
		if err != nil {
			return false, nil
		}
		missing := len(want)
		strange = strange[:0]
		seen := map[string]bool{}
		for _, m := range parked {
			var notice struct{ ParkingID, Chaos string }
			_ = json.Unmarshal(m.Body, &notice) // garbage is no JSON
			body := string(m.Body)
			switch {
			case notice.ParkingID != "" || notice.Chaos != "" || m.Headers[chaosHeader] != "":
				if want[body] && !seen[body] {
					seen[body] = true
					missing--
				}
			default:
				strange = append(strange, body)
			}
		}
		return missing == 0, nil
	})
	if err != nil {
		w.report.breach("garbage that was sent to the work queue is not on the parking queue: %v", err)
	}
	if len(strange) > 0 {
		w.report.breach("%d strange messages on the parking queue, such as %s", len(strange), strings.Join(slices.Compact(strange)[:min(3, len(slices.Compact(strange)))], " "))
	}
	return nil
}
