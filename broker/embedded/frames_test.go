package embedded

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/go-stomp/stomp/v3/frame"
	"github.com/google/go-cmp/cmp"
)

func read(input string) (*frame.Frame, error) {
	return readFrame(bufio.NewReaderSize(strings.NewReader(input), maxLine+2), 1<<16)
}

func headers(f *frame.Frame) map[string]string {
	all := map[string]string{}
	for i := range f.Header.Len() {
		k, v := f.Header.GetAt(i)
		all[k] = v
	}
	return all
}

func TestFramesAreRead(t *testing.T) {
	for _, c := range []struct {
		name, input, command, body string
		headers                    map[string]string
	}{
		{"no length", "SEND\ndestination:/queue/a\n\nbody\x00", "SEND", "body", map[string]string{"destination": "/queue/a"}},
		{"with length and NUL", "SEND\ncontent-length:3\n\na\x00b\x00", "SEND", "a\x00b", map[string]string{"content-length": "3"}},
		{"carriage returns", "ACK\r\nid:7\r\n\r\n\x00", "ACK", "", map[string]string{"id": "7"}},
		{"escapes", "SEND\na\\cb:1\\n2\\r3\\\\4\\c5\n\n\x00", "SEND", "", map[string]string{"a:b": "1\n2\r3\\4:5"}},
		{"unescaped login", "CONNECT\npasscode:a\\tb:c\n\n\x00", "CONNECT", "", map[string]string{"passcode": "a\\tb:c"}},
		{"empty value", "SEND\na:\n\n\x00", "SEND", "", map[string]string{"a": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := read(c.input)
			if err != nil {
				t.Fatal(err)
			}
			if f.Command != c.command || string(f.Body) != c.body {
				t.Errorf("got %s with %q", f.Command, f.Body)
			}
			if diff := cmp.Diff(c.headers, headers(f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBrokenFramesAreErrors(t *testing.T) {
	for name, input := range map[string]string{
		"no colon":           "SEND\nabc\n\n\x00",
		"no name":            "SEND\n:x\n\n\x00",
		"bad escape":         "SEND\na:\\t\n\n\x00",
		"trailing backslash": "SEND\na:\\\n\n\x00",
		"negative length":    "SEND\ncontent-length:-1\n\n\x00",
		"huge length":        "SEND\ncontent-length:4000000000\n\n\x00",
		"length too short":   "SEND\ncontent-length:1\n\nab\x00",
		"body too long":      "SEND\n\n" + strings.Repeat("x", 1<<16+1) + "\x00",
		"line too long":      "SEND\na:" + strings.Repeat("x", maxLine) + "\n\n\x00",
		"too many headers":   "SEND\n" + strings.Repeat("a:b\n", maxHeaders+1) + "\n\x00",
		"cut in the command": "SEN",
		"cut in a header":    "SEND\na:b",
		"cut in the body":    "SEND\ncontent-length:9\n\nabc",
		"no end":             "SEND\n\nabc",
	} {
		if f, err := read(input); err == nil || err == io.EOF {
			t.Errorf("%s: got %v, %v", name, f, err)
		}
	}
	if _, err := read(""); err != io.EOF {
		t.Errorf("an orderly end gives %v", err)
	}
	if f, err := read("\n"); f != nil || err != nil {
		t.Errorf("a heart-beat gives %v, %v", f, err)
	}
}

// Whatever is read can be written by go-stomp and read again.
func FuzzFramesSurviveWriting(f *testing.F) {
	f.Add([]byte("SEND\ndestination:/queue/a\\c\ncontent-length:3\n\na\x00b\x00"))
	f.Add([]byte("CONNECT\nlogin:x\\y\n\n\x00"))
	f.Add([]byte("\n\r\nACK\r\nid:1\r\n\r\n\x00"))
	f.Fuzz(func(t *testing.T, input []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(input), maxLine+2)
		for {
			first, err := readFrame(r, 1<<12)
			if err != nil {
				return
			}
			if first == nil || strings.ContainsAny(first.Command, "\r") {
				continue
			}
			if _, ok := first.Header.Contains(frame.ContentLength); !ok && bytes.IndexByte(first.Body, 0) >= 0 {
				t.Fatalf("a body without length holds NUL: %q", first.Body)
			}
			var written bytes.Buffer
			if err := frame.NewWriter(&written).Write(first); err != nil {
				t.Fatal(err)
			}
			second, err := readFrame(bufio.NewReaderSize(&written, 4*maxLine), 1<<12)
			if err != nil {
				if strings.Contains(err.Error(), "header length") {
					continue // escaping made a line longer
				}
				t.Fatalf("%q: %v", input, err)
			}
			if second.Command != first.Command || !bytes.Equal(second.Body, first.Body) || cmp.Diff(headers(first), headers(second)) != "" {
				t.Fatalf("%+v became %+v", first, second)
			}
		}
	})
}
