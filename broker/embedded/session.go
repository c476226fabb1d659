package embedded

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-stomp/stomp/v3/frame"
)

const (
	loginTimeout = 10 * time.Second
	writeTimeout = 30 * time.Second
	// above messageRoom bytes waiting for the writer no message is sent; above answerRoom the reader stops. The gap keeps acks flowing while
	// messages are held up.
	messageRoom = 1 << 20
	answerRoom  = 4 << 20
	// silence is how many heart-beats a client may miss.
	silence = 2.5
)

// session is one connection. All but the goroutines' own variables is guarded by Broker.mu.
type session struct {
	broker *Broker
	serial uint64
	socket net.Conn

	connected bool
	out       []*frame.Frame
	outBytes  int
	wake      chan struct{} // tells the writer of out, ending, ended or beat
	roomy     *sync.Cond    // tells the reader that out shrank
	ending    bool          // write what waits, then end
	ended     bool
	beat      time.Duration // between our heart-beats
	patience  time.Duration // with the client's silence; 0: for ever

	numbered  int // subscriptions so far
	subs      map[string]*subscription
	held      map[string]*delivery // by ack id
	txs       map[string]*transaction
	temporary map[string]*queue
}

func newSession(b *Broker, socket net.Conn) *session {
	return &session{
		broker: b, serial: b.next(), socket: socket, wake: make(chan struct{}, 1), roomy: sync.NewCond(&b.mu),
		subs: map[string]*subscription{}, held: map[string]*delivery{}, txs: map[string]*transaction{}, temporary: map[string]*queue{},
	}
}

// read handles the client's frames until the connection ends.
func (s *session) read() {
	b := s.broker
	r := bufio.NewReaderSize(&patientReader{s}, maxLine+2)
	s.socket.SetReadDeadline(time.Now().Add(loginTimeout))
	for {
		f, err := readFrame(r, b.opts.MaxFrame)
		b.mu.Lock()
		for err == nil && s.outBytes > answerRoom && !s.ended {
			s.roomy.Wait()
		}
		switch {
		case s.ended:
		case err == io.EOF:
			s.end()
		case err != nil:
			s.refuse(nil, err)
		case f != nil:
			if err := s.handle(f); err != nil {
				s.refuse(f, err)
			}
		}
		ended, ending := s.ended, s.ending
		b.mu.Unlock()
		switch {
		case ended:
			return
		case ending: // closing a socket with unread input would destroy our last words
			io.Copy(io.Discard, s.socket)
			b.mu.Lock()
			s.end()
			b.mu.Unlock()
			return
		}
	}
}

// patientReader moves the deadline with every read once the client is connected.
type patientReader struct{ s *session }

func (p *patientReader) Read(buf []byte) (int, error) {
	p.s.broker.mu.Lock()
	connected, patience := p.s.connected, p.s.patience
	p.s.broker.mu.Unlock()
	if connected {
		deadline := time.Time{}
		if patience > 0 {
			deadline = time.Now().Add(patience)
		}
		p.s.socket.SetReadDeadline(deadline)
	}
	return p.s.socket.Read(buf)
}

// write sends what waits, and heart-beats when nothing does.
func (s *session) write() {
	buffered := bufio.NewWriterSize(s.socket, 16<<10)
	frames := frame.NewWriter(struct{ io.Writer }{buffered}) // flushes into buffered after each frame
	for {
		s.broker.mu.Lock()
		batch, ending, ended, beat := s.out, s.ending, s.ended, s.beat
		s.out = nil
		s.broker.mu.Unlock()
		switch {
		case ended:
			return
		case ending && len(batch) == 0:
			s.lastWords()
			return
		case len(batch) > 0:
			err := s.writeBatch(frames, buffered, batch)
			s.written(batch, err)
			continue
		}
		var heart <-chan time.Time
		if beat > 0 {
			heart = time.After(beat)
		}
		select {
		case <-s.wake:
		case <-heart:
			s.written(nil, s.writeBatch(frames, buffered, []*frame.Frame{nil}))
		}
	}
}

func (s *session) writeBatch(frames *frame.Writer, buffered *bufio.Writer, batch []*frame.Frame) error {
	s.socket.SetWriteDeadline(time.Now().Add(writeTimeout))
	for _, f := range batch {
		if err := frames.Write(f); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// written accounts for what left the queue, and sends on if that made room.
func (s *session) written(batch []*frame.Frame, err error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if err != nil {
		s.end()
		return
	}
	for _, f := range batch {
		s.outBytes -= size(f)
	}
	s.roomy.Signal()
	s.refill()
}

// lastWords tells the client that nothing follows, and the reader to wait only a moment for it to hang up.
func (s *session) lastWords() {
	if half, ok := s.socket.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	s.socket.SetReadDeadline(time.Now().Add(time.Second))
}

// refill is called when the writer made room.
func (s *session) refill() {
	for _, sub := range s.subs {
		if sub.browser {
			sub.browse()
		} else {
			sub.queue.dispatch()
		}
	}
}

// send queues a frame for the writer; nil is a heart-beat.
func (s *session) send(f *frame.Frame) {
	if s.ended || s.ending {
		return
	}
	s.out = append(s.out, f)
	s.outBytes += size(f)
	s.signal()
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) room() bool { return !s.ended && !s.ending && s.outBytes < messageRoom }

// size is about what a frame costs in memory.
func size(f *frame.Frame) int {
	if f == nil {
		return 1
	}
	n := 64 + len(f.Body)
	for i := range f.Header.Len() {
		k, v := f.Header.GetAt(i)
		n += 32 + len(k) + len(v)
	}
	return n
}

// refuse answers with an ERROR frame, after which the connection ends.
func (s *session) refuse(f *frame.Frame, err error) {
	answer := frame.New(frame.ERROR, frame.Message, err.Error(), frame.ContentType, "text/plain")
	if f != nil {
		if receipt, ok := f.Header.Contains(frame.Receipt); ok {
			answer.Header.Add(frame.ReceiptId, receipt)
		}
	}
	answer.Body = []byte(err.Error())
	s.send(answer)
	s.hangUp()
}

// hangUp ends the connection once what waits is written. What the client held is free at once.
func (s *session) hangUp() {
	s.ending = true
	s.socket.SetReadDeadline(time.Now().Add(writeTimeout)) // the writer shortens it
	s.letGo()
	s.signal()
}

// end ends the connection now.
func (s *session) end() {
	if s.ended {
		return
	}
	s.ended = true
	s.letGo()
	delete(s.broker.sessions, s)
	if t, ok := s.socket.(*tls.Conn); ok {
		t.NetConn().Close() // the TLS connection's own Close may block, and the lock is held
	} else {
		s.socket.Close()
	}
	s.signal()
	s.roomy.Signal()
}

// letGo returns everything that the session holds.
func (s *session) letGo() {
	for id, sub := range s.subs {
		delete(s.subs, id)
		sub.end()
	}
	clear(s.held)
	clear(s.txs)
	clear(s.temporary)
}
