package demo

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
)

// file is what the database records of a chunk.
type file struct {
	Key, ObjectKey, SHA256 string
	Rows, Bytes            int64
	Attempts               int
}

// report reads every file of the job back from the disk, compares it with what the database says of it, and prints what there is.
func (d *demo) report(ctx context.Context, j job, took time.Duration) error {
	files, err := d.recorded(ctx, j.JobID)
	if err != nil {
		return err
	}
	if len(files) != j.Total {
		return fmt.Errorf("the job has %d chunks and the database records %d files", j.Total, len(files))
	}
	table := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tROWS\tBYTES\tSHA256")
	again := 0
	var rows, bytes int64
	for _, f := range files {
		if err := verify(d.path(f.ObjectKey), f); err != nil {
			return fmt.Errorf("%s: %w", f.ObjectKey, err)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", f.ObjectKey, f.Rows, f.Bytes, f.SHA256)
		if f.Attempts > 1 {
			again++
		}
		rows, bytes = rows+f.Rows, bytes+f.Bytes
	}
	d.say("")
	if err := table.Flush(); err != nil {
		return err
	}
	if rows != j.Rows || bytes != j.Bytes {
		return fmt.Errorf("the job says %d rows and %d bytes, its files have %d and %d", j.Rows, j.Bytes, rows, bytes)
	}
	d.say("")
	d.say("%s COMPLETED in %.1f s: %d files, %d rows, %d bytes; each read back from the disk, its sha256 and rows as recorded", j.JobID, took.Seconds(), len(files), rows, bytes)
	d.say("one consumer was killed; %d chunks took more than one attempt, none was lost", again)
	if d.Dir != "" || d.Serve {
		d.say("the files are in %s", d.files)
	} else {
		d.say("the files were in %s; --dir DIR keeps them", d.files)
	}
	return nil
}

func (d *demo) recorded(ctx context.Context, jobID string) ([]file, error) {
	conn, err := pgx.Connect(ctx, d.databaseURL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `select key, s3_object_key as object_key, sha256, row_count as rows, byte_count as bytes, attempts
		from job_chunk where job_id = $1 and status = 'DONE' order by s3_object_key`, jobID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[file])
}

// verify reads a file: its bytes must have the recorded sum and size, and as CSV the recorded number of rows.
func verify(path string, f file) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	sum := sha256.New()
	counted := &counter{}
	records := csv.NewReader(io.TeeReader(in, io.MultiWriter(sum, counted)))
	rows := int64(-1) // the header line is no row
	for {
		_, err := records.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		rows++
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.SHA256 || counted.n != f.Bytes || rows != f.Rows {
		return fmt.Errorf("on disk %d rows, %d bytes, sha256 %s; recorded %d, %d, %s", rows, counted.n, got, f.Rows, f.Bytes, f.SHA256)
	}
	return nil
}

type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	return len(b), nil
}
