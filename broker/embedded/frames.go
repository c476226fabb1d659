package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-stomp/stomp/v3/frame"
)

// ActiveMQ's limits.
const (
	maxLine    = 10240
	maxHeaders = 1000
)

var errFrame = errors.New("broken frame")

// readFrame reads one frame, or nil for a heart-beat. go-stomp's reader is not used here: it believes any content-length and any length of line,
// so that a few bytes of garbage cost gigabytes.
func readFrame(r *bufio.Reader, maxBody int) (*frame.Frame, error) {
	command, err := readLine(r)
	if err != nil || len(command) == 0 {
		return nil, err
	}
	f := frame.New(string(command))
	for {
		line, err := readLine(r)
		if err != nil {
			return nil, noEOF(err)
		}
		if len(line) == 0 {
			break
		}
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(key) == 0 {
			return nil, fmt.Errorf("%w: a header without name or colon", errFrame)
		}
		if f.Header.Len() == maxHeaders {
			return nil, fmt.Errorf("%w: The maximum number of headers was exceeded", errFrame)
		}
		k, errK := unescape(string(key))
		v, errV := unescape(string(value))
		if err := errors.Join(errK, errV); err != nil {
			if f.Command != frame.CONNECT {
				return nil, err
			}
			// STOMP 1.2 says that CONNECT is not escaped. go-stomp escapes and ActiveMQ unescapes it all the same; a client that does not is understood too.
			k, v = string(key), string(value)
		}
		f.Header.Add(k, v)
	}
	f.Body, err = readBody(r, f.Header, maxBody)
	return f, err
}

func readBody(r *bufio.Reader, h *frame.Header, most int) ([]byte, error) {
	text, ok := h.Contains(frame.ContentLength)
	if !ok {
		return readUntilNUL(r, most)
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%w: content-length %q", errFrame, text)
	}
	if n > most {
		return nil, fmt.Errorf("%w: The maximum data length was exceeded", errFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, noEOF(err)
	}
	end, err := r.ReadByte()
	if err == nil && end != 0 {
		return nil, fmt.Errorf("%w: content-length bytes were read and there was no trailing null byte", errFrame)
	}
	return body, noEOF(err)
}

func readUntilNUL(r *bufio.Reader, most int) ([]byte, error) {
	body := []byte{}
	for {
		part, err := r.ReadSlice(0)
		if len(body)+len(part) > most+1 {
			return nil, fmt.Errorf("%w: The maximum data length was exceeded", errFrame)
		}
		body = append(body, part...)
		switch err {
		case nil:
			return body[:len(body)-1], nil
		case bufio.ErrBufferFull:
		default:
			return nil, noEOF(err)
		}
	}
}

// readLine returns a line without its end, valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull || len(line) > maxLine {
		return nil, fmt.Errorf("%w: The maximum header length was exceeded", errFrame)
	}
	if err != nil {
		if len(line) > 0 {
			err = noEOF(err)
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// noEOF: the end of the stream within a frame is no orderly end.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) {
			return "", fmt.Errorf("%w: a header ends in a backslash", errFrame)
		}
		plain, ok := map[byte]byte{'n': '\n', 'r': '\r', 'c': ':', '\\': '\\'}[s[i]]
		if !ok {
			return "", fmt.Errorf("%w: undefined escape sequence \\%c in a header", errFrame, s[i])
		}
		out.WriteByte(plain)
	}
	return out.String(), nil
}
