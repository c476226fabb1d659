package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/consumer"
	"exportd/db"
	"exportd/db/dbtest"
	"exportd/export"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Run(m)) }

// world is a truth database of its own with a bucket in memory. Consumers are started and stopped in it.
type world struct {
	t      *testing.T
	url    string
	bucket *bucket
	admin  *pgx.Conn
	store  *db.Store // of the test itself
	lease  time.Duration
}

// newWorld makes a world whose database has a clock of its own, if shift is an interval by which it differs.
func newWorld(t *testing.T, shift ...string) *world {
	t.Parallel()
	w := &world{t: t, bucket: newBucket(), lease: 3 * time.Second}
	first := "" // of all schemas, if it has a now() of its own
	if len(shift) > 0 {
		first = "&search_path=public,pg_catalog"
	}
	w.url = dbtest.Template(t, fmt.Sprint("exportd", shift), func(url string) error {
		for _, by := range shift {
			if err := shiftClock(url, by); err != nil {
				return err
			}
		}
		return db.Migrate(context.Background(), url+first)
	}) + first
	w.store = w.open("test")
	var err error
	if w.admin, err = pgx.Connect(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.admin.Close(context.Background()) })
	return w
}

// shiftClock puts another now() in front of PostgreSQL's.
func shiftClock(url, by string) error {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), `
		create function public.now() returns timestamptz language sql stable as $$ select pg_catalog.now() + interval '`+by+`' $$`)
	return err
}

func (w *world) open(worker string) *db.Store {
	s, err := db.Open(w.t.Context(), db.Config{URL: w.url, Pool: 6, Worker: worker, Lease: w.lease, MaxAttempts: 3, RepublishAfter: time.Minute, Parking: true,
		BasePath: "b", Bucket: "bucket", Function: "export_rows", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	return s
}

// rows is the well-behaved export function of the tests.
func rows(_ context.Context, key string, out io.Writer) (int64, error) {
	_, err := io.WriteString(out, "k\n"+key+"\n")
	return 1, err
}

type running struct {
	*consumer.Consumer
	stop func() // and wait
}

// start runs a consumer that works from the database, with its sweeper and finisher.
func (w *world) start(name string, source sourceFunc, change ...func(*consumer.Config)) *running {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("consumer", name)
	store := w.open(name)
	finisher := consumer.NewFinisher(store, w.bucket, "b", func(k string) string { return "s3://bucket/" + k }, log)
	cfg := consumer.Config{Store: store, Source: exporter{source}, Objects: w.bucket, Finisher: finisher, Host: "h", Version: "v", Concurrency: 4, Lease: w.lease,
		MaxAttempts: 3, RetryBase: 50 * time.Millisecond, RetryMax: time.Second, ChunkTimeout: time.Minute, StallTimeout: time.Minute, DrainTimeout: 5 * time.Second,
		ReuseEnabled: true, ReuseWindow: 7, Log: log}
	for _, f := range change {
		f(&cfg)
	}
	c := consumer.New(cfg)
	sweeper := &consumer.Sweeper{Store: store, Objects: w.bucket, Finisher: finisher, Lease: w.lease, Interval: 200 * time.Millisecond, Log: log}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var all sync.WaitGroup
	all.Go(func() { finisher.Run(ctx) })
	all.Go(func() { sweeper.Run(ctx) })
	all.Go(func() { c.Run(ctx) })
	r := &running{c, sync.OnceFunc(func() { cancel(); all.Wait() })}
	w.t.Cleanup(r.stop)
	return r
}

type exporter struct{ sourceFunc }

func (e exporter) Export(ctx context.Context, key string, _ export.Date, w io.Writer) (int64, error) {
	return e.export(ctx, key, w)
}

// submit orders one chunk per key, of a day long past.
func (w *world) submit(onFailure export.OnFailure, keys ...string) string {
	w.t.Helper()
	req := export.SubmitRequest{Tenant: "t", Submission: export.Submission{Compression: export.None, OnFailure: onFailure, Reuse: true, Priority: 4}}
	for _, k := range keys {
		req.Items = append(req.Items, export.Item{Key: k, Dates: []export.Date{20200131}})
	}
	job, _, err := w.store.Submit(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return job.ID
}

func objectKey(key string) string { return export.ObjectKey("b", key, 20200131, export.None) }

func (w *world) job(id string) export.Job {
	w.t.Helper()
	j, err := w.store.Job(w.t.Context(), "", id)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// ended waits for the end of the job.
func (w *world) ended(id string, want export.JobStatus) export.Job {
	w.t.Helper()
	w.eventually("job "+id+" ends", func() bool { return w.job(id).Status.Ended() })
	j := w.job(id)
	if j.Status != want {
		w.t.Fatalf("job %s is %s, want %s: %+v", id, j.Status, want, j)
	}
	w.bucket.mu.Lock()
	defer w.bucket.mu.Unlock()
	if len(w.bucket.uploads) > 0 {
		w.t.Fatalf("open uploads: %v", w.bucket.uploads)
	}
	return j
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	w.t.Fatalf("did not happen within 40 s: %s", what)
}

// one reads one value of the database.
func one[T any](w *world, sql string, args ...any) (v T) {
	w.t.Helper()
	if err := w.admin.QueryRow(w.t.Context(), sql, args...).Scan(&v); err != nil {
		w.t.Fatal(sql, err)
	}
	return v
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.admin.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(sql, err)
	}
}

func TestAJobRunsToItsEndWithAManifest(t *testing.T) {
	w := newWorld(t)
	w.start("a", sourceFunc{export: rows})
	id := w.submit(export.FailFast, "A", "B/C", "価格")
	j := w.ended(id, export.Completed)
	if j.Done != 3 || j.RowCount != 3 || j.FilesGenerated != 3 {
		t.Fatalf("job %+v", j)
	}
	o, ok := w.bucket.get(objectKey("B/C"))
	if !ok || o.body != "k\nB/C\n" || o.metadata["job"] != id || o.metadata["rows"] != "1" {
		t.Fatalf("object %+v", o)
	}
	m, ok := w.bucket.get(export.ManifestKey("b", id))
	if !ok || strings.Count(m.body, `"DONE"`) != 3 || !strings.Contains(m.body, `"outcome":"COMPLETED"`) {
		t.Fatalf("manifest %+v", m)
	}
}

func TestAnOldFileIsReusedOnlyWhileItIsWhatWasRecorded(t *testing.T) {
	w := newWorld(t)
	w.start("a", sourceFunc{export: rows})
	w.ended(w.submit(export.FailFast, "A"), export.Completed)
	if j := w.ended(w.submit(export.FailFast, "A"), export.Completed); j.FilesReused != 1 {
		t.Fatalf("not reused: %+v", j)
	}
	w.bucket.put(objectKey("A"), "something else", nil)
	if j := w.ended(w.submit(export.FailFast, "A"), export.Completed); j.FilesReused != 0 {
		t.Fatalf("reused foreign bytes: %+v", j)
	}
	if o, _ := w.bucket.get(objectKey("A")); o.body != "k\nA\n" {
		t.Fatalf("object %+v", o)
	}
}

func TestAnOvertakenWorkerReplacesNothing(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	paused, resume := make(chan struct{}), make(chan struct{})
	w.bucket.before = func(step, key string) error {
		if step == "commit" && key == objectKey("A") {
			first := false
			once.Do(func() { first = true })
			if first {
				close(paused)
				<-resume
			}
		}
		return nil
	}
	slow := w.start("slow", sourceFunc{export: func(_ context.Context, _ string, out io.Writer) (int64, error) {
		_, err := io.WriteString(out, "old\n")
		return 0, err
	}}, func(c *consumer.Config) { c.Concurrency = 1 })
	unpause := sync.OnceFunc(func() { close(resume) })
	t.Cleanup(unpause)
	id := w.submit(export.FailFast, "A")
	<-paused
	// The first owner is as good as dead: its lease runs out and it does not hear of it.
	w.start("fast", sourceFunc{export: rows})
	w.eventually("another worker takes over", func() bool {
		w.exec(`update job_chunk set lease_until = now() - interval '1 s' where lock_owner = 'slow' and status = 'RUNNING'`)
		return one[bool](w, `select exists (select from job_chunk where lock_owner = 'fast')`)
	})
	w.ended(id, export.Completed)
	unpause()
	w.eventually("the overtaken worker notices", func() bool { return slow.Stats.LeasesLost.Load() == 1 })
	if o, _ := w.bucket.get(objectKey("A")); o.body != "k\nA\n" {
		t.Fatalf("the newer file was replaced: %+v", o)
	}
	if got := one[string](w, `select lock_owner from job_chunk`); got != "fast" {
		t.Fatalf("the chunk is %s's", got)
	}
}

func TestALostAnswerOfTheLastStepIsNoSecondExport(t *testing.T) {
	for _, kind := range []string{"one part", "multipart"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			if kind == "multipart" {
				w.bucket.partSize = 1
			}
			var runs atomic.Int32
			w.bucket.after = func(key string) error {
				if key == objectKey("A") {
					return condition{ambiguous: true}
				}
				return nil
			}
			w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
				runs.Add(1)
				return rows(ctx, key, out)
			}})
			j := w.ended(w.submit(export.FailFast, "A"), export.Completed)
			if n := runs.Load(); n != 1 || j.FilesGenerated != 1 {
				t.Fatalf("exported %d times: %+v", n, j)
			}
		})
	}
}

func TestTheObjectOfADeadWorkerIsFoundByItsAnnouncement(t *testing.T) {
	w := newWorld(t)
	id := w.submit(export.FailFast, "A")
	ref := export.Ref{JobID: id, Key: "A", Date: 20200131}
	const claimID = "11111111-1111-4111-8111-111111111111"
	dead, _, err := w.store.Claim(t.Context(), ref, claimID)
	if err != nil || dead == nil {
		t.Fatal(dead, err)
	}
	facts := export.Facts{Rows: 9, Bytes: 4, SHA256: strings.Repeat("ab", 32)}
	if err := w.store.Announce(t.Context(), dead, objectKey("A"), facts); err != nil {
		t.Fatal(err)
	}
	w.bucket.put(objectKey("A"), "dead", map[string]string{"claim": claimID, "job": id})
	w.exec(`update job_chunk set lease_until = now() - interval '1 s'`)
	w.start("a", sourceFunc{export: func(context.Context, string, io.Writer) (int64, error) {
		t.Error("the query ran again")
		return 0, errors.New("no")
	}})
	j := w.ended(id, export.Completed)
	if j.RowCount != 9 || j.ByteCount != 4 {
		t.Fatalf("job %+v", j)
	}
	if n := one[int](w, `select count(*) from chunk_attempt where outcome = 'LOST' and claim_id = $1`, claimID); n != 1 {
		t.Fatalf("%d lost attempts", n)
	}
}

func TestTheUploadOfADeadWorkerIsAborted(t *testing.T) {
	w := newWorld(t)
	id := w.submit(export.FailFast, "A")
	ref := export.Ref{JobID: id, Key: "A", Date: 20200131}
	dead, _, err := w.store.Claim(t.Context(), ref, "11111111-1111-4111-8111-111111111111")
	if err != nil || dead == nil {
		t.Fatal(dead, err)
	}
	w.bucket.uploads["dead-upload"] = objectKey("A")
	if err := w.store.RecordUpload(t.Context(), dead, objectKey("A"), "dead-upload"); err != nil {
		t.Fatal(err)
	}
	w.exec(`update job_chunk set lease_until = now() - interval '1 s'`)
	w.start("a", sourceFunc{export: rows})
	w.ended(id, export.Completed) // which checks that no upload is open
}

func TestTwoJobsForOneFileEndWithTheTruthAboutIt(t *testing.T) {
	w := newWorld(t)
	var arrived sync.WaitGroup
	arrived.Add(2)
	w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
		arrived.Done()
		arrived.Wait() // both are past the look at the registry
		return rows(ctx, key, out)
	}})
	one1, two := w.submit(export.FailFast, "A"), w.submit(export.FailFast, "A")
	a, b := w.ended(one1, export.Completed), w.ended(two, export.Completed)
	if a.FilesReused+b.FilesReused != 1 {
		t.Fatalf("both or none wrote the object: %+v %+v", a, b)
	}
	o, _ := w.bucket.get(objectKey("A"))
	if n := one[int](w, `select count(*) from job_chunk where etag = $1 and byte_count = $2`, o.etag, len(o.body)); n != 2 {
		t.Fatalf("%d rows describe the object", n)
	}
}

func TestAnOutageSpendsNoAttemptAndABadChunkDoes(t *testing.T) {
	w := newWorld(t)
	var away atomic.Bool
	away.Store(true)
	source := sourceFunc{
		export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
			if away.Load() || key == "BAD" {
				return 0, &export.Failure{Class: export.Outage, Code: "SQL_CONNECT", Dependency: "source", Err: errGone}
			}
			return rows(ctx, key, out)
		},
		probe: func() error {
			if away.Load() {
				return errGone
			}
			return nil
		},
	}
	c := w.start("a", source)
	id := w.submit(export.Continue, "A")
	w.eventually("the breaker opens", func() bool { return len(c.Away()) == 1 && c.Stats.GivenBack.Load() == 1 })
	if n := one[int](w, `select attempts from job_chunk`); n != 0 {
		t.Fatalf("%d attempts spent", n)
	}
	away.Store(false)
	w.eventually("the breaker closes", func() bool { return len(c.Away()) == 0 })
	w.ended(id, export.Completed)
	// One chunk alone meets it, and the probe does not confirm: its own fault.
	j := w.ended(w.submit(export.Continue, "BAD", "B"), export.Failed)
	if j.Failed != 1 || j.Done != 1 {
		t.Fatalf("job %+v", j)
	}
	if n := one[int](w, `select attempts from job_chunk where key = 'BAD'`); n != 3 {
		t.Fatalf("%d attempts", n)
	}
}

func TestRunningChunksOfACancelledJobStopAndLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.bucket.partSize = 1
	started := make(chan struct{}, 4)
	w.start("a", sourceFunc{export: func(ctx context.Context, key string, out io.Writer) (int64, error) {
		if _, err := io.WriteString(out, "half a file"); err != nil {
			return 0, err
		}
		started <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}})
	id := w.submit(export.FailFast, "A", "B")
	<-started
	<-started
	if err := w.store.Cancel(t.Context(), "t", id); err != nil {
		t.Fatal(err)
	}
	j := w.ended(id, export.Cancelled)
	if j.Cancelled != 2 {
		t.Fatalf("job %+v", j)
	}
	if _, ok := w.bucket.get(objectKey("A")); ok {
		t.Fatal("a cancelled chunk left an object")
	}
}

func TestADrainingWorkerGivesBackWithoutSpendingAttempts(t *testing.T) {
	w := newWorld(t)
	started := make(chan struct{}, 1)
	c := w.start("a", sourceFunc{export: func(ctx context.Context, _ string, _ io.Writer) (int64, error) {
		started <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}}, func(c *consumer.Config) { c.DrainTimeout = time.Second })
	id := w.submit(export.FailFast, "A")
	<-started
	c.stop()
	if got := one[string](w, `select status || attempts from job_chunk`); got != "PENDING0" {
		t.Fatalf("the chunk is %s", got)
	}
	w.start("b", sourceFunc{export: rows})
	w.ended(id, export.Completed)
}

func TestAnAttemptThatDoesNotMoveEnds(t *testing.T) {
	for name, change := range map[string]func(*consumer.Config){
		"STALLED": func(c *consumer.Config) { c.StallTimeout = 300 * time.Millisecond },
		"TIMEOUT": func(c *consumer.Config) { c.ChunkTimeout = 300 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start("a", sourceFunc{export: func(ctx context.Context, _ string, out io.Writer) (int64, error) {
				if _, err := io.WriteString(out, "first row\n"); err != nil {
					return 0, err
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}}, change)
			w.ended(w.submit(export.Continue, "A"), export.Failed)
			if n := one[int](w, `select count(*) from chunk_attempt where error_code = $1`, name); n != 3 {
				t.Fatalf("%d attempts ended with %s", n, name)
			}
		})
	}
}
