package consumer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"exportd/export"
)

// jobEnds is what ending a job asks of the truth database.
type jobEnds interface {
	Pin(ctx context.Context, jobID string) (*export.Ending, error)
	Repin(ctx context.Context, jobID string, age time.Duration) (*export.Ending, error)
	Manifest(ctx context.Context, jobID string, each func(export.ManifestChunk) error) error
	End(ctx context.Context, e export.Ending) error
}

// Finisher ends jobs of which no chunk is open any more, in three steps that anyone may repeat: pin the outcome, write the manifest, set the
// status. Whoever settled the last chunk comes here; the sweeper picks up what a crash left between the steps.
type Finisher struct {
	store    jobEnds
	objects  Objects
	basePath string
	uri      func(key string) string
	log      *slog.Logger

	// Jobs that this process ended, by outcome.
	Completed, Failed, Cancelled atomic.Int64

	mu      sync.Mutex
	waiting map[string]bool
	wake    chan struct{}
}

// NewFinisher makes a Finisher; uri turns an object key into the address that the manifest shows.
func NewFinisher(store jobEnds, objects Objects, basePath string, uri func(string) string, log *slog.Logger) *Finisher {
	return &Finisher{store: store, objects: objects, basePath: basePath, uri: uri, log: log, waiting: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// Check has the job looked at soon. It never blocks; checks of one job that wait are one.
func (f *Finisher) Check(jobID string) {
	f.mu.Lock()
	f.waiting[jobID] = true
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run ends jobs until ctx ends, and then those still waiting, within a few seconds.
func (f *Finisher) Run(ctx context.Context) {
	for {
		select {
		case <-f.wake:
			f.finishWaiting(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			f.finishWaiting(last)
			return
		}
	}
}

func (f *Finisher) finishWaiting(ctx context.Context) {
	f.mu.Lock()
	jobs := f.waiting
	f.waiting = map[string]bool{}
	f.mu.Unlock()
	for id := range jobs {
		e, err := f.store.Pin(ctx, id)
		if err == nil && e != nil {
			err = f.end(ctx, *e)
		}
		if err != nil && ctx.Err() == nil {
			f.log.Warn("end a job; the sweeper tries again", "jobId", id, "error", err)
		}
	}
}

// pinStuck is how long a pinned job may take to end before somebody else tries.
const pinStuck = 30 * time.Second

// Finish ends the job if it is ready to end, or if whoever pinned it seems to have died.
func (f *Finisher) Finish(ctx context.Context, jobID string) error {
	e, err := f.store.Pin(ctx, jobID)
	if err == nil && e == nil {
		e, err = f.store.Repin(ctx, jobID, pinStuck)
	}
	if err != nil || e == nil {
		return err
	}
	return f.end(ctx, *e)
}

// end takes the steps after the pin.
func (f *Finisher) end(ctx context.Context, e export.Ending) error {
	limit := pinStuck
	if e.Outcome != export.Completed {
		limit = 10 * time.Second // a missing bucket must not keep a job from its end
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	err := f.writeManifest(bounded, e)
	cancel()
	if err != nil && e.Outcome == export.Completed {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err != nil {
		f.log.Warn("a job ends without its manifest", "jobId", e.JobID, "error", err)
	}
	if err := f.store.End(ctx, e); err != nil {
		return err
	}
	switch e.Outcome {
	case export.Completed:
		f.Completed.Add(1)
	case export.Failed:
		f.Failed.Add(1)
	default:
		f.Cancelled.Add(1)
	}
	f.log.Info("job ended", "jobId", e.JobID, "status", e.Outcome, "run", e.Run)
	return nil
}

const metaRun = "run"

// writeManifest writes the manifest of the run. Whoever writes it for the same run writes the same bytes; one of a later run is left alone.
func (f *Finisher) writeManifest(ctx context.Context, e export.Ending) error {
	key := export.ManifestKey(f.basePath, e.JobID)
	up := f.objects.NewUpload(ctx, UploadOptions{
		Key: key, ContentType: "application/json", Metadata: map[string]string{metaJob: e.JobID, metaRun: strconv.Itoa(e.Run)},
		Created: func(context.Context, string) error { return nil },
	})
	defer up.Abort(ctx) // nothing to abort after success
	if err := f.encodeManifest(ctx, e, bufio.NewWriterSize(up, 64<<10)); err != nil {
		return err
	}
	if _, _, err := up.Finish(ctx); err != nil {
		return err
	}
	ifMatch := ""
	for range 5 {
		_, err := up.Commit(ctx, ifMatch, nil)
		if err == nil {
			return nil
		}
		if !hasState(err, "Precondition") && !hasState(err, "Ambiguous") {
			return err
		}
		o, found, err := f.objects.Head(ctx, key)
		if err != nil {
			return err
		}
		if run, _ := strconv.Atoi(o.Metadata[metaRun]); found && run >= e.Run && o.Metadata[metaJob] == e.JobID {
			return nil
		}
		ifMatch = o.ETag
	}
	return fmt.Errorf("the object %s kept changing", key)
}

// manifestLine is one chunk in the manifest.
type manifestLine struct {
	Key           string             `json:"key"`
	EffectiveDate export.Date        `json:"effectiveDate"`
	Status        export.ChunkStatus `json:"status"`
	S3Path        string             `json:"s3Path,omitempty"`
	RowCount      *int64             `json:"rowCount,omitempty"`
	ByteCount     *int64             `json:"byteCount,omitempty"`
	SHA256        string             `json:"sha256,omitempty"`
	Reused        bool               `json:"reused"`
	ErrorCode     string             `json:"errorCode,omitempty"`
	Error         string             `json:"error,omitempty"`
}

// encodeManifest writes the manifest chunk by chunk: jobs may be large.
func (f *Finisher) encodeManifest(ctx context.Context, e export.Ending, w *bufio.Writer) error {
	fmt.Fprintf(w, "{\"jobId\":%q,\"run\":%d,\"outcome\":%q,\"chunks\":[", e.JobID, e.Run, e.Outcome)
	separator := "\n"
	err := f.store.Manifest(ctx, e.JobID, func(c export.ManifestChunk) error {
		line := manifestLine{Key: c.Key, EffectiveDate: c.Date, Status: c.Status, Reused: c.Reused, ErrorCode: c.ErrorCode, Error: c.Error}
		if c.Status == export.Done {
			line.S3Path, line.RowCount, line.ByteCount, line.SHA256 = f.uri(c.ObjectKey), &c.Rows, &c.Bytes, c.SHA256
		}
		b, err := json.Marshal(line)
		if err != nil {
			return err
		}
		w.WriteString(separator)
		separator = ",\n"
		_, err = w.Write(b)
		return err
	})
	if err != nil {
		return err
	}
	w.WriteString("\n]}\n")
	return w.Flush()
}
