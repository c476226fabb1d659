package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// foreigner is a STOMP client of another make: it sends what exportd's own would not.
type foreigner struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (w *world) foreigner() *foreigner {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.Broker.URLs[len(w.Broker.URLs)-1], "stomp://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	f := &foreigner{w.t, conn, bufio.NewReader(conn)}
	f.frame("CONNECT", nil, "accept-version:1.2", "host:/", "login:"+w.Broker.User, "passcode:"+w.Broker.Password)
	f.answer("CONNECTED")
	return f
}

func (f *foreigner) frame(command string, body []byte, headers ...string) {
	f.t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n\n", command, strings.Join(headers, "\n"))
	b.Write(body)
	b.WriteByte(0)
	if err := f.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.conn.Write(b.Bytes()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *foreigner) answer(command string) {
	f.t.Helper()
	got, err := f.in.ReadString(0)
	if err != nil || !strings.HasPrefix(strings.TrimLeft(got, "\n"), command+"\n") {
		f.t.Fatalf("the broker answered %q, %v", got, err)
	}
}

// send sends a body as bytes, or as text.
func (f *foreigner) send(queue string, body []byte, asBytes bool, headers ...string) {
	f.t.Helper()
	headers = append(headers, "destination:/queue/"+queue, "persistent:true", "receipt:r")
	if asBytes {
		headers = append(headers, fmt.Sprintf("content-length:%d", len(body)))
	}
	f.frame("SEND", body, headers...)
	f.answer("RECEIPT")
}
