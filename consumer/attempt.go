package consumer

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"exportd/export"
)

// Metadata of every object. Rows and sha256 only where the object was written in one part: the metadata of a multipart upload is fixed before its bytes
// are known.
const (
	metaJob     = "job"
	metaChunk   = "chunk"
	metaClaim   = "claim"
	metaStarted = "claim-started" // database clock, RFC 3339
	metaRows    = "rows"
	metaSHA256  = "sha256"
)

// attempt makes the chunk's file, or finds it.
func (c *Consumer) attempt(ctx context.Context, f *flight) (result, error) {
	claim := f.claim
	key := claim.ObjectKey
	if claim.Previous != nil {
		file, err := objectOf(ctx, c.Objects, claim.Previous)
		if err != nil {
			return result{}, err
		}
		if file != nil {
			return result{file: *file}, nil
		}
	}
	mayReuse := c.ReuseEnabled && claim.Job.Reuse && export.MayReuse(claim.Date, export.DateOf(claim.StartedAt), c.ReuseWindow)
	recorded := claim.Recorded
	if mayReuse && recorded != nil {
		o, found, err := c.Objects.Head(ctx, key)
		if err != nil {
			return result{}, err
		}
		if found && o.Size == recorded.Bytes && o.ETag == recorded.ETag {
			return result{*recorded, true}, nil
		}
	}
	ifMatch := ""
	if recorded != nil {
		ifMatch = recorded.ETag
	}
	res, err := c.export(ctx, f, key, ifMatch)
	if errors.Is(err, export.ErrOnceMore) && ctx.Err() == nil {
		c.log(ctx).Info("export once more", "error", err)
		res, err = c.export(ctx, f, key, ifMatch)
	}
	return res, err
}

// export streams the rows into a new object.
func (c *Consumer) export(ctx context.Context, f *flight, key, ifMatch string) (res result, err error) {
	claim := f.claim
	ctx, end := c.step(ctx, "upload")
	defer func() { end(err) }()
	o := UploadOptions{Key: key, ContentType: "text/csv; charset=utf-8", Metadata: map[string]string{
		metaJob: claim.JobID, metaChunk: "key=" + export.EncodeKey(claim.Key) + ":date=" + claim.Date.String(), metaClaim: claim.ID,
		metaStarted: claim.StartedAt.UTC().Format(time.RFC3339Nano),
	}}
	inParts := false
	o.Created = func(ctx context.Context, uploadID string) error {
		inParts = true
		return c.persist(ctx, "record the upload", func(ctx context.Context) error { return c.Store.RecordUpload(ctx, claim, key, uploadID) })
	}
	up := c.Objects.NewUpload(ctx, o)
	f.up.Store(&up)
	defer c.abort(ctx, up, key)

	w, err := compressed(up, claim.Job.Compression)
	if err != nil {
		return result{}, err
	}
	querying, endQuery := c.step(ctx, "query")
	rows, err := c.Source.Export(querying, claim.Key, claim.Date, countBytes{w, &f.bytes})
	endQuery(err)
	if err != nil {
		return result{}, err
	}
	if err := w.Close(); err != nil {
		return result{}, err
	}
	facts := export.Facts{Rows: rows}
	if facts.Bytes, facts.SHA256, err = up.Finish(ctx); err != nil {
		return result{}, err
	}
	if inParts || f.unrenewed() > c.Lease/2 {
		if err := c.persist(ctx, "announce the object", func(ctx context.Context) error {
			f.beats.Add(1)
			return c.Store.Announce(ctx, claim, key, facts)
		}); err != nil {
			return result{}, err
		}
	}
	f.beats.Add(1)
	return c.commit(ctx, f.life, up, claim, export.File{ObjectKey: key, Facts: facts, ClaimID: claim.ID, ClaimStartedAt: claim.StartedAt}, ifMatch)
}

// abort removes what is left of an upload: nothing after success. What a store does not answer, being away, abortLoop tries again. A worker that has to end does not
// wait for a store that does not answer: Run does, while it can, and the janitor comes for the rest.
func (c *Consumer) abort(ctx context.Context, up Upload, key string) {
	done := make(chan struct{})
	c.aborts.Go(func() {
		defer close(done)
		if err := up.Abort(ctx); err != nil {
			c.log(ctx).Warn("abort an upload", "key", key, "error", err)
			c.abortLater(up, err)
		}
	})
	select {
	case <-done:
		return
	case <-c.hurry:
	}
	select {
	case <-done:
	case <-time.After(c.DrainTimeout / 50):
	}
}

// abortLater leaves an upload to abortLoop if the store was away. One that refuses the abort would refuse it again.
func (c *Consumer) abortLater(up Upload, err error) {
	if export.FailureOf(err).Class == export.Outage {
		c.unaborted.add(up)
	}
}

// uploads are those whose abort failed.
type uploads struct {
	mu  sync.Mutex
	all []Upload
}

func (us *uploads) add(up Upload) {
	us.mu.Lock()
	defer us.mu.Unlock()
	us.all = append(us.all, up)
}

func (us *uploads) take() []Upload {
	us.mu.Lock()
	defer us.mu.Unlock()
	all := us.all
	us.all = nil
	return all
}

// abortLoop tries again to abort the uploads that a store left open while it was away: nobody else knows of them until the janitor does, hours later.
func (c *Consumer) abortLoop(ctx context.Context) {
	for sleep(ctx, time.Second+rand.N(time.Second)) {
		if c.IsAway("s3") {
			continue
		}
		for _, up := range c.unaborted.take() {
			if ctx.Err() != nil {
				return
			}
			if err := up.Abort(ctx); err != nil {
				c.abortLater(up, err)
			}
		}
	}
}

// commit takes the last step of the upload. When the object is not the one expected, or the answer was lost, the object itself says by its claim what
// is there: mine, then it is done; that of a claim begun after this job was created, then both jobs share it; an older one, then it is replaced, if it is still
// the same.
//
// The order to stop does not cut the step short: nobody could tell then whether the object is still to come. It keeps it from being repeated.
func (c *Consumer) commit(ctx, life context.Context, up Upload, claim *export.Claim, file export.File, ifMatch string) (result, error) {
	extra := map[string]string{metaRows: strconv.FormatInt(file.Rows, 10), metaSHA256: file.SHA256}
	last, cancel := outlast(ctx, life, commitGrace)
	defer cancel()
	for range 8 {
		if ctx.Err() != nil {
			return result{}, context.Cause(ctx)
		}
		etag, err := up.Commit(last, ifMatch, extra)
		if err == nil {
			file.ETag = etag
			return result{file: file}, nil
		}
		if !hasState(err, "Precondition") && !hasState(err, "Ambiguous") {
			return result{}, err
		}
		o, found, headErr := c.look(last, file.ObjectKey)
		if headErr != nil {
			return result{}, errors.Join(err, headErr)
		}
		ifMatch = o.ETag // "" when there is none
		if !found {
			continue
		}
		if o.Metadata[metaClaim] == claim.ID && o.Size == file.Bytes {
			file.ETag = o.ETag
			return result{file: file}, nil
		}
		theirs, err := c.fileOf(ctx, claim, file.ObjectKey, o)
		if err != nil {
			return result{}, err
		}
		if theirs != nil && theirs.ClaimStartedAt.After(claim.Job.CreatedAt) {
			return result{*theirs, true}, nil
		}
	}
	return result{}, &export.Failure{Class: export.Transient, Code: "S3_CONTENDED", Err: fmt.Errorf("the object %s kept changing while it was written", file.ObjectKey)}
}

// commitGrace is how long the last step may go on after the order to stop.
const commitGrace = 10 * time.Second

// outlast is a context that ends grace after ctx, and with life at the latest.
func outlast(ctx, life context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(life)
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(grace, cancel)
		context.AfterFunc(longer, func() { t.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// look is a HEAD that takes a short time of its own even if ctx has ended.
func (c *Consumer) look(ctx context.Context, key string) (Object, bool, error) {
	if ctx.Err() != nil {
		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		ctx = brief
	}
	return c.Objects.Head(ctx, key)
}

// fileOf finds out what is known of an object that another claim wrote: from the database, or from the object where its metadata is complete. nil if
// that is not enough to vouch for it.
func (c *Consumer) fileOf(ctx context.Context, claim *export.Claim, key string, o Object) (*export.File, error) {
	job, id := o.Metadata[metaJob], o.Metadata[metaClaim]
	if !export.ValidJobID(job) || id == "" {
		return nil, nil
	}
	var file *export.File
	ref := export.Ref{JobID: job, Key: claim.Key, Date: claim.Date} // the same object key is the same key and date
	if err := c.persist(ctx, "look up the file of another claim", func(ctx context.Context) (err error) {
		file, err = c.Store.FileOf(ctx, ref, id, key)
		return err
	}); err != nil {
		return nil, err
	}
	if file == nil {
		started, err := time.Parse(time.RFC3339Nano, o.Metadata[metaStarted])
		facts := factsOn(o)
		if err != nil || facts == nil {
			return nil, nil
		}
		file = &export.File{ObjectKey: key, Facts: *facts, ClaimID: id, ClaimStartedAt: started}
	}
	if file.Bytes != o.Size {
		return nil, nil
	}
	file.ETag = o.ETag
	return file, nil
}

// hasState asks an adapter's error for one of its properties, by method, so that no adapter need be imported.
func hasState(err error, property string) bool {
	var p interface{ Precondition() bool }
	var a interface{ Ambiguous() bool }
	switch property {
	case "Precondition":
		return errors.As(err, &p) && p.Precondition()
	default:
		return errors.As(err, &a) && a.Ambiguous()
	}
}

// objectOf looks for the object of an overtaken claim, and sees to it that its upload cannot end any more. nil: there is none.
func objectOf(ctx context.Context, objects Objects, o *export.Overtaken) (*export.File, error) {
	look := func() (*export.File, error) {
		there, found, err := objects.Head(ctx, o.ObjectKey)
		if err != nil || !found || there.Metadata[metaClaim] != o.ClaimID {
			return nil, err
		}
		facts := o.Facts
		if facts == nil {
			facts = factsOn(there)
		}
		if facts == nil || facts.Bytes != there.Size {
			return nil, nil
		}
		return &export.File{ObjectKey: o.ObjectKey, Facts: *facts, ETag: there.ETag, ClaimID: o.ClaimID, ClaimStartedAt: o.StartedAt}, nil
	}
	file, err := look()
	if file != nil || err != nil || o.UploadID == "" {
		return file, err
	}
	if err := objects.AbortUpload(ctx, o.ObjectKey, o.UploadID); err != nil {
		return nil, err
	}
	return look() // it may have ended between the look and the abort
}

// factsOn are those that an object written in one part tells of itself; nil for others.
func factsOn(o Object) *export.Facts {
	rows, err := strconv.ParseInt(o.Metadata[metaRows], 10, 64)
	if err != nil || len(o.Metadata[metaSHA256]) != 64 {
		return nil
	}
	return &export.Facts{Rows: rows, Bytes: o.Size, SHA256: o.Metadata[metaSHA256]}
}

// removeOrphan removes the object of a claim that turned out stale after the last step, unless somebody needs it: the registry names it, or a claim for
// the same file is at work, which may be about to adopt it or will replace it.
func (c *Consumer) removeOrphan(ctx context.Context, claim *export.Claim, file export.File) {
	needed, err := c.Store.FileNeeded(ctx, claim, file)
	if err == nil && !needed {
		var o Object
		var found bool
		if o, found, err = c.Objects.Head(ctx, file.ObjectKey); err == nil && found && o.Metadata[metaClaim] == claim.ID {
			err = c.Objects.Delete(ctx, file.ObjectKey, o.ETag)
		}
	}
	if err != nil {
		c.log(ctx).Warn("remove the object of a stale claim", "key", file.ObjectKey, "error", err)
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func compressed(w io.Writer, c export.Compression) (io.WriteCloser, error) {
	switch c {
	case export.Gzip:
		return gzip.NewWriter(w), nil
	case export.Zstd:
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	default:
		return nopCloser{w}, nil
	}
}
