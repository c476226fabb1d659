package stack

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"

	"exportd/broker"
	"exportd/export"
	"exportd/s3out"
)

// Expect says how a world may differ from one where nothing special happened.
type Expect struct {
	// Changed names keys whose rows have changed since, so that their bytes cannot be compared with what the function gives now.
	Changed []string
	// Parked is the number of foreign messages that were parked as they came; -1 is any number.
	Parked int
	// Unannounced says that processes without a broker dead-letter too: nobody is told of theirs.
	Unannounced bool
	// Killed says that processes were killed: what their self-tests left in the bucket may be there until the janitor's time.
	Killed bool
}

// Breaches looks at database, bucket and queues of a world in which every job is to end, and names every invariant that does not hold. What is still
// under way by right (acknowledgements, notices, debts) gets until ctx ends.
func (w *World) Breaches(ctx context.Context, expect Expect) ([]string, error) {
	conn, err := pgx.Connect(ctx, w.Database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	settling, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := &check{w: w, conn: conn, expect: expect}
	for _, step := range []func(context.Context) error{c.settled, c.states, c.queues} {
		if err := step(settling); err != nil {
			return c.breaches, err
		}
	}
	return c.breaches, c.objects(ctx)
}

type check struct {
	w        *World
	conn     *pgx.Conn
	expect   Expect
	breaches []string
}

func (c *check) breach(format string, args ...any) {
	c.breaches = append(c.breaches, fmt.Sprintf(format, args...))
}

// nothing reports the rows of a query that is to yield none, each row one line of text.
func (c *check) nothing(ctx context.Context, what, sql string, args ...any) error {
	rows, err := c.conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if len(lines) > 0 {
		c.breach("%s: %d, such as %s", what, len(lines), strings.Join(lines[:min(5, len(lines))], " | "))
	}
	return err
}

// settled waits until nothing is owed and every job has ended.
func (c *check) settled(ctx context.Context) error {
	var open, debts, notices int
	err := Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		err := c.conn.QueryRow(context.WithoutCancel(ctx), `select (select count(*) from job where completed_at is null), (select count(*) from dispatch), (select count(*) from outbox)`).
			Scan(&open, &debts, &notices)
		return open+debts+notices == 0, err
	})
	if ctx.Err() != nil {
		c.breach("left over: %d open jobs, %d debts, %d notices in the outbox", open, debts, notices)
		return nil
	}
	return err
}

func (c *check) states(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := c.nothing(ctx, "jobs whose counts do not add up", `
		select format('%s %s total %s, chunks %s, stored %s+%s+%s, counted %s+%s+%s', j.job_id, j.status, j.total, c.n, j.done, j.failed, j.cancelled, c.done, c.failed, c.cancelled)
		from job j cross join lateral (select count(*) n, count(*) filter (where status = 'DONE') done, count(*) filter (where status = 'DLQ') failed,
			count(*) filter (where status = 'CANCELLED') cancelled, sum(row_count) filter (where status = 'DONE') row_count,
			sum(byte_count) filter (where status = 'DONE') byte_count, count(*) filter (where status = 'DONE' and reused) reused from job_chunk where job_id = j.job_id) c
		where j.total <> c.n or j.completed_at is not null and ((j.done, j.failed, j.cancelled, j.files_reused, j.row_count, j.byte_count)
			is distinct from (c.done, c.failed, c.cancelled, c.reused, coalesce(c.row_count, 0), coalesce(c.byte_count, 0)) or c.done + c.failed + c.cancelled <> j.total)`); err != nil {
		return err
	}
	if err := c.nothing(ctx, "open chunks of ended jobs", `
		select c.job_id || '/' || c.chunk_key || ' ' || c.status from job_chunk c join job j using (job_id)
		where j.completed_at is not null and c.status in ('PENDING', 'RUNNING', 'RETRY_WAIT')`); err != nil {
		return err
	}
	if err := c.nothing(ctx, "outcomes that the chunks do not bear out", `
		select j.job_id || ' ' || j.status from job j cross join lateral (select count(*) filter (where status = 'DLQ') failed,
			count(*) filter (where status = 'CANCELLED') cancelled from job_chunk where job_id = j.job_id) c
		where j.status = 'COMPLETED' and c.failed + c.cancelled > 0 or j.status = 'FAILED' and c.failed = 0`); err != nil {
		return err
	}
	// The run in which a chunk was done may be an earlier one than its job's last.
	return c.nothing(ctx, "chunks whose attempts are not accounted for", `
		select format('%s/%s %s attempts %s', c.job_id, c.chunk_key, c.status, c.attempts) from job_chunk c join job j using (job_id) where c.status in ('DONE', 'DLQ') and not exists (
			select from generate_series(1, j.run) r(run) where c.attempts = (c.status = 'DONE')::int + (select count(*) from chunk_attempt a
				where a.job_id = c.job_id and a.chunk_key = c.chunk_key and a.run = r.run and outcome in ('RETRY', 'LOST', 'DLQ', 'CANCELLED')))`)
}

// objects compares every file with what the database says of it and with what the function gives now.
func (c *check) objects(ctx context.Context) error {
	store, err := s3out.Open(ctx, c.w.S3)
	if err != nil {
		return err
	}
	defer store.Close()
	found := map[string]s3out.ObjectInfo{}
	for o, err := range store.ListObjects(ctx, "") {
		if err != nil {
			return err
		}
		found[o.Key] = o
	}
	for u, err := range store.ListUploads(ctx, "") {
		if err != nil {
			return err
		}
		if !c.probe(u.Key) {
			c.breach("open multipart upload of %s since %s", u.Key, u.Initiated)
		}
	}
	if err := c.nothing(ctx, "done chunks that differ from the newest file of their object", `
		select format('%s/%s %s', c.job_id, c.chunk_key, c.s3_object_key) from job_chunk c left join file_cache f on f.object_key = c.s3_object_key
		where c.status = 'DONE' and (f.object_key is null or c.started_at >= case when c.reused then f.last_generated_at else f.claim_started_at end -- an older file may have been replaced before it was settled
			and (c.row_count, c.byte_count, c.sha256, c.etag) is distinct from (f.row_count, f.byte_count, f.sha256, f.etag))`); err != nil {
		return err
	}
	rows, err := c.conn.Query(ctx, `select distinct on (s3_object_key) s3_object_key, f.row_count, f.byte_count, f.sha256, f.etag, key, effective_date, j.compression
		from job_chunk c join file_cache f on f.object_key = s3_object_key join job j on j.job_id = c.job_id where c.status = 'DONE' order by s3_object_key`)
	if err != nil {
		return err
	}
	files, err := pgx.CollectRows(rows, pgx.RowToStructByPos[recorded])
	if err != nil {
		return err
	}
	source, err := fixedSession(ctx, c.w.Database)
	if err != nil {
		return err
	}
	defer source.Close(context.WithoutCancel(ctx))
	for _, f := range files {
		o, ok := found[f.ObjectKey]
		delete(found, f.ObjectKey)
		if !ok {
			c.breach("no object %s", f.ObjectKey)
			continue
		}
		if o.Size != f.Bytes || o.ETag != f.ETag {
			c.breach("object %s has %d bytes and ETag %s, recorded are %d and %s", f.ObjectKey, o.Size, o.ETag, f.Bytes, f.ETag)
			continue
		}
		if err := c.content(ctx, store, source, f); err != nil {
			c.breach("object %s: %v", f.ObjectKey, err)
		}
	}
	return c.manifests(ctx, store, found)
}

// probe says whether the key is that of a self-test that may have been cut short.
func (c *check) probe(key string) bool {
	return c.expect.Killed && strings.HasPrefix(key, c.w.S3.BasePath+"/_probe/")
}

type recorded struct {
	ObjectKey    string
	Rows, Bytes  int64
	SHA256, ETag string
	Key          string
	Date         time.Time
	Compression  string
}

// fixedSession is a session set as the contract says, on a server and a database that may be set otherwise.
func fixedSession(ctx context.Context, url string) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `set timezone = 'UTC'; set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; set extra_float_digits = 1; set bytea_output = 'hex';
		set client_encoding = 'UTF8'; set lc_monetary = 'C'; set standard_conforming_strings = on; set e2e.fast = 'on'; set max_parallel_workers_per_gather = 0`); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (c *check) content(ctx context.Context, store *s3out.Store, source *pgx.Conn, f recorded) error {
	body, _, err := store.Get(ctx, f.ObjectKey)
	if err != nil {
		return err
	}
	defer body.Close()
	hash := sha256.New()
	plain, err := decompressed(io.TeeReader(body, hash), f.Compression)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(plain)
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != f.SHA256 {
		return fmt.Errorf("its sha256 is %s, recorded is %s", sum, f.SHA256)
	}
	for _, key := range c.expect.Changed {
		if key == f.Key {
			return nil
		}
	}
	var want bytes.Buffer
	tag, err := source.PgConn().CopyTo(ctx, &want, fmt.Sprintf("copy (select * from export_rows('%s', '%s')) to stdout (format csv, header)",
		strings.ReplaceAll(f.Key, "'", "''"), f.Date.Format(time.DateOnly)))
	switch {
	case err != nil:
		return fmt.Errorf("copy the same rows: %w", err)
	case !bytes.Equal(got, want.Bytes()):
		return fmt.Errorf("its %d bytes differ from the %d that COPY gives now", len(got), want.Len())
	case tag.RowsAffected() != f.Rows:
		return fmt.Errorf("%d rows are recorded, COPY counts %d", f.Rows, tag.RowsAffected())
	}
	return nil
}

func decompressed(r io.Reader, compression string) (io.Reader, error) {
	switch compression {
	case "GZIP":
		return gzip.NewReader(r)
	case "ZSTD":
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	default:
		return r, nil
	}
}

// manifests checks that completed jobs have theirs, and that there are no other objects.
func (c *check) manifests(ctx context.Context, store *s3out.Store, found map[string]s3out.ObjectInfo) error {
	rows, err := c.conn.Query(ctx, `select job_id, status, total from job where completed_at is not null`)
	if err != nil {
		return err
	}
	var id, status string
	var total int
	_, err = pgx.ForEachRow(rows, []any{&id, &status, &total}, func() error {
		key := export.ManifestKey(c.w.S3.BasePath, id)
		_, ok := found[key]
		delete(found, key)
		if !ok {
			if status == "COMPLETED" {
				c.breach("no manifest of the completed job %s", id)
			}
			return nil
		}
		var manifest struct {
			JobID, Outcome string
			Chunks         []json.RawMessage
		}
		body, _, err := store.Get(ctx, key)
		if err != nil {
			return err
		}
		defer body.Close()
		if err := json.NewDecoder(body).Decode(&manifest); err != nil || manifest.JobID != id || manifest.Outcome != status || len(manifest.Chunks) != total {
			c.breach("the manifest of job %s says %s, %s, %d chunks (%v); the job is %s with %d", id, manifest.JobID, manifest.Outcome, len(manifest.Chunks), err, status, total)
		}
		return nil
	})
	for key := range found {
		if c.probe(key) {
			continue
		}
		c.breach("an object that belongs to nothing: %s", key)
	}
	return err
}

// queues waits until the work queue is empty and every dead-lettering is on the parking queue, and looks for what the broker itself dead-lettered.
func (c *check) queues(ctx context.Context) error {
	if len(c.w.Broker.URLs) == 0 {
		return nil
	}
	var deadLettered int
	if err := c.conn.QueryRow(context.WithoutCancel(ctx), `select count(*) from chunk_attempt where outcome = 'DLQ'`).Scan(&deadLettered); err != nil {
		return err
	}
	state := ""
	err := Poll(ctx, 200*time.Millisecond, func() (bool, error) {
		waiting, err := broker.Browse(ctx, c.w.Broker, c.w.Work, 1000)
		if err != nil {
			state = err.Error()
			return false, nil
		}
		parked, err := broker.Browse(ctx, c.w.Broker, c.w.Parking, 10_000)
		if err != nil {
			state = err.Error()
			return false, nil
		}
		notices, foreign := map[string]bool{}, 0
		for _, m := range parked {
			var n struct{ ParkingID string }
			if err := json.Unmarshal(m.Body, &n); err == nil && n.ParkingID != "" {
				notices[n.ParkingID] = true
			} else {
				foreign++
			}
		}
		state = fmt.Sprintf("%d messages in the work queue; on the parking queue %d notices for %d dead-letterings, %d foreign messages for %d",
			len(waiting), len(notices), deadLettered, foreign, c.expect.Parked)
		told := len(notices) == deadLettered || c.expect.Unannounced && len(notices) < deadLettered
		return len(waiting) == 0 && told && (foreign == c.expect.Parked || c.expect.Parked < 0), nil
	})
	if err != nil {
		c.breach("%s", state)
	}
	dead, err := broker.Browse(context.WithoutCancel(ctx), c.w.Broker, "ActiveMQ.DLQ", 1000)
	if err != nil {
		return err
	}
	for _, m := range dead {
		if strings.HasSuffix(m.Headers["original-destination"], c.w.Work) || strings.HasSuffix(m.Headers["original-destination"], c.w.Parking) {
			c.breach("the broker dead-lettered a message: %s", m.Body)
		}
	}
	return nil
}
