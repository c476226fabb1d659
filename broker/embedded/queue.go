package embedded

import (
	"cmp"
	"container/list"
	"slices"
	"strconv"

	"github.com/go-stomp/stomp/v3/frame"
)

// message is immutable but for redelivered.
type message struct {
	serial      uint64 // order of arrival
	headers     *frame.Header
	body        []byte
	redelivered bool
}

// queue holds what nobody has. What subscriptions have is in their held lists.
type queue struct {
	name, display      string
	ready              list.List // of *message, by serial
	subs               []*subscription
	turn               int // of subs: who is asked first for the next message
	enqueued, dequeued int64
}

// subscription is one consumer, or one walk of a browser.
type subscription struct {
	number   int // within its session
	id       string
	queue    *queue
	session  *session
	mode     string // auto, client, client-individual
	prefetch int
	held     list.List // of *delivery, in the order they were sent
	inFlight int       // held and not acknowledged within an open transaction
	browsing []*message
	browser  bool
}

// delivery is a message at a consumer.
type delivery struct {
	sub     *subscription
	msg     *message
	ack     string
	place   *list.Element // in sub.held
	settled bool          // acknowledged or refused in a transaction that is still open
}

func (q *queue) push(m *message) {
	q.enqueued++
	q.ready.PushBack(m)
}

// putBack returns a message that a consumer did not settle to its old place.
func (q *queue) putBack(m *message) {
	m.redelivered = true
	e := q.ready.Front()
	for e != nil && e.Value.(*message).serial < m.serial {
		e = e.Next()
	}
	if e == nil {
		q.ready.PushBack(m)
	} else {
		q.ready.InsertBefore(m, e)
	}
}

// dispatch sends what can be sent, one message to each willing consumer in turn.
func (q *queue) dispatch() {
	for q.ready.Len() > 0 {
		sub := q.willing()
		if sub == nil {
			return
		}
		sub.deliver(q.ready.Remove(q.ready.Front()).(*message))
	}
}

func (q *queue) willing() *subscription {
	for range q.subs {
		sub := q.subs[q.turn%len(q.subs)]
		q.turn = (q.turn + 1) % len(q.subs)
		if !sub.browser && sub.session.room() && (sub.mode == "auto" || sub.inFlight < sub.prefetch) {
			return sub
		}
	}
	return nil
}

func (sub *subscription) deliver(m *message) {
	f := sub.frame(m)
	if sub.mode == "auto" {
		sub.queue.dequeued++
	} else {
		d := &delivery{sub: sub, msg: m, ack: sub.session.ackID(sub)}
		d.place = sub.held.PushBack(d)
		sub.inFlight++
		sub.session.held[d.ack] = d
		f.Header.Add(frame.Ack, d.ack)
	}
	sub.session.send(f)
}

func (sub *subscription) frame(m *message) *frame.Frame {
	f := frame.New(frame.MESSAGE, frame.Subscription, sub.id, frame.MessageId, messageID(m), frame.Destination, sub.queue.display,
		frame.ContentLength, strconv.Itoa(len(m.body)))
	if m.redelivered {
		f.Header.Add("redelivered", "true")
	}
	f.Header.AddHeader(m.headers)
	f.Body = m.body
	return f
}

func messageID(m *message) string { return "ID:exportd-" + strconv.FormatUint(m.serial, 10) }

// browse sends on with the walk of a browser while there is room, and the end mark after it.
func (sub *subscription) browse() {
	for sub.session.room() && sub.browsing != nil {
		if len(sub.browsing) == 0 {
			sub.browsing = nil
			sub.session.send(frame.New(frame.MESSAGE, frame.Subscription, sub.id, frame.MessageId, "0", frame.Destination, sub.queue.display, "browser", "end"))
			return
		}
		sub.session.send(sub.frame(sub.browsing[0]))
		sub.browsing = sub.browsing[1:]
	}
}

// snapshot is every message of the queue, those at consumers included, oldest first.
func (q *queue) snapshot() []*message {
	found := []*message{}
	for e := q.ready.Front(); e != nil; e = e.Next() {
		found = append(found, e.Value.(*message))
	}
	for _, sub := range q.subs {
		for e := sub.held.Front(); e != nil; e = e.Next() {
			found = append(found, e.Value.(*delivery).msg)
		}
	}
	slices.SortFunc(found, func(a, b *message) int { return cmp.Compare(a.serial, b.serial) })
	return found
}

// end gives back what the subscription holds.
func (sub *subscription) end() {
	q := sub.queue
	q.subs = slices.DeleteFunc(q.subs, func(o *subscription) bool { return o == sub })
	for e := sub.held.Front(); e != nil; e = e.Next() {
		q.putBack(e.Value.(*delivery).msg)
	}
	sub.held.Init()
	q.dispatch()
}
