package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/broker/embedded"
	"exportd/export"
)

const hello = "CONNECT\naccept-version:1.2\nhost:h\n\n\x00"

func dial(t testing.TB, b *embedded.Broker) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(b.URL(), "stomp://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

func config(t testing.TB, b *embedded.Broker) broker.Config {
	return broker.Config{URLs: []string{b.URL()}, Log: brokertest.Log(t)}
}

func TestBreachesAreAnsweredWithErrorAndTheEnd(t *testing.T) {
	b := listen(t, embedded.Options{})
	for name, c := range map[string]struct{ input, want string }{
		"not connected":        {"SEND\ndestination:/queue/a\n\nx\x00", "Not connected"},
		"old version":          {"CONNECT\naccept-version:1.0,1.1\n\n\x00", "Supported protocol versions are 1.2"},
		"no version":           {"CONNECT\n\n\x00", "Supported protocol versions are 1.2"},
		"bad heart-beat":       {"CONNECT\naccept-version:1.2\nheart-beat:x\n\n\x00", "heart-beat"},
		"unknown command":      {hello + "GET / HTTP/1.1\n\n\x00", "Unknown STOMP action"},
		"connected twice":      {hello + hello, "Unknown STOMP action"},
		"no destination":       {hello + "SEND\n\nx\x00", "Illegal destination"},
		"topic":                {hello + "SEND\ndestination:/topic/a\n\nx\x00", "Illegal destination"},
		"unknown ack":          {hello + "ACK\nid:77\nreceipt:r1\n\n\x00", "receipt-id:r1"},
		"unknown transaction":  {hello + "COMMIT\ntransaction:t\n\n\x00", "Invalid transaction"},
		"transaction twice":    {hello + "BEGIN\ntransaction:t\n\n\x00BEGIN\ntransaction:t\n\n\x00", "already started"},
		"no subscription id":   {hello + "SUBSCRIBE\ndestination:/queue/a\n\n\x00", "id"},
		"ack mode":             {hello + "SUBSCRIBE\nid:1\nack:maybe\ndestination:/queue/a\n\n\x00", "ack mode"},
		"unknown subscription": {hello + "UNSUBSCRIBE\nid:1\n\n\x00", "No subscription"},
		"frame too large":      {hello + "SEND\ndestination:/queue/a\ncontent-length:2000000\n\n", "maximum data length"},
		"garbage":              {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n\x00", "Not connected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, b)
			if _, err := io.WriteString(conn, c.input); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn) // to the end: the broker hangs up
			if err != nil || !bytes.Contains(answer, []byte("ERROR\n")) || !bytes.Contains(answer, []byte(c.want)) {
				t.Errorf("got %q, %v; want an ERROR about %q", answer, err, c.want)
			}
		})
	}
}

func TestDisconnectIsAnsweredBeforeTheEnd(t *testing.T) {
	b := listen(t, embedded.Options{})
	conn := dial(t, b)
	io.WriteString(conn, hello+"DISCONNECT\nreceipt:bye\n\n\x00")
	if answer, err := io.ReadAll(conn); err != nil || !bytes.HasSuffix(answer, []byte("RECEIPT\nreceipt-id:bye\n\n\x00")) {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestAckAfterUnsubscribeChangesNothing(t *testing.T) {
	b := listen(t, embedded.Options{})
	conn := dial(t, b)
	r := bufio.NewReader(conn)
	io.WriteString(conn, hello+"SUBSCRIBE\nid:1\nack:client-individual\ndestination:/queue/a\n\n\x00SEND\ndestination:/queue/a\n\nx\x00")
	var ack string
	for ack == "" {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		ack, _ = strings.CutPrefix(strings.TrimSpace(line), "ack:")
		if !strings.HasPrefix(line, "ack:") {
			ack = ""
		}
	}
	fmt.Fprintf(conn, "UNSUBSCRIBE\nid:1\n\n\x00ACK\nid:%s\nreceipt:r1\n\n\x00", ack)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no receipt: %v", err)
		}
		if strings.Contains(line, "receipt-id:r1") {
			break
		}
	}
	if d := broker.Depth(t.Context(), config(t, b), "a")[0]; d.Messages != 1 || d.InFlight != 0 {
		t.Errorf("got %+v", d)
	}
}

// A client that subscribes and never reads holds up nobody, and costs about a megabyte.
func TestSlowReaderHoldsUpNobody(t *testing.T) {
	b := listen(t, embedded.Options{})
	slow := dial(t, b)
	io.WriteString(slow, hello+"SUBSCRIBE\nid:1\nack:auto\ndestination:/queue/a\n\n\x00")
	p := broker.NewPublisher(config(t, b))
	defer p.Close()
	big := make([]export.Message, 100)
	for i := range big {
		big[i].Body = bytes.Repeat([]byte("x"), 500_000)
	}
	for range 2 {
		if err := p.Publish(t.Context(), "a", big); err != nil {
			t.Fatal(err)
		}
	}
	quick := broker.NewSubscriber(config(t, b), "a", 4)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		quick.Run(ctx)
		close(ended)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	got := 0
	for d := range broker.Depth(t.Context(), config(t, b), "a")[0].Messages {
		select {
		case m := <-quick.Deliveries():
			m.Ack()
			got++
		case <-time.After(20 * time.Second):
			t.Fatalf("message %d does not come", d)
		}
	}
	if got < 150 { // the rest, some ten megabytes at most, is in the slow one's buffers
		t.Errorf("the quick consumer got %d of 200", got)
	}
}

// A client that asks and never reads the answers is stopped, not buffered without end; it gets them when it reads.
func TestAnswersDoNotPileUp(t *testing.T) {
	b := listen(t, embedded.Options{})
	conn := dial(t, b)
	io.WriteString(conn, hello)
	frame := "BEGIN\ntransaction:t\nreceipt:" + strings.Repeat("r", 5000) + "\n\n\x00ABORT\ntransaction:t\nreceipt:" + strings.Repeat("s", 5000) + "\n\n\x00"
	const n = 5000 // 50 MB of answers
	written := make(chan error, 1)
	go func() {
		for range n {
			if _, err := io.WriteString(conn, frame); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	select {
	case err := <-written:
		t.Fatalf("the broker took everything without being read: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	r := bufio.NewReader(conn)
	for range 1 + 2*n {
		if _, err := r.ReadString(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestSilentClientIsDropped(t *testing.T) {
	b := listen(t, embedded.Options{})
	conn := dial(t, b)
	io.WriteString(conn, "CONNECT\naccept-version:1.2\nheart-beat:200,0\n\n\x00")
	began := time.Now()
	answer, err := io.ReadAll(conn)
	if d := time.Since(began); err != nil || d > 10*time.Second {
		t.Errorf("dropped after %v with %q, %v", d, answer, err)
	}
}

// FuzzBroker feeds anything to a connection that has logged in; the broker must neither fall nor forget the message of others.
func FuzzBroker(f *testing.F) {
	f.Add([]byte("SUBSCRIBE\nid:1\nack:client\ndestination:/queue/f\n\n\x00BEGIN\ntransaction:t\n\n\x00NACK\nid:1:1:1\ntransaction:t\n\n\x00COMMIT\ntransaction:t\n\n\x00"))
	f.Add([]byte("SUBSCRIBE\nid:1\nbrowser:true\ndestination:/temp-queue/f\n\n\x00SEND\ndestination:/queue/ActiveMQ.Statistics.Destination.>\nreply-to:/temp-queue/f\n\n\x00"))
	f.Add([]byte("UNSUBSCRIBE\n\n\x00DISCONNECT\n\n\x00SEND\n\n\x00"))
	f.Fuzz(func(t *testing.T, input []byte) {
		b := listen(t, embedded.Options{})
		p := broker.NewPublisher(broker.Config{URLs: []string{b.URL()}})
		defer p.Close()
		if err := p.Publish(t.Context(), "mine", []export.Message{{Body: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		conn := dial(t, b)
		io.WriteString(conn, hello)
		conn.Write(input)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		if bytes.Contains(input, []byte("mine")) {
			return
		}
		if left, err := broker.Browse(t.Context(), broker.Config{URLs: []string{b.URL()}}, "mine", 9); err != nil || len(left) != 1 {
			t.Fatalf("the message of others: %v, %v", left, err)
		}
	})
}
