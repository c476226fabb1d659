package db_test

import (
	"context"
	"fmt"
	"io"
	"testing"
)

// BenchmarkExport compares Export with pgx's CopyTo of the same rows in a session that has the settings already, so COPY saves their cost.
func BenchmarkExport(b *testing.B) {
	s, url := world(b, `CREATE TABLE data (k text, i int, name text, amount numeric(12,2), at timestamptz, rate float8, note text);
		INSERT INTO data SELECT 'k' || n, i, 'customer number ' || i, i / 7.0, timestamptz '2025-01-01' + i * interval '1 second', i / 3.0, CASE i % 10 WHEN 0 THEN 'with, comma' WHEN 1 THEN NULL ELSE 'plain note of some words' END
			FROM unnest(ARRAY[10, 10000, 1000000]) n, generate_series(1, n) i;
		CREATE INDEX ON data (k);
		CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF data LANGUAGE sql STABLE AS $$ SELECT * FROM data WHERE k = key $$;
		ANALYZE data`)
	copying := copySession(b, url)
	for _, n := range []int{10, 10_000, 1_000_000} {
		key := fmt.Sprintf("k%d", n)
		size, _ := exported(b, s, key)
		report := func(b *testing.B, rows int64) {
			b.SetBytes(int64(len(size)))
			b.ReportAllocs()
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		}
		b.Run(fmt.Sprintf("export/%d", n), func(b *testing.B) {
			var all int64
			for b.Loop() {
				rows, err := s.Export(context.Background(), key, day, io.Discard)
				if err != nil || rows != int64(n) {
					b.Fatal(rows, err)
				}
				all += rows
			}
			report(b, all)
		})
		b.Run(fmt.Sprintf("copy/%d", n), func(b *testing.B) {
			var all int64
			for b.Loop() {
				tag, err := copying.PgConn().CopyTo(context.Background(), io.Discard, "COPY (SELECT * FROM export_rows('"+key+"', '2025-01-31')) TO STDOUT (FORMAT csv, HEADER)")
				if err != nil || tag.RowsAffected() != int64(n) {
					b.Fatal(tag, err)
				}
				all += tag.RowsAffected()
			}
			report(b, all)
		})
	}
}
