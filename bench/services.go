package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"exportd/broker/localmq"
	"exportd/db"
	"exportd/db/pglocal"
	"exportd/e2e/stack"
	"exportd/s3out"
	"exportd/s3out/locals3"
)

// bench is one run of the program: the services, which all variants share, and what was measured.
type bench struct {
	options
	dir, machine string
	program      string // the built exportd
	postgres     *pglocal.Server
	activemq     *localmq.Server
	s3           *locals3.Server
	database     string
	conn         *pgx.Conn // of the bench itself
	runs         int
	results      []result
}

const bucket = "exports"

// discard is for libraries that would log by themselves.
var discard = slog.New(slog.DiscardHandler)

// startServices starts what a production installation would have, durable as there.
func (b *bench) startServices(ctx context.Context) (err error) {
	fmt.Println("building exportd, starting PostgreSQL, S3 (versitygw) and ActiveMQ")
	if b.program, err = stack.Build(b.dir, false); err != nil {
		return err
	}
	settings := map[string]string{"shared_buffers": "2GB", "max_wal_size": "4GB", "checkpoint_timeout": "30min", "max_connections": "300"}
	if b.statements {
		settings["shared_preload_libraries"] = "pg_stat_statements"
		settings["pg_stat_statements.track_planning"] = "on"
	}
	if b.postgres, err = pglocal.Start(ctx, pglocal.Options{Settings: settings}); err != nil {
		return err
	}
	b.database = b.postgres.URL("postgres")
	if b.activemq, err = localmq.Start(ctx, localmq.Config{Dir: filepath.Join(b.dir, "activemq"), Lasting: true}); err != nil {
		return err
	}
	versitygw, err := locals3.Find(ctx)
	if err != nil {
		return err
	}
	if b.s3, err = locals3.Start(ctx, versitygw, filepath.Join(b.dir, "s3")); err != nil {
		return err
	}
	os.Setenv("AWS_ACCESS_KEY_ID", locals3.AccessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", locals3.SecretKey)
	if err := b.makeBucket(ctx); err != nil {
		return err
	}
	if err := db.Migrate(ctx, b.database); err != nil {
		return err
	}
	if b.conn, err = pgx.Connect(ctx, b.database); err != nil {
		return err
	}
	return b.preparePeer(ctx)
}

func (b *bench) makeBucket(ctx context.Context) error {
	store, err := s3out.Open(ctx, s3Config(b.s3.Endpoint(), "exports", 8))
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Probe(ctx)
}

func s3Config(endpoint, basePath string, concurrency int) s3out.Config {
	return s3out.Config{Bucket: bucket, BasePath: basePath, Endpoint: endpoint, Region: "us-east-1", CreateBucket: true, Concurrency: concurrency, Log: discard}
}

// preparePeer makes River's tables and, for its results, a table like exportd's.
func (b *bench) preparePeer(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, b.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: discard})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("make River's tables: %w", err)
	}
	_, err = pool.Exec(ctx, `create table peer_chunk (like job_chunk including all) with (fillfactor = 80)`)
	return err
}

func (b *bench) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if b.conn != nil {
		b.conn.Close(ctx)
	}
	// Throw-away services: how they end matters to nobody.
	if b.s3 != nil {
		_ = b.s3.Stop()
	}
	if b.activemq != nil {
		_ = b.activemq.Stop(ctx)
	}
	if b.postgres != nil {
		_ = b.postgres.Stop(ctx)
	}
}

// settle puts the services into the same state before every run: nothing left to write, statistics up to date, no files of earlier runs.
func (b *bench) settle(ctx context.Context) error {
	if err := b.setFilesAside(); err != nil {
		return err
	}
	return b.vacuum(ctx)
}

// setFilesAside empties the files of the run before and moves them out of the bucket. Removed, they would make every new file dear for minutes: without a journal
// ext4 passes over inodes that were deleted lately (recently_deleted in its ialloc.c), which took half of the store's CPU time.
func (b *bench) setFilesAside() error {
	files := b.files()
	err := filepath.WalkDir(files, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Truncate(path, 0)
	})
	if errors.Is(err, fs.ErrNotExist) { // there was no run before
		return nil
	}
	aside := ""
	if err == nil {
		aside, err = os.MkdirTemp(b.dir, "aside")
	}
	if err != nil {
		return err
	}
	return os.Rename(files, filepath.Join(aside, "bench"))
}

// files is the folder of all files that the runs make, one folder in it for each.
func (b *bench) files() string { return filepath.Join(b.dir, "s3", "data", bucket, "bench") }

// filesSum is the hash of all CSV files since settle, with their names within the folder of their run.
func (b *bench) filesSum() (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(b.files(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".csv" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, name, _ := strings.Cut(strings.TrimPrefix(path, b.files()+"/"), "/")
		fmt.Fprintln(sum, name)
		_, err = io.Copy(sum, f)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// tables are those that grow with the work.
var tables = []string{"job", "job_chunk", "dispatch", "outbox", "chunk_attempt", "file_cache", "peer_chunk", "river_job"}

func (b *bench) vacuum(ctx context.Context) error {
	for _, table := range tables {
		if _, err := b.conn.Exec(ctx, "vacuum (analyze) "+table); err != nil {
			return err
		}
	}
	_, err := b.conn.Exec(ctx, "checkpoint")
	return err
}

// loadData makes the rows of all chunks: one table with an index over key and date, and the function that is inlined into the query.
func (b *bench) loadData(ctx context.Context) error {
	fmt.Println("loading the data")
	statements := []string{`create extension pg_prewarm`,
		`create table sample_rows (key text, effective_date date, id bigint, account text, amount numeric(14, 2), currency text, price double precision,
			booked_at timestamptz, note text)`}
	if b.statements {
		statements = append(statements, `create extension pg_stat_statements`)
	}
	for _, s := range b.sets() {
		if b.wanted(s) {
			statements = append(statements, fmt.Sprintf(`insert into sample_rows
				select '%s-' || lpad((c / %d)::text, 4, '0'), date '%s' + c %% %d, c::bigint * 1000000 + r, 'ACC-' || lpad((r::bigint * 7919 %% 1000000)::text, 8, '0'),
				       (r * 31 %% 1000000) / 100.0, (array['EUR', 'USD', 'CHF'])[1 + r %% 3], r * 1.0001, timestamptz '2024-01-01 00:00:00Z' + r * interval '1 s',
				       case when r %% 10 = 0 then 'note, with "quotes"' else 'an ordinary note' end
				from generate_series(0, %d) c, generate_series(1, %d) r`, s.name, datesPerKey, firstDate.Format(time.DateOnly), datesPerKey, s.chunks-1, s.rows))
		}
	}
	statements = append(statements, `create index on sample_rows (key, effective_date)`, `vacuum (freeze, analyze) sample_rows`,
		`select pg_prewarm('sample_rows'), pg_prewarm('sample_rows_key_effective_date_idx')`,
		`create function export_rows(p_key text, p_date date) returns setof sample_rows language sql stable
			as $$ select * from sample_rows where key = p_key and effective_date = p_date $$`)
	for _, s := range statements {
		if _, err := b.conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%.60s…: %w", strings.TrimSpace(s), err)
		}
	}
	return nil
}

func describeMachine() string {
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	model, cores := "unknown CPU", 0
	for line := range strings.Lines(string(cpu)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			cores++
		}
	}
	return fmt.Sprintf("%d × %s", cores, model)
}

// load is the number of runnable processes over the last minute.
func load() string {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// warmBroker has the broker's JVM compile what it does for every message, as one that has run for a while did long ago: runs like those to come, until its CPU
// time for a message falls no more.
func (b *bench) warmBroker(ctx context.Context) error {
	fmt.Println("warming the broker")
	const least, most, falling = 3, 12, 0.9
	t := throughput{warmSet: "TINY", set: "TINY", chunks: b.sizes.Submitted - warm(16), concurrency: 16}
	best := math.Inf(1)
	for round := range most {
		r := result{Variant: exportdBroker, Chunks: t.chunks}
		if err := b.onceExportd(ctx, t, &r, "bench/warm"); err != nil { // from the second on the files are there
			return err
		}
		now := r.cpu("activemq")
		if round >= least && now > falling*best {
			break
		}
		best = min(best, now)
	}
	return b.forgetJobs(ctx)
}
