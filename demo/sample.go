package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// flights are 20 000 real departures of US airports, January to March 2001: a sample of the US Department of Transportation's on-time data as
// shipped in the npm package vega-datasets (BSD-3-Clause).
//
//go:embed flights.csv.gz
var flights []byte

//go:embed sample.sql
var schema string

// loadSample makes the table and the export function, and returns the number of rows.
func loadSample(ctx context.Context, url string) (int64, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, schema); err != nil {
		return 0, fmt.Errorf("create the sample table: %w", err)
	}
	rows, err := gzip.NewReader(bytes.NewReader(flights))
	if err != nil {
		return 0, err
	}
	tag, err := conn.PgConn().CopyFrom(ctx, rows, "copy flights from stdin (format csv, header)")
	if err != nil {
		return 0, fmt.Errorf("load the sample rows: %w", err)
	}
	_, err = conn.Exec(ctx, "create index on flights (origin, departed_at); analyze flights")
	return tag.RowsAffected(), err
}

// item is one element of a submission's items.
type item struct {
	Key            string   `json:"key"`
	EffectiveDates []string `json:"effectiveDates"`
}

// sampleItems asks for the departures of the busiest airports on every day of the sample's first days.
func sampleItems(ctx context.Context, url string, airports, days int) ([]item, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "select origin from flights group by origin order by count(*) desc, origin limit $1", airports)
	if err != nil {
		return nil, err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var items []item
	for _, key := range keys {
		it := item{Key: key}
		for day := range days {
			it.EffectiveDates = append(it.EffectiveDates, time.Date(2001, 1, 1+day, 0, 0, 0, 0, time.UTC).Format("20060102"))
		}
		items = append(items, it)
	}
	return items, nil
}
