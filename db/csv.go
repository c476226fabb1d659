package db

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
)

// csvWriter writes rows of text values as COPY … (FORMAT csv) does: NULL is nothing, the empty string is "", and a value is quoted when it holds
// the delimiter, a quote, CR or LF, or is \. and alone in its row (PostgreSQL, src/backend/commands/copyto.c, CopyAttributeOutCSV). Column names follow
// the same rules. Lines end with LF.
//
// It gathers bytes in a buffer of fixed size; w never sees a value before the buffer is full or flush is called. The first error of w stays.
type csvWriter struct {
	w       io.Writer
	plain   []bool // the columns whose values never need quotes; none where it ends
	buf     []byte
	started bool // w was called
	err     error
}

// csvBuffer is the size of one write: large enough that a hash or a part buffer behind it works in bulk.
const csvBuffer = 64 << 10

var csvBuffers = sync.Pool{New: func() any { return new([csvBuffer]byte) }}

func newCSVWriter(w io.Writer) *csvWriter {
	return &csvWriter{w: w, buf: csvBuffers.Get().(*[csvBuffer]byte)[:0]}
}

// release gives the buffer back; the writer must not be used any more.
func (c *csvWriter) release() {
	csvBuffers.Put((*[csvBuffer]byte)(c.buf[:csvBuffer]))
	c.buf = nil
}

// row writes one line; a nil value is NULL.
func (c *csvWriter) row(values [][]byte) {
	for i, v := range values {
		// Room for the value with every byte doubled, its quotes, the comma before it and the end of the line.
		if 2*len(v)+4 > cap(c.buf)-len(c.buf) {
			c.flush()
		}
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		switch {
		case v == nil:
		case 2*len(v)+4 > cap(c.buf):
			c.long(v)
		case i < len(c.plain) && c.plain[i]:
			c.buf = append(c.buf, v...)
		case csvQuoted(v) || len(values) == 1 && string(v) == `\.`:
			c.buf = append(c.buf, '"')
			c.buf = appendDoubled(c.buf, v)
			c.buf = append(c.buf, '"')
		default:
			c.buf = append(c.buf, v...)
		}
	}
	if len(c.buf) == cap(c.buf) {
		c.flush()
	}
	c.buf = append(c.buf, '\n')
}

// long writes a value that does not fit the buffer.
func (c *csvWriter) long(v []byte) {
	if !csvQuoted(v) {
		c.flush()
		c.write(v)
		return
	}
	const piece = csvBuffer/2 - 4
	c.buf = append(c.buf, '"')
	for len(v) > 0 {
		n := min(len(v), piece)
		if 2*n > cap(c.buf)-len(c.buf) {
			c.flush()
		}
		c.buf = appendDoubled(c.buf, v[:n])
		v = v[n:]
	}
	if len(c.buf) == cap(c.buf) {
		c.flush()
	}
	c.buf = append(c.buf, '"')
}

func (c *csvWriter) flush() {
	c.write(c.buf)
	c.buf = c.buf[:0]
}

func (c *csvWriter) write(b []byte) {
	if c.err != nil || len(b) == 0 {
		return
	}
	c.started = true
	n, err := c.w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	c.err = err
}

// appendDoubled appends v with every quote doubled.
func appendDoubled(dst, v []byte) []byte {
	for {
		i := bytes.IndexByte(v, '"')
		if i < 0 {
			return append(dst, v...)
		}
		dst = append(dst, v[:i+1]...)
		dst = append(dst, '"')
		v = v[i+1:]
	}
}

var csvSpecial = [256]bool{',': true, '"': true, '\n': true, '\r': true}

// csvLong is the length from which four vectorised searches are faster than eight bytes at a time (BenchmarkCSVQuoted).
const csvLong = 64

// csvQuoted says whether v is empty or holds a delimiter, a quote, CR or LF.
func csvQuoted(v []byte) bool {
	switch {
	case len(v) < 8:
		for _, b := range v {
			if csvSpecial[b] {
				return true
			}
		}
		return len(v) == 0
	case len(v) >= csvLong:
		return bytes.IndexByte(v, ',') >= 0 || bytes.IndexByte(v, '"') >= 0 || bytes.IndexByte(v, '\n') >= 0 || bytes.IndexByte(v, '\r') >= 0
	}
	for i := 0; i < len(v)-8; i += 8 {
		if csvSpecialIn(binary.LittleEndian.Uint64(v[i:])) {
			return true
		}
	}
	return csvSpecialIn(binary.LittleEndian.Uint64(v[len(v)-8:]))
}

// csvSpecialIn says whether any of the eight bytes of x is special. (y-ones) &^ y has a high bit set exactly when a byte of y is zero.
func csvSpecialIn(x uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	comma, quote, lf, cr := x^(ones*','), x^(ones*'"'), x^(ones*'\n'), x^(ones*'\r')
	return ((comma-ones)&^comma|(quote-ones)&^quote|(lf-ones)&^lf|(cr-ones)&^cr)&highs != 0
}
