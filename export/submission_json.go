package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// checkJSON says what keeps the body from being exactly one JSON value.
func checkJSON(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return errors.New("is empty; a JSON object is expected")
	}
	if !utf8.Valid(body) {
		i := 0
		for i < len(body) {
			r, n := utf8.DecodeRune(body[i:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			i += n
		}
		return fmt.Errorf("is not valid UTF-8 at byte %d", i)
	}
	if json.Valid(body) {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return errors.New("is not valid JSON")
	}
	// Offset counts the bytes read, the offending one included.
	before := string(body[:max(0, min(int(syntax.Offset)-1, len(body)))])
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return fmt.Errorf("is not one JSON value: line %d, column %d: %w", line, column, syntax)
}

// reader walks over JSON that is known to be well-formed and collects faults. Its depth is that of the rules; what the rules do not know is
// skipped without recursion.
type reader struct {
	json string
	at   int
	path []step
	bad  Invalid
}

func (r *reader) faultf(format string, args ...any) {
	if len(r.bad.Faults) >= MaxFaults {
		r.bad.More++
		return
	}
	r.bad.Faults = append(r.bad.Faults, Fault{pointer(r.path), fmt.Sprintf(format, args...)})
}

func (r *reader) push(s step) { r.path = append(r.path, s) }
func (r *reader) pop()        { r.path = r.path[:len(r.path)-1] }

// next is the first byte of the next token.
func (r *reader) next() byte {
	for ; ; r.at++ {
		switch c := r.json[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':': // well-formed: commas and colons carry nothing
		default:
			return c
		}
	}
}

// is says whether the next value begins with one of the bytes; if not, it reports the wrong type and skips the value.
func (r *reader) is(first, want string) bool {
	c := r.next()
	if strings.IndexByte(first, c) >= 0 {
		return true
	}
	r.faultf("must be %s, not %s", want, typeName(c))
	r.skip()
	return false
}

func typeName(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// object calls field for each member with a known name, positioned at its value, which field must consume. Unknown and repeated names are
// faults. It returns the names seen as bits, in the order of known.
func (r *reader) object(known []string, field func(i int)) (seen uint) {
	if !r.is("{", "an object") {
		return ^uint(0) // no complaints about missing members of what is no object
	}
	for r.at++; r.next() != '}'; {
		name, whole := r.text()
		r.next()
		if name == "" || !whole || len(name) > 128 { // no names for a pointer
			r.faultf("has an unknown field with a name of %d bytes", len(name))
			r.skip()
			continue
		}
		r.push(step{name: name})
		switch i := slices.Index(known, name); {
		case i < 0:
			r.unknown(name, known)
			r.skip()
		case seen&(1<<i) != 0:
			r.faultf("is given more than once")
			r.skip()
		default:
			seen |= 1 << i
			field(i)
		}
		r.pop()
	}
	r.at++
	return seen
}

func (r *reader) unknown(name string, known []string) {
	if len(r.bad.Faults) >= MaxFaults { // millions of unknown names must not be compared
		r.bad.More++
		return
	}
	if near := nearest(name, known); near != "" {
		r.faultf("is not a known field; did you mean %q?", near)
		return
	}
	r.faultf("is not a known field; known are %s", strings.Join(known, ", "))
}

// array calls element for each element, which element must consume, and returns how many there were; −1 if the value is no array.
func (r *reader) array(element func()) int {
	if !r.is("[", "an array") {
		return -1
	}
	n := 0
	for r.at++; r.next() != ']'; n++ {
		r.push(step{index: n})
		element()
		r.pop()
	}
	r.at++
	return n
}

// str reads a string; false if the value is none, or holds half of a surrogate pair.
func (r *reader) str() (string, bool) {
	if !r.is(`"`, "a string") {
		return "", false
	}
	s, whole := r.text()
	if !whole {
		r.faultf("holds half of a surrogate pair")
	}
	return s, whole
}

// text reads the string at the current position; whole is false if it holds half of a surrogate pair.
func (r *reader) text() (s string, whole bool) {
	r.at++
	start := r.at
	r.at += strings.IndexByte(r.json[start:], '"')
	s = r.json[start:r.at]
	if i := strings.IndexByte(s, '\\'); i >= 0 {
		r.at = start + i
		return r.escaped(start)
	}
	r.at++
	return s, true
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped reads the rest of a string whose first escape is at the current position.
func (r *reader) escaped(start int) (string, bool) {
	b := []byte(r.json[start:r.at])
	whole := true
	for ; ; r.at++ {
		c := r.json[r.at]
		if c == '"' {
			r.at++
			return string(b), whole
		}
		if c != '\\' {
			b = append(b, c)
			continue
		}
		r.at++
		if c = r.json[r.at]; c != 'u' {
			b = append(b, escapes[c])
			continue
		}
		u := hex4(r.json[r.at+1:])
		r.at += 4
		if utf16.IsSurrogate(u) {
			var low rune
			if strings.HasPrefix(r.json[r.at+1:], `\u`) {
				low = hex4(r.json[r.at+3:])
			}
			if u = utf16.DecodeRune(u, low); u == utf8.RuneError {
				whole = false
			} else {
				r.at += 6
			}
		}
		b = utf8.AppendRune(b, u)
	}
}

// hex4 reads the four hexadecimal digits that s starts with.
func hex4(s string) (u rune) {
	for _, c := range []byte(s[:4]) {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c&^0x20 - 'A' + 10
		}
		u = u<<4 | rune(c)
	}
	return u
}

// literal reads a number, true, false or null.
func (r *reader) literal() string {
	start := r.at
	for r.at < len(r.json) && strings.IndexByte(" \t\r\n,]}", r.json[r.at]) < 0 {
		r.at++
	}
	return r.json[start:r.at]
}

// skip passes over the value at the current position.
func (r *reader) skip() {
	depth := 0
	for {
		switch r.next() {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case '"':
			r.text()
		default:
			r.literal()
		}
		if depth == 0 {
			return
		}
	}
}
