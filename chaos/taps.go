package main

import (
	"bytes"
	"encoding/binary"
	"net/url"
	"strings"
	"sync"
)

// statements are marks by which the truth database's statements are known; see db. A test holds that each is found in what the program sends.
var statements = []struct{ answer, mark string }{
	{"turn", "with turned as ("}, // claims and settlements: "claim" and "done" are what it leaves
	{"claim", "set status = 'RUNNING', attempts = c.attempts + 1"},
	{"renew", "), renewed as ("},
	{"announce", "sha256 = w.sha256, lease_until = now()"},
	{"upload", "set upload_id = $4"},
	{"done", "set status = 'DONE', completed_at = now(), lease_until = null"},
	{"release", "), noted as ("},
	{"lease", "), leased as ("},
	{"confirm", "set state = 'SENT', sent_at = now(), sends = d.sends + 1"},
	{"pin", "with seen as materialized"},
	{"end", "set status = j.outcome"},
	{"outbox", "delete from outbox"},
	{"commit", "commit"},
	{"export", "export_rows"},
}

// statement is the name of a statement, or "".
func statement(sql string) string {
	sql = strings.TrimSpace(sql)
	for _, s := range statements {
		if s.answer == "commit" && strings.EqualFold(sql, s.mark) || s.answer != "commit" && strings.Contains(sql, s.mark) {
			return s.answer
		}
	}
	return ""
}

// postgresTap follows the wire protocol (version 3). The answer to a statement is all that the server says until it is ready for the next.
type postgresTap struct {
	proxy *proxy

	mu       sync.Mutex
	requests pgMessages
	answers  pgMessages
	prepared map[string]string // statement names
	dropping bool
	ready    bool // the server has answered all that is being dropped
}

func newPostgresTap(p *proxy) tap {
	t := &postgresTap{proxy: p, prepared: map[string]string{}}
	t.requests = pgMessages{untyped: true, each: t.request}
	t.answers = pgMessages{each: t.answer}
	return t
}

func (t *postgresTap) see(direction int, b []byte) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if direction == up {
		t.requests.feed(b)
		return pass
	}
	was := t.dropping
	t.answers.feed(b)
	switch {
	case t.ready:
		return cutOff
	case was:
		return swallow
	}
	return pass
}

func (t *postgresTap) request(kind byte, start []byte) {
	name := ""
	switch kind {
	case 'Q':
		sql, _, _ := bytes.Cut(start, []byte{0})
		name = statement(string(sql))
	case 'P':
		id, rest, _ := bytes.Cut(start, []byte{0})
		sql, _, _ := bytes.Cut(rest, []byte{0})
		t.prepared[string(id)] = statement(string(sql))
	case 'B':
		_, rest, _ := bytes.Cut(start, []byte{0})
		id, _, _ := bytes.Cut(rest, []byte{0})
		name = t.prepared[string(id)]
	}
	if name != "" && !t.dropping && t.proxy.take(name) {
		t.dropping = true
	}
}

func (t *postgresTap) answer(kind byte, _ []byte) {
	t.ready = t.ready || t.dropping && kind == 'Z'
}

// pgMessages cuts a stream into messages and shows the type of each with its first bytes.
type pgMessages struct {
	untyped bool // the next message has no type: a client's first
	each    func(kind byte, start []byte)

	head  []byte
	kind  byte
	left  int
	start []byte
}

const pgStart = 16 << 10

func (m *pgMessages) feed(b []byte) {
	for len(b) > 0 {
		if m.left == 0 {
			size := 5
			if m.untyped {
				size = 4
			}
			n := min(size-len(m.head), len(b))
			m.head, b = append(m.head, b[:n]...), b[n:]
			if len(m.head) < size {
				return
			}
			m.kind, m.left, m.start = 0, int(binary.BigEndian.Uint32(m.head[size-4:]))-4, m.start[:0]
			if !m.untyped {
				m.kind = m.head[0]
			}
			m.head, m.untyped = m.head[:0], false
		}
		n := min(m.left, len(b))
		if keep := min(n, pgStart-len(m.start)); keep > 0 {
			m.start = append(m.start, b[:keep]...)
		}
		m.left, b = m.left-n, b[n:]
		if m.left == 0 {
			m.each(m.kind, m.start)
		}
	}
}

// stompTap drops the receipt of a connection that publishes.
type stompTap struct {
	proxy     *proxy
	mu        sync.Mutex
	publishes bool
}

func newStompTap(p *proxy) tap { return &stompTap{proxy: p} }

func (t *stompTap) see(direction int, b []byte) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if direction == up {
		t.publishes = t.publishes || bytes.Contains(b, []byte("SEND\n"))
		return pass
	}
	if t.publishes && bytes.Contains(b, []byte("RECEIPT\n")) && t.proxy.take("receipt") {
		return cutOff
	}
	return pass
}

// httpTap drops the answer to a request by its kind. Connections are kept alive and requests do not overlap.
type httpTap struct {
	proxy   *proxy
	mu      sync.Mutex
	request string
}

func newHTTPTap(p *proxy) tap { return &httpTap{proxy: p} }

func (t *httpTap) see(direction int, b []byte) verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	if direction == up {
		if kind := requestKind(b); kind != "" {
			t.request = kind
		}
		return pass
	}
	if t.request == "" || bytes.HasPrefix(b, []byte("HTTP/1.1 100 ")) {
		return pass
	}
	kind := t.request
	t.request = ""
	if t.proxy.take(kind) {
		return cutOff
	}
	return pass
}

// requestKind names a request by the line it begins with; "" for what is none.
func requestKind(b []byte) string {
	line, _, ok := bytes.Cut(b, []byte("\r\n"))
	parts := strings.Split(string(line), " ")
	if !ok || len(parts) != 3 || !strings.HasPrefix(parts[2], "HTTP/1.") {
		return ""
	}
	u, err := url.ParseRequestURI(parts[1])
	if err != nil {
		return ""
	}
	query := u.Query()
	switch method := parts[0]; {
	case method == "POST" && u.Path == "/jobs":
		return "submit"
	case method == "POST" && query.Has("uploads"):
		return "create"
	case method == "POST" && query.Has("uploadId"):
		return "complete"
	case method == "PUT" && query.Has("partNumber"):
		return "part"
	case method == "PUT":
		return "put"
	case method == "DELETE" && query.Has("uploadId"):
		return "abort"
	default:
		return strings.ToLower(method)
	}
}
