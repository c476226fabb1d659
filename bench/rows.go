package main

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/export"
)

// rowSource reads rows as whoever wants them fast would without exportd: all values in text, by a statement that is prepared once, in a session of fixed settings,
// with COPY's CSV rules.
type rowSource struct{ pool *pgxpool.Pool }

const rowsStatement = "export_rows"

func openRows(ctx context.Context, url string, connections int) (*rowSource, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	for name, value := range map[string]string{"timezone": "UTC", "datestyle": "ISO, YMD", "intervalstyle": "postgres", "extra_float_digits": "1", "bytea_output": "hex",
		"max_parallel_workers_per_gather": "0", "synchronize_seqscans": "off"} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.PgConn().Prepare(ctx, rowsStatement, "select * from export_rows($1, $2)", []uint32{pgtype.TextOID, pgtype.DateOID})
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return &rowSource{pool}, err
}

func (s *rowSource) close() { s.pool.Close() }

const rowsBuffer = 64 << 10

// export writes the rows of a chunk.
func (s *rowSource) export(ctx context.Context, r export.Ref, w io.Writer) (rows int64, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	rr := conn.Conn().PgConn().ExecPrepared(ctx, rowsStatement, [][]byte{[]byte(r.Key), []byte(r.Date.ISO())}, nil, nil)
	buf := make([]byte, 0, rowsBuffer+4096)
	for i, f := range rr.FieldDescriptions() {
		buf = appendField(buf, i, []byte(f.Name))
	}
	buf = append(buf, '\n')
	for rr.NextRow() {
		for i, v := range rr.Values() {
			buf = appendField(buf, i, v)
		}
		buf = append(buf, '\n')
		rows++
		if len(buf) >= rowsBuffer {
			if _, err := w.Write(buf); err != nil {
				return rows, closeAfter(rr, err)
			}
			buf = buf[:0]
		}
	}
	if _, err := rr.Close(); err != nil {
		return rows, err
	}
	_, err = w.Write(buf)
	return rows, err
}

func closeAfter(rr *pgconn.ResultReader, err error) error {
	_, _ = rr.Close()
	return err
}

func appendField(dst []byte, i int, v []byte) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	if v == nil || len(v) > 0 && !special(v) {
		return append(dst, v...)
	}
	dst = append(dst, '"')
	for _, b := range v {
		if b == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, b)
	}
	return append(dst, '"')
}

// special says whether v needs quotes; it looks at eight bytes at a time.
func special(v []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(v) >= 8 {
		x := binary.LittleEndian.Uint64(v)
		a, b, c, d := x^(ones*','), x^(ones*'"'), x^(ones*'\n'), x^(ones*'\r')
		if ((a-ones)&^a|(b-ones)&^b|(c-ones)&^c|(d-ones)&^d)&highs != 0 {
			return true
		}
		v = v[8:]
	}
	for _, b := range v {
		if b == ',' || b == '"' || b == '\n' || b == '\r' {
			return true
		}
	}
	return false
}
