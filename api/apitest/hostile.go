package apitest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Attack is a request that is wrong in one way.
type Attack struct {
	Method, Target string   // Target as it goes over the wire
	Headers        []string // lines, sent as they are
	Body           string
	// Refused says that the answer must be a 4xx: what is asked for cannot be meant. Other attacks may be shrugged off.
	Refused bool
}

// Values of paths, queries and headers that no call expects.
var hostileValues = []string{
	"", " ", "x", "-1", "0", "1.5", "99999999999999999999999999", "NaN", "null", "true", "\x00", "\xff\xfe", "é", "\u202e", "😀", "'; drop table job; --", `"`, "%", "%s%n", "../../etc/passwd",
	"a\r\nSet-Cookie: x=1", "J20260102_000000", "J20260102_" + strings.Repeat("9", 40), "key=A:date=20250230", "key=:date=", "${jndi:x}", "<script>", "W/\"", "wait=99999999999999999999", "wait=-1",
	strings.Repeat("A", 600), strings.Repeat("é", 3000), base64.RawURLEncoding.EncodeToString([]byte("j1.J20260102_000001")), base64.RawURLEncoding.EncodeToString([]byte("ckey=A:date=20250101")),
	base64.RawURLEncoding.EncodeToString([]byte("j\x00")), "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999+14:00", "2026-13-01", "-292277022399-01-01",
}

// Attacks are made from the document: every parameter, header, field and method of every call, one at a time. The rest of each request is an example of
// the document, with the given values of path parameters, so that it would be valid but for that one thing. Headers that are no call's own are
// tried on one call that takes a body and one that does not.
func (c *Contract) Attacks(own map[string]string) (attacks []Attack) {
	tried := map[bool]bool{}
	for _, op := range c.Operations {
		attacks = append(attacks, op.attacks(own)...)
		if takes := op.Body != nil; !op.Open && !tried[takes] {
			tried[takes] = true
			attacks = append(attacks, op.headerAttacks(own)...)
		}
		for _, method := range []string{"PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "BREW", "get", strings.Repeat("X", 1000)} {
			attacks = append(attacks, Attack{Method: method, Target: op.At(own), Body: string(op.Example), Refused: true})
		}
	}
	return attacks
}

func (op *Operation) attacks(own map[string]string) (attacks []Attack) {
	base := Attack{Method: op.Method, Target: op.At(own), Body: string(op.Example)}
	add := func(refused bool, change func(*Attack)) {
		a := base
		a.Refused = refused
		if !refused && op.Body != nil { // nothing is to be stored
			a.Refused, a.Body = true, "{"
		}
		change(&a)
		attacks = append(attacks, a)
	}
	for _, p := range op.Parameters {
		for _, value := range hostileValues {
			switch p.In {
			case "path":
				values := maps.Clone(own)
				values[p.Name] = value
				add(value != "", func(a *Attack) { a.Target = op.At(values) })
				add(false, func(a *Attack) { a.Target = strings.ReplaceAll(op.Path, "{"+p.Name+"}", strings.Map(visible, value)) })
			case "query":
				add(false, func(a *Attack) { a.Target += "?" + p.Name + "=" + url.QueryEscape(value) })
				add(false, func(a *Attack) {
					a.Target += "?" + p.Name + "=" + url.QueryEscape(p.Example()) + "&" + p.Name + "=" + url.QueryEscape(value)
				})
			case "header":
				add(false, func(a *Attack) { a.Headers = []string{p.Name + ": " + value} })
				add(false, func(a *Attack) { a.Headers = []string{p.Name + ": " + p.Example(), p.Name + ": " + value} })
			}
		}
	}
	for _, value := range hostileValues {
		add(false, func(a *Attack) { a.Target += "?" + url.QueryEscape(value) + "=" + url.QueryEscape(value) })
	}
	if op.Body == nil {
		return attacks
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "application/json; charset=utf-16", ";", "application/json, text/plain"} {
		add(true, func(a *Attack) { a.Headers = []string{"Content-Type: " + media} })
	}
	for _, encoding := range []string{"gzip", "br", "identity, gzip"} {
		add(true, func(a *Attack) { a.Headers = []string{"Content-Encoding: " + encoding} })
	}
	for _, body := range hostileBodies(base.Body, op.Body) {
		add(true, func(a *Attack) { a.Body = body })
	}
	return attacks
}

func (op *Operation) headerAttacks(own map[string]string) (attacks []Attack) {
	a := Attack{Method: op.Method, Target: op.At(own)}
	if op.Body != nil { // nothing is to be stored
		a.Refused, a.Body = true, "{"
	}
	for _, name := range []string{"X-Request-Id", "traceparent", "Accept", "Range", "Cookie", "Origin", "Transfer-Encoding", "Expect", "Upgrade", "X-Forwarded-For", "Host"} {
		for _, value := range hostileValues {
			a.Headers = []string{name + ": " + value}
			attacks = append(attacks, a)
		}
	}
	return attacks
}

// visible leaves out what would end a request line.
func visible(r rune) rune {
	if r <= ' ' {
		return -1
	}
	return r
}

// hostileBodies are the example, broken as a whole and in each of its values.
func hostileBodies(example string, schema map[string]any) []string {
	deep := 100_000
	bodies := []string{
		"", " ", "null", "1", `"x"`, "[]", "[" + example + "]", example + example, example + "\x00", "\xef\xbb\xbf" + example, example[:len(example)/2], strings.ReplaceAll(example, `"`, "'"),
		strings.Repeat("[", deep), strings.Repeat("[", deep) + strings.Repeat("]", deep), strings.Repeat(`{"items":`, deep), strings.Replace(example, "{", "{,", 1),
		strings.Repeat(" ", 9<<20) + example, strings.Replace(example, "{", `{"`+strings.Repeat("n", 1<<20)+`":1,`, 1), "items=1&key=2", "<items/>",
	}
	var value any
	if err := json.Unmarshal([]byte(example), &value); err != nil {
		panic(fmt.Sprintf("the document's example: %v", err))
	}
	// Each value is marked in turn, and the mark replaced in the text, so that what is no JSON can take its place.
	const mark = `"\u0001MARK"`
	encoded := func() string {
		b, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		return string(b)
	}
	walk(value, func(v any, set func(any)) {
		set("\x01MARK")
		text := encoded()
		set(v)
		for _, wrong := range wrongFor(v) {
			bodies = append(bodies, strings.Replace(text, mark, wrong, 1))
		}
		if fields, ok := v.(map[string]any); ok {
			for _, unknown := range []string{"x", "__proto__", "Key", "", strings.Repeat("u", 300)} {
				inner := maps.Clone(fields)
				inner[unknown] = 1
				set(inner)
				bodies = append(bodies, encoded())
			}
			set(v)
		}
	})
	fields, _ := value.(map[string]any)
	required, _ := schema["required"].([]any)
	for name, v := range fields {
		again, _ := json.Marshal(map[string]any{name: v}) // made of JSON
		bodies = append(bodies, strings.TrimSuffix(string(again), "}")+","+strings.TrimPrefix(encoded(), "{"))
		if slices.Contains(required, any(name)) {
			fewer := maps.Clone(fields)
			delete(fewer, name)
			b, _ := json.Marshal(fewer)
			bodies = append(bodies, string(b))
		}
	}
	return bodies
}

// wrongFor is JSON, or nearly, that cannot be meant where v is.
func wrongFor(v any) []string {
	all := map[string][]string{
		"null": {"null"}, "bool": {"true"}, "number": {"7.5", "-1", "1e400", "99999999999999999999"}, "array": {"[]", `[[[[1]]]]`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)},
		"object": {"{}", `{"a":{"a":{}}}`}, "string": {`""`, `"\u0000"`, `"\ud800"`, "\"\xff\"", `"` + strings.Repeat("s", 300_000) + `"`, `"\u202e"`},
		"none": {"", "undefined", "NaN", "'x'", "0x10", "01"},
	}
	switch v.(type) {
	case bool:
		delete(all, "bool")
	case map[string]any:
		all["object"] = all["object"][1:] // all fields may be optional
	}
	return slices.Concat(slices.Collect(maps.Values(all))...)
}

// walk visits v and all that is in it.
func walk(v any, visit func(v any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			visit(inner, func(other any) { v[name] = other })
			walk(inner, visit)
		}
	case []any:
		for i, inner := range v {
			visit(inner, func(other any) { v[i] = other })
			walk(inner, visit)
		}
	}
}

// Send sends the attack over a connection of its own, with further header lines, and reads the answer whole.
func (a Attack) Send(addr string, more ...string) (*http.Response, []byte, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second)) // fails only on a closed connection
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nConnection: close\r\n", a.Method, a.Target)
	lines := slices.Concat(a.Headers, more)
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Host:") }) {
		lines = append(lines, "Host: localhost")
	}
	for _, line := range lines {
		head.WriteString(line + "\r\n")
	}
	if a.Body != "" {
		fmt.Fprintf(&head, "Content-Length: %d\r\n", len(a.Body))
	}
	head.WriteString("\r\n")
	go func() {
		_, _ = conn.Write(append(head.Bytes(), a.Body...)) // a server that has heard enough closes
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: a.Method})
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// String is short enough for a test's message.
func (a Attack) String() string {
	short := func(s string) string {
		if len(s) > 300 {
			return fmt.Sprintf("%.150s…%s (%d bytes)", s, s[len(s)-100:], len(s))
		}
		return s
	}
	return fmt.Sprintf("%q %q %q %q", short(a.Method), short(a.Target), short(fmt.Sprint(a.Headers)), short(a.Body))
}

// Storm sends the attacks, some at a time, with further header lines, and says what Withstand does and what look, which may be nil, says of the answers.
func (c *Contract) Storm(attacks []Attack, addr string, look func(Attack, []byte) error, more ...string) (faults []error) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(8)
	for _, a := range attacks {
		group.Go(func() error {
			body, err := c.Withstand(a, addr, more...)
			if err == nil && look != nil {
				err = look(a, body)
			}
			if err != nil {
				mu.Lock()
				faults = append(faults, err)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait() // faults has it all
	return faults
}

// Withstand sends the attack and says what is wrong with the answer: an error of the server's, one that is not as documented, or success where the
// attack must be refused.
func (c *Contract) Withstand(a Attack, addr string, more ...string) (body []byte, err error) {
	resp, body, err := a.Send(addr, more...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", a, err)
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented && resp.StatusCode != http.StatusHTTPVersionNotSupported,
		a.Refused && resp.StatusCode < 400:
		return body, fmt.Errorf("%s: %d %.500s", a, resp.StatusCode, body)
	case resp.Header.Get("X-Request-Id") == "" && resp.StatusCode >= 400: // net/http could not read the request
		return body, nil
	}
	if err := c.Check(a.Method, a.Target, resp, body); err != nil {
		return body, fmt.Errorf("%s: %w", a, err)
	}
	return body, nil
}
