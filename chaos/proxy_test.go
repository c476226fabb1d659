package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers every byte with itself, until the test ends.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func testProxy(t *testing.T, newTap func(*proxy) tap) (p *proxy, dropped *[]string) {
	t.Helper()
	dropped = new([]string)
	p, err := newProxy("test", echo(t), newTap, func(answer string) { *dropped = append(*dropped, answer) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p, dropped
}

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// says writes b and says whether it comes back within a moment.
func says(t *testing.T, c net.Conn, b string) error {
	t.Helper()
	if _, err := io.WriteString(c, b); err != nil {
		return err
	}
	return hears(t, c, b)
}

func hears(t *testing.T, c net.Conn, b string) error {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(b))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != b {
		t.Fatalf("got %q, want %q", got, b)
	}
	return nil
}

func TestWhatIsStalledArrivesLater(t *testing.T) {
	p, _ := testProxy(t, nil)
	c := dial(t, p)
	if err := says(t, c, "before"); err != nil {
		t.Fatal(err)
	}
	for _, direction := range []int{up, down} {
		a := ailment{}
		a.stalled[direction] = true
		heal := p.ail(nil, all, a)
		if err := says(t, c, "while"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("while stalled: %v", err)
		}
		other := dial(t, p)
		if err := says(t, other, "another"); err != nil {
			t.Errorf("a new connection: %v", err)
		}
		heal()
		if err := hears(t, c, "while"); err != nil {
			t.Errorf("after: %v", err)
		}
	}
}

func TestADeafConnectionSaysNothingUntilItIsHealed(t *testing.T) {
	p, _ := testProxy(t, nil)
	c := dial(t, p)
	if err := says(t, c, "before"); err != nil {
		t.Fatal(err)
	}
	heal := p.ail(nil, andNew, ailment{deaf: true})
	for _, c := range []net.Conn{c, dial(t, p)} {
		if err := says(t, c, "while"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("while deaf: %v", err)
		}
	}
	heal()
	if err := hears(t, c, "while"); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after: %v, want the end of the connection", err)
	}
	if err := says(t, dial(t, p), "new"); err != nil {
		t.Error(err)
	}
}

func TestConnectionsAreCutAndRefused(t *testing.T) {
	p, _ := testProxy(t, nil)
	a, b := dial(t, p), dial(t, p)
	for _, c := range []net.Conn{a, b} {
		if err := says(t, c, "before"); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.cut(rand.New(rand.NewPCG(1, 1)), one); n != 1 {
		t.Errorf("%d connections were cut, want one", n)
	}
	ended := count(says(t, a, "x") != nil) + count(says(t, b, "x") != nil)
	if ended != 1 {
		t.Errorf("%d connections have ended, want one", ended)
	}
	heal := p.refuse()
	if says(t, a, "x") == nil || says(t, b, "x") == nil {
		t.Error("a connection is alive")
	}
	if fresh, err := net.Dial("tcp", p.addr()); err == nil { // else it was cut before it was there
		defer fresh.Close()
		if says(t, fresh, "x") == nil {
			t.Error("a new connection is alive")
		}
	}
	heal()
	if err := says(t, dial(t, p), "x"); err != nil {
		t.Error(err)
	}
}

// message is one of Postgres's wire protocol.
func message(kind byte, body string) string {
	n := len(body) + 4
	return string([]byte{kind, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + body
}

// scripted is a tap that passes on, as if it were the server's, what the test says.
func TestOnlyTheAnswerToTheArmedStatementIsDropped(t *testing.T) {
	var taken []string
	p := &proxy{armed: map[string]int{}, dropped: func(a string) { taken = append(taken, a) }}
	p.arm(context.Background(), "claim")
	tp := newPostgresTap(p)
	tp.see(up, []byte("\x00\x00\x00\x08\x00\x03\x00\x00")) // startup
	see := func(direction int, want verdict, messages ...string) {
		t.Helper()
		// Byte by byte, as the network might: the last verdict counts.
		var got verdict
		for _, b := range bytes.Join(toBytes(messages), nil) {
			got = tp.see(direction, []byte{b})
		}
		if got != want {
			t.Errorf("%q: verdict %d, want %d", messages, got, want)
		}
	}
	see(up, pass, message('P', "s1\x00select attempts = c.attempts + 1\x00"), message('S', "")) // not the mark
	see(down, pass, message('1', ""), message('Z', "I"))
	see(up, pass, message('P', "s2\x00update job_chunk c set status = 'RUNNING', attempts = c.attempts + 1\x00"), message('S', ""))
	see(down, pass, message('1', ""), message('Z', "I")) // preparing is not running
	see(up, pass, message('B', "\x00s1\x00"), message('E', "\x00"), message('S', ""))
	see(down, pass, message('2', ""), message('C', "SELECT 1\x00"), message('Z', "I"))
	see(up, pass, message('B', "\x00s2\x00"), message('E', "\x00"), message('S', ""))
	see(down, swallow, message('2', ""), message('C', "UPDATE 1\x00"))
	see(down, cutOff, message('Z', "I"))
	if len(taken) != 1 || taken[0] != "claim" || p.armed["claim"] != 0 {
		t.Errorf("taken %q, still armed: %v", taken, p.armed)
	}
}

func toBytes(s []string) (b [][]byte) {
	for _, x := range s {
		b = append(b, []byte(x))
	}
	return b
}

func TestHTTPAndSTOMPAnswersAreKnownByTheirRequests(t *testing.T) {
	for line, want := range map[string]string{
		"PUT /b/exports/2020/01/31/A_20200131.csv?x-id=PutObject HTTP/1.1\r\nHost: x": "put",
		"PUT /b/k?partNumber=2&uploadId=u&x-id=UploadPart HTTP/1.1\r\n":               "part",
		"POST /b/k?uploads= HTTP/1.1\r\n":                                             "create",
		"POST /b/k?uploadId=u HTTP/1.1\r\n":                                           "complete",
		"DELETE /b/k?uploadId=u HTTP/1.1\r\n":                                         "abort",
		"HEAD /b/k HTTP/1.1\r\n":                                                      "head",
		"POST /jobs HTTP/1.1\r\n":                                                     "submit",
		"1,PUT /b/k HTTP/1.1":                                                         "",
	} {
		if got := requestKind([]byte(line)); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
	p := &proxy{armed: map[string]int{"put": 1, "receipt": 1}, dropped: func(string) {}}
	h := newHTTPTap(p)
	h.see(up, []byte("PUT /b/k HTTP/1.1\r\nExpect: 100-continue\r\n\r\n"))
	if h.see(down, []byte("HTTP/1.1 100 Continue\r\n\r\n")) != pass || h.see(down, []byte("HTTP/1.1 200 OK\r\n")) != cutOff {
		t.Error("not the answer but what comes before it was dropped")
	}
	s := newStompTap(p)
	if s.see(down, []byte("RECEIPT\nreceipt-id:1\n\n\x00")) != pass {
		t.Error("a receipt of a connection that sends nothing was dropped")
	}
	s.see(up, []byte("SEND\ndestination:/queue/q\n\n{}\x00"))
	if s.see(down, []byte("RECEIPT\nreceipt-id:2\n\n\x00")) != cutOff {
		t.Error("the receipt was not dropped")
	}
}
