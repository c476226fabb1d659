package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"exportd/export"
	"exportd/s3out"
)

// The limit and the peer run in a child process of their own, so that their CPU time and memory can be told from those of the bench.
const childCommand = "child"

// task is what a child does. It gets one on standard input, says ready once it is warm, works on the word go, says how long that took, and lives
// until its input ends.
type task struct {
	Variant            string
	Database, Endpoint string
	BasePath           string
	Concurrency        int
	Cooldown           time.Duration // of the peer between two fetches
	WarmUp, Work       []export.Ref
}

func runChild(ctx context.Context) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return err
	}
	e, err := newExporter(ctx, t)
	if err != nil {
		return err
	}
	defer e.close()
	work := e.straight
	if t.Variant != limit {
		p, err := newPeer(ctx, t, e)
		if err != nil {
			return err
		}
		defer p.close()
		work = p.work
	}
	if err := work(ctx, t.WarmUp); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := in.ReadBytes('\n'); err != nil {
		return err
	}
	began := time.Now()
	if err := work(ctx, t.Work); err != nil {
		return err
	}
	fmt.Println(time.Since(began).Nanoseconds())
	_, err = io.Copy(io.Discard, in)
	return err
}

// exporter makes the same files as exportd: its own reading of the rows, see rowSource, and exportd's upload with the same hash.
type exporter struct {
	task
	source *rowSource
	store  *s3out.Store
}

func newExporter(ctx context.Context, t task) (*exporter, error) {
	source, err := openRows(ctx, t.Database, t.Concurrency+1)
	if err != nil {
		return nil, err
	}
	store, err := s3out.Open(ctx, s3Config(t.Endpoint, t.BasePath, t.Concurrency))
	if err != nil {
		source.close()
		return nil, err
	}
	return &exporter{t, source, store}, nil
}

func (e *exporter) close() {
	e.store.Close()
	e.source.close()
}

func (e *exporter) export(ctx context.Context, r export.Ref) (f export.File, err error) {
	f.ObjectKey = export.ObjectKey(e.BasePath, r.Key, r.Date, export.None)
	up := e.store.NewUpload(ctx, s3out.UploadOptions{Key: f.ObjectKey, ContentType: "text/csv; charset=utf-8", Metadata: map[string]string{"chunk": r.ChunkKey()}})
	defer up.Abort(ctx)
	if f.Rows, err = e.source.export(ctx, r, up); err != nil {
		return f, err
	}
	if f.Bytes, f.SHA256, err = up.Finish(ctx); err != nil {
		return f, err
	}
	f.ETag, err = up.Commit(ctx, s3out.Condition{}, map[string]string{"rows": strconv.FormatInt(f.Rows, 10), "sha256": f.SHA256})
	return f, err
}

// straight is the limit: nothing but the exports, Concurrency at a time.
func (e *exporter) straight(ctx context.Context, chunks []export.Ref) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan export.Ref)
	var workers sync.WaitGroup
	for range e.Concurrency {
		workers.Go(func() {
			for r := range next {
				if _, err := e.export(ctx, r); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, r := range chunks {
		next <- r
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}
