package db

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainCSV says the rules once more, slowly.
func plainCSV(rows [][][]byte) string {
	var b strings.Builder
	for _, row := range rows {
		for i, v := range row {
			if i > 0 {
				b.WriteByte(',')
			}
			if v == nil {
				continue
			}
			if s := string(v); s == "" || strings.ContainsAny(s, "\",\r\n") || s == `\.` && len(row) == 1 {
				b.WriteString(`"` + strings.ReplaceAll(s, `"`, `""`) + `"`)
			} else {
				b.WriteString(s)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestValuesOfEverySizeAroundTheBufferAreWrittenWholeAndInOrder(t *testing.T) {
	sizes := []int{0, 1, 7, 8, 9, 15, 16, 17, 100, csvBuffer/2 - 5, csvBuffer/2 - 4, csvBuffer/2 - 3, csvBuffer/2 - 2, csvBuffer/2 - 1, csvBuffer / 2, csvBuffer - 4, csvBuffer - 1, csvBuffer, csvBuffer + 1, 3*csvBuffer + 17}
	fill := []func(i int) byte{
		func(int) byte { return 'x' },
		func(int) byte { return '"' },
		func(i int) byte { return "ab,c\"d\ne\rf"[i%10] },
	}
	var rows [][][]byte
	for _, n := range sizes {
		for _, f := range fill {
			v := make([]byte, n)
			for i := range v {
				v[i] = f(i)
			}
			rows = append(rows, [][]byte{v}, [][]byte{nil, v, []byte("k"), v, nil}, [][]byte{[]byte(`\.`)}, [][]byte{nil})
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		var b bytes.Buffer
		c := newCSVWriter(&b)
		for _, row := range rows {
			c.row(row)
		}
		c.flush()
		if c.err != nil || cap(c.buf) != csvBuffer {
			t.Fatalf("err %v, the buffer grew to %d", c.err, cap(c.buf))
		}
		c.release()
		if b.String() != plainCSV(rows) {
			t.Fatal("the bytes differ")
		}
	}
}

func TestTheScanFindsEverySpecialByteAtEveryPlaceAndNoOther(t *testing.T) {
	for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 17, 23, 63, 64, 65} {
		v := make([]byte, n)
		for at := range n {
			for b := range 256 {
				for _, around := range []byte{'a', 0, 0xff, ',' - 1, ',' + 1} {
					for i := range v {
						v[i] = around
					}
					v[at] = byte(b)
					if got, want := csvQuoted(v), bytes.ContainsAny(v, "\",\r\n"); got != want {
						t.Fatalf("%q: %v", v, got)
					}
				}
			}
		}
	}
}

type failing struct {
	calls int
	n     int
	err   error
}

func (f *failing) Write(b []byte) (int, error) { f.calls++; return min(f.n, len(b)), f.err }

func TestTheFirstErrorOfTheWriterStaysAndItIsNotCalledAgain(t *testing.T) {
	full := errors.New("disk full")
	for _, w := range []*failing{{err: full}, {n: 1}} {
		c := newCSVWriter(w)
		for range 3 {
			c.row([][]byte{bytes.Repeat([]byte("x"), csvBuffer)})
			c.flush()
		}
		want := w.err
		if want == nil {
			want = io.ErrShortWrite
		}
		if !errors.Is(c.err, want) || w.calls != 1 {
			t.Errorf("err %v after %d calls", c.err, w.calls)
		}
	}
}

func FuzzCSVWriterAgreesWithThePlainRules(f *testing.F) {
	f.Add([]byte("a"), []byte(`\.`), []byte("\x00,\""))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		rows := [][][]byte{{a}, {a, b}, {c, nil, a}, {b}}
		var out bytes.Buffer
		w := newCSVWriter(&out)
		for _, row := range rows {
			w.row(row)
		}
		w.flush()
		if diff := cmp.Diff(plainCSV(rows), out.String()); diff != "" {
			t.Error(diff)
		}
	})
}

func BenchmarkCSVQuoted(b *testing.B) {
	for _, v := range []string{"12345", "2025-01-31", "a name of thirty bytes or so___", strings.Repeat("plain text without any special ", 8)} {
		v := []byte(v)
		for name, f := range map[string]func([]byte) bool{
			"chosen": csvQuoted,
			"table": func(v []byte) bool {
				for _, c := range v {
					if csvSpecial[c] {
						return true
					}
				}
				return len(v) == 0
			},
			"indexbyte": func(v []byte) bool {
				return len(v) == 0 || bytes.IndexByte(v, ',') >= 0 || bytes.IndexByte(v, '"') >= 0 || bytes.IndexByte(v, '\n') >= 0 || bytes.IndexByte(v, '\r') >= 0
			},
			"indexany": func(v []byte) bool { return len(v) == 0 || bytes.ContainsAny(v, ",\"\n\r") },
		} {
			b.Run(name+"/"+string(v[:5]), func(b *testing.B) {
				b.SetBytes(int64(len(v)))
				for b.Loop() {
					f(v)
				}
			})
		}
	}
}
