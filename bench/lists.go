package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/db"
	"exportd/db/pglocal"
	"exportd/export"
	"exportd/s3out"
)

const listsName = "lists"

// lists times every call of the API with many jobs in the database and with few, in two databases of one server, in turns.
type lists struct {
	*bench
	server      *pglocal.Server
	small, full *side
}

// side is one of the databases with the API on it.
type side struct {
	bench
	fill fill
	in   *installation
	asks int

	done, failed, open string // jobs of mostChunks chunks
	job, dead, going   string // of 40: completed, failed, in progress
	chunk, deadChunk   string // of done, and of dead
	etags              map[string]string
}

// fill is what lists.sql is set to.
type fill struct{ Jobs, Open, Failed, Cancelled, Few int }

//go:embed lists.sql
var listsSQL string

const mostChunks = 10_000

func (b *bench) lists(ctx context.Context) (_ *lists, err error) {
	began := time.Now()
	l := &lists{bench: b}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	l.server, err = pglocal.Start(ctx, pglocal.Options{Settings: map[string]string{
		"shared_buffers": "2GB", "max_wal_size": "4GB", "checkpoint_timeout": "30min", "wal_level": "minimal", "max_wal_senders": "0"}}) // the last two for the filling
	if err != nil {
		return l, err
	}
	if l.small, err = l.newSide(ctx, "small", fill{Jobs: 450, Open: 210, Failed: 3, Cancelled: 3, Few: 5}); err != nil {
		return l, err
	}
	l.full, err = l.newSide(ctx, "full", fill{Jobs: b.sizes.ListedJobs, Open: 1000, Failed: 17, Cancelled: 31, Few: 700})
	fmt.Printf("filled the databases of the lists in %.0f s\n", time.Since(began).Seconds())
	return l, err
}

func (l *lists) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, s := range []*side{l.small, l.full} {
		if s != nil && s.in != nil {
			s.in.stop()
		}
	}
	if l.server != nil {
		_ = l.server.Stop(ctx) // throw-away
	}
}

func (l *lists) newSide(ctx context.Context, name string, f fill) (s *side, err error) {
	s = &side{bench: *l.bench, fill: f, etags: map[string]string{}}
	database := "lists_" + name
	s.database, s.dir = l.server.URL(database), filepath.Join(l.dir, database)
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	admin, err := pgx.Connect(ctx, l.server.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer admin.Close(ctx)
	if _, err := admin.Exec(ctx, "create database "+database); err != nil {
		return nil, err
	}
	if err := db.Migrate(ctx, s.database); err != nil {
		return nil, err
	}
	if err := s.write(ctx); err != nil {
		return nil, fmt.Errorf("fill the %s database: %w", name, err)
	}
	return s, l.writeManifest(ctx, s.done)
}

func (s *side) write(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	settings := map[string]string{"jit": "off", "work_mem": "512MB", "fill.jobs": strconv.Itoa(s.fill.Jobs), "fill.open": strconv.Itoa(s.fill.Open),
		"fill.failed": strconv.Itoa(s.fill.Failed), "fill.cancelled": strconv.Itoa(s.fill.Cancelled), "fill.few": strconv.Itoa(s.fill.Few)}
	for name, value := range settings {
		if _, err := conn.Exec(ctx, `select set_config($1, $2, false)`, name, value); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, listsSQL); err != nil {
		return err
	}
	for _, statement := range []string{"vacuum (analyze)", "checkpoint"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for status, into := range map[export.JobStatus][2]*string{
		export.Completed: {&s.done, &s.job}, export.Failed: {&s.failed, &s.dead}, export.InProgress: {&s.open, &s.going},
	} {
		err := conn.QueryRow(ctx, `select (select job_id from job where status = $1 and total = $2),
			(select job_id from job where status = $1 and total < $2 order by created_at desc limit 1)`, status, mostChunks).Scan(into[0], into[1])
		if err != nil {
			return err
		}
	}
	return conn.QueryRow(ctx, `select (select chunk_key from job_chunk where job_id = $1 order by chunk_key limit 1 offset 7000),
		(select chunk_key from job_chunk where job_id = $2 and status = 'DLQ')`, s.done, s.dead).Scan(&s.chunk, &s.deadChunk)
}

// writeManifest puts one as long as exportd's own into the bucket.
func (l *lists) writeManifest(ctx context.Context, jobID string) error {
	store, err := s3out.Open(ctx, s3Config(l.s3.Endpoint(), listsBase, 8))
	if err != nil {
		return err
	}
	defer store.Close()
	up := store.NewUpload(ctx, s3out.UploadOptions{Key: export.ManifestKey(listsBase, jobID), ContentType: "application/json"})
	defer up.Abort(ctx)
	entry := map[string]any{"key": "K1234", "effectiveDate": "20200101", "status": "DONE", "s3Path": "s3://exports/exports/2020/01/01/K1234_20200101.csv", "rowCount": 10000,
		"byteCount": 1140000, "sha256": "d41402abc4b2a76b9719d911017c592ae3f1c0d8f3b0d2a5d41402abc4b2a76ab", "reused": false}
	chunks := make([]any, mostChunks)
	for i := range chunks {
		chunks[i] = entry
	}
	if err := json.NewEncoder(up).Encode(map[string]any{"jobId": jobID, "run": 1, "outcome": "COMPLETED", "chunks": chunks}); err != nil {
		return err
	}
	if _, _, err := up.Finish(ctx); err != nil {
		return err
	}
	_, err = up.Commit(ctx, s3out.Condition{}, nil)
	return err
}

const listsBase = "exports"

// measureLists times the calls: warm, then each as the first thing that is asked after a restart of PostgreSQL and the API.
func (b *bench) measureLists(ctx context.Context) ([]timing, error) {
	l, err := b.lists(ctx)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	var timings []timing
	for _, c := range calls() {
		t, err := l.warm(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Println(t)
		timings = append(timings, t)
	}
	for i, c := range calls() {
		if err := l.cold(ctx, c, &timings[i]); err != nil {
			return nil, fmt.Errorf("%s, cold: %w", c.name, err)
		}
	}
	return timings, nil
}

func (l *lists) start(ctx context.Context) (err error) {
	for _, s := range []*side{l.small, l.full} {
		if s.in, err = s.startExportd(ctx, exportdBroker, listsBase, 0); err != nil {
			return err
		}
	}
	return nil
}

// restart leaves neither the API nor PostgreSQL anything that they remember; the operating system keeps the files.
func (l *lists) restart(ctx context.Context) error {
	for _, s := range []*side{l.small, l.full} {
		if err := s.in.kill(); err != nil {
			return err
		}
		s.in.stop()
	}
	if err := l.server.Restart(ctx); err != nil {
		return err
	}
	return l.start(ctx)
}
