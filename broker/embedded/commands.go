package embedded

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-stomp/stomp/v3/frame"
)

// shortestBeat is the shortest heart-beat that we promise.
const shortestBeat = 100 * time.Millisecond

// handle does what a frame says. Every error it returns costs the connection.
func (s *session) handle(f *frame.Frame) error {
	if !s.connected {
		if f.Command != frame.CONNECT && f.Command != frame.STOMP {
			return errors.New("Not connected.")
		}
		return s.connect(f)
	}
	var err error
	switch f.Command {
	case frame.SEND:
		err = s.sendMessage(f)
	case frame.SUBSCRIBE:
		err = s.subscribe(f)
	case frame.UNSUBSCRIBE:
		err = s.unsubscribe(f)
	case frame.ACK, frame.NACK:
		err = s.acknowledge(f)
	case frame.BEGIN, frame.COMMIT, frame.ABORT:
		err = s.transact(f)
	case frame.DISCONNECT:
		defer s.hangUp()
	default:
		err = fmt.Errorf("Unknown STOMP action: %.40q", f.Command)
	}
	if err != nil {
		return err
	}
	if receipt, ok := f.Header.Contains(frame.Receipt); ok {
		s.send(frame.New(frame.RECEIPT, frame.ReceiptId, receipt))
	}
	return nil
}

func (s *session) connect(f *frame.Frame) error {
	spoken := false
	for v := range strings.SplitSeq(f.Header.Get(frame.AcceptVersion), ",") {
		spoken = spoken || strings.TrimSpace(v) == "1.2"
	}
	if !spoken {
		return errors.New("Supported protocol versions are 1.2")
	}
	o := s.broker.opts
	user, password := f.Header.Get(frame.Login), f.Header.Get(frame.Passcode)
	if o.User != "" && (!same(user, o.User) || !same(password, o.Password)) {
		return fmt.Errorf("User name [%s] or password is invalid.", user)
	}
	var clientSends, clientWants time.Duration
	if text, ok := f.Header.Contains(frame.HeartBeat); ok {
		var err error
		if clientSends, clientWants, err = frame.ParseHeartBeat(text); err != nil {
			return fmt.Errorf("Invalid heart-beat header: %q", text)
		}
	}
	if clientWants > 0 {
		clientWants = max(clientWants, shortestBeat)
		s.beat = clientWants * 3 / 4
	}
	if clientSends > 0 {
		clientSends = max(clientSends, shortestBeat)
		s.patience = time.Duration(float64(clientSends) * silence)
	}
	s.connected = true
	s.send(frame.New(frame.CONNECTED, frame.Version, "1.2", frame.Server, "exportd-embedded/1", frame.Session, strconv.FormatUint(s.serial, 10),
		frame.HeartBeat, fmt.Sprintf("%d,%d", clientWants.Milliseconds(), clientSends.Milliseconds())))
	return nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// unsent are headers of a SEND that are not the message's.
var unsent = map[string]bool{frame.Destination: true, frame.Transaction: true, frame.Receipt: true, frame.ContentLength: true,
	frame.Subscription: true, frame.MessageId: true, frame.Ack: true, "redelivered": true}

func (s *session) sendMessage(f *frame.Frame) error {
	destination := f.Header.Get(frame.Destination)
	if name, ok := strings.CutPrefix(destination, statisticsPrefix); ok {
		return s.statistics(name, f.Header.Get("reply-to"))
	}
	q, err := s.broker.find(s, destination)
	if err != nil {
		return err
	}
	m := &message{headers: &frame.Header{}, body: f.Body}
	for i := range f.Header.Len() {
		if k, v := f.Header.GetAt(i); !unsent[k] {
			m.headers.Add(k, v)
		}
	}
	if id, ok := f.Header.Contains(frame.Transaction); ok {
		tx, err := s.transaction(id)
		if err != nil {
			return err
		}
		return tx.add(size(f), func() { s.broker.enqueue(q, m) }, nil)
	}
	s.broker.enqueue(q, m)
	return nil
}

func (b *Broker) enqueue(q *queue, m *message) {
	m.serial = b.next()
	q.push(m)
	q.dispatch()
}

func (s *session) subscribe(f *frame.Frame) error {
	id, ok := f.Header.Contains(frame.Id)
	if !ok || s.subs[id] != nil {
		return errors.New("SUBSCRIBE needs an id of its own")
	}
	mode := f.Header.Get(frame.Ack)
	switch mode {
	case "":
		mode = "auto"
	case "auto", "client", "client-individual":
	default:
		return fmt.Errorf("unknown ack mode %q", mode)
	}
	q, err := s.broker.find(s, f.Header.Get(frame.Destination))
	if err != nil {
		return err
	}
	s.numbered++
	sub := &subscription{number: s.numbered, id: id, queue: q, session: s, mode: mode, prefetch: s.broker.opts.Prefetch}
	if text, ok := f.Header.Contains("activemq.prefetchSize"); ok {
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			sub.prefetch = n
		}
	}
	s.subs[id] = sub
	if f.Header.Get("browser") == "true" {
		sub.browser, sub.browsing = true, q.snapshot()
		sub.browse()
		return nil
	}
	q.subs = append(q.subs, sub)
	q.dispatch()
	return nil
}

func (s *session) unsubscribe(f *frame.Frame) error {
	id := f.Header.Get(frame.Id)
	sub := s.subs[id]
	if sub == nil {
		return fmt.Errorf("No subscription matched: %q", id)
	}
	delete(s.subs, id)
	for ack, d := range s.held {
		if d.sub == sub {
			delete(s.held, ack)
		}
	}
	for _, tx := range s.txs {
		tx.forget(sub)
	}
	sub.end()
	return nil
}

// acknowledge takes ACK and NACK. For a message of a subscription that has ended it does nothing, as in ActiveMQ.
func (s *session) acknowledge(f *frame.Frame) error {
	id := f.Header.Get(frame.Id)
	d := s.held[id]
	if d == nil {
		if s.wasOfEnded(id) {
			return nil
		}
		return fmt.Errorf("Unexpected %s received for message-id [%s]", f.Command, id)
	}
	settled := []*delivery{d}
	if d.sub.mode == "client" { // cumulative
		settled = nil
		for e := d.sub.held.Front(); e != d.place.Next(); e = e.Next() {
			settled = append(settled, e.Value.(*delivery))
		}
	}
	apply := func() {
		for _, d := range settled {
			s.settle(d, f.Command == frame.NACK)
		}
	}
	txID, ok := f.Header.Contains(frame.Transaction)
	if !ok {
		apply()
		d.sub.queue.dispatch()
		return nil
	}
	tx, err := s.transaction(txID)
	if err != nil {
		return err
	}
	for _, d := range settled {
		if d.settled {
			return fmt.Errorf("Unexpected %s received for message-id [%s]", f.Command, id)
		}
	}
	if err := tx.add(0, apply, settled); err != nil {
		return err
	}
	d.sub.queue.dispatch()
	return nil
}

// ackID is <session>:<subscription>:<message>, so that an old one can be told from one that never was.
func (s *session) ackID(sub *subscription) string {
	return fmt.Sprintf("%d:%d:%d", s.serial, sub.number, s.broker.next())
}

// wasOfEnded says whether an ack id was given out for a subscription of this session that has ended meanwhile.
func (s *session) wasOfEnded(id string) bool {
	var session uint64
	var number int
	if n, _ := fmt.Sscanf(id, "%d:%d:", &session, &number); n != 2 || session != s.serial || number > s.numbered {
		return false
	}
	for _, sub := range s.subs {
		if sub.number == number {
			return false
		}
	}
	return true
}
