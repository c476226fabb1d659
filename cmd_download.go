package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"exportd/client"
)

type downloadCommand struct {
	Job      string `arg:"" help:"Job, such as J20260102_000123."`
	Dir      string `arg:"" help:"Folder for the files; it is made if it is missing."`
	Key      string `flagonly:"" placeholder:"KEY" help:"Only the files of the key."`
	Parallel int    `flagonly:"" default:"8" help:"Files at a time, 1 to 64."`
	JSON     bool   `name:"json" flagonly:"" help:"Print a line of JSON for each file."`

	clientConfig `embed:""`
}

func (*downloadCommand) Help() string {
	return "Fetches the files of all chunks that are DONE and checks each by its sha256. Interrupted or failed, run it again: what is there whole is kept, and " +
		"what is there in part is continued. Files are named as in the bucket, without the folders of the days.\n\n" +
		examples(`exportd download J20260102_000123 files`, `exportd download J20260102_000123 files --json | jq -r .file`)
}

func (c *downloadCommand) check(f *faults) {
	c.clientConfig.check(f)
	if c.Parallel < 1 || c.Parallel > 64 {
		f.add("parallel", "is %d; it must be from 1 to 64", c.Parallel)
	}
}

func (c *downloadCommand) run(ctx context.Context, p *process) error {
	job, err := c.client().Job(ctx, c.Job)
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	chunks, _, err := pages(max(1, job.Total), func(limit int, cursor string) ([]client.Chunk, string, error) {
		return c.client().Chunks(ctx, c.Job, client.ChunksFilter{Status: "DONE", Key: c.Key, Limit: limit}, cursor)
	})
	if err != nil {
		return clientEnd(ctx, p, "", err)
	}
	into, err := openFolder(c.Dir)
	if err != nil {
		return err
	}
	defer into.Close()
	api, store := c.client(), newFileClient(c.Parallel)
	api.Transport = store.Transport // which keeps a connection for each file at a time
	d := &download{
		process: p, json: c.JSON, started: time.Now(),
		fetcher: fetcher{api: api, jobID: job.JobID, into: into, http: store, pause: firstPause},
	}
	err = d.all(ctx, chunks, c.Parallel)
	if n := job.Total - job.Done; n > 0 && c.Key == "" {
		fmt.Fprintf(p.stderr, "exportd: job %s is %s; there is no file of %d of its %s\n", printable(job.JobID), printable(job.Status), n, count(job.Total, "chunk"))
	}
	return err
}

// download is one run of the command.
type download struct {
	*process
	fetcher
	json    bool
	started time.Time
	bar     *progress // nil: no terminal
	count   int       // of files
	bytes   int64     // of all files

	mu                    sync.Mutex // guards what follows, and keeps printed lines whole
	fetched, kept, failed int
	arrived               int64 // bytes of the files that are there, whole and in part
	fromStore             int64 // bytes of the files fetched
	inARow                int   // files given up after all tries, with none fetched in between
	giveUp                bool
	unsaid                error // of standard output
}

// mostInARow is how many files are given up before the rest is: API or store are away, and each file's tries take seconds.
const mostInARow = 10

func (d *download) all(ctx context.Context, chunks []client.Chunk, parallel int) error {
	d.count = len(chunks)
	for _, ch := range chunks {
		d.bytes += ch.ByteCount
	}
	if d.drawsOn(d.stderr) {
		d.bar = d.startProgress(d.stderr)
		defer d.bar.stop()
	}
	d.tell = func(n int64) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.arrived += n
		d.draw()
	}
	names := fileNames(chunks, d.into.foldsCase())
	group := errgroup.Group{}
	group.SetLimit(parallel)
	for i, ch := range chunks {
		if ctx.Err() != nil || d.gaveUp() {
			break
		}
		group.Go(func() error {
			d.one(ctx, ch, names[i])
			return nil
		})
	}
	_ = group.Wait() // failures are counted
	return d.end(ctx)
}

func (d *download) gaveUp() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.giveUp
}

// one fetches a file, and notes what became of it.
func (d *download) one(ctx context.Context, ch client.Chunk, name fileName) {
	kept, bytes, err := false, int64(0), name.err
	if err == nil {
		kept, bytes, err = d.fetch(ctx, ch, name.text)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil && ctx.Err() != nil:
		return // interrupted, which is said once
	case err != nil:
		d.failed++
		if !errors.As(err, &permanent{}) || errors.Is(err, fs.ErrPermission) {
			d.inARow++
		}
		d.giveUp = d.giveUp || d.inARow >= mostInARow || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS)
		d.sayLine(fmt.Sprintf("exportd: %s: %s", printable(ch.ChunkKey), printable(err.Error())))
	case kept:
		d.kept++
	default:
		d.fetched++
		d.fromStore += bytes
		d.inARow = 0
	}
	if d.json {
		d.printFile(ch, name.text, kept, err)
	}
	d.draw()
}

func (d *download) printFile(ch client.Chunk, name string, kept bool, err error) {
	line := struct {
		ChunkKey string `json:"chunkKey"`
		File     string `json:"file"`
		Outcome  string `json:"outcome"`
		Bytes    int64  `json:"bytes"`
		SHA256   string `json:"sha256"`
		Error    string `json:"error,omitempty"`
	}{ch.ChunkKey, d.into.path(name), "fetched", ch.ByteCount, ch.Checksum, ""}
	switch {
	case err != nil:
		line.Outcome, line.Error = "failed", err.Error()
	case kept:
		line.Outcome = "kept"
	}
	text, _ := json.Marshal(line) // it has nothing that JSON cannot hold
	if _, err := fmt.Fprintf(d.stdout, "%s\n", text); err != nil && d.unsaid == nil {
		d.unsaid, d.giveUp = err, true
	}
}

func (d *download) sayLine(line string) {
	if d.bar != nil {
		d.bar.say(d.stderr, line)
		return
	}
	fmt.Fprintln(d.stderr, line)
}

// draw is called with the lock held.
func (d *download) draw() {
	if d.bar == nil {
		return
	}
	s := state{
		label: d.jobID, done: d.arrived, left: max(0, d.bytes-d.arrived), total: d.bytes,
		count: fmt.Sprintf("%d/%d files  %s", d.fetched+d.kept+d.failed, d.count, bytesText(d.arrived)),
		rate:  func(perSecond float64) string { return bytesText(int64(perSecond)) + "/s" },
	}
	if d.failed > 0 {
		s.notes = []string{strconv.Itoa(d.failed) + " failed"}
	}
	d.bar.set(s)
}

// end says in one line what was done; each failed file was named when it failed.
func (d *download) end(ctx context.Context) error {
	if d.bar != nil {
		d.bar.stop()
	}
	if ctx.Err() != nil {
		return clientEnd(ctx, d.process, fmt.Sprintf("%d of %d files are there; run the command again to go on", d.fetched+d.kept, d.count), ctx.Err())
	}
	line := fmt.Sprintf("%s fetched (%s) into %s in %s", count(d.fetched, "file"), bytesText(d.fromStore), d.into.name, durationText(time.Since(d.started)))
	if d.kept > 0 {
		line += fmt.Sprintf(", %d were there already", d.kept)
	}
	if d.failed > 0 {
		line += fmt.Sprintf(", %d FAILED", d.failed)
	}
	if n := d.count - d.fetched - d.kept - d.failed; n > 0 {
		line += fmt.Sprintf(", %d not tried any more", n)
	}
	if d.failed > 0 {
		line += ": run the command again"
	}
	out := d.stdout
	if d.json {
		out = d.stderr
	}
	if _, err := fmt.Fprintln(out, line); err != nil || d.unsaid != nil {
		return cmp.Or(err, d.unsaid)
	}
	if d.failed > 0 {
		return errSilent
	}
	return nil
}
