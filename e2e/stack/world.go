// Package stack runs whole installations of exportd: the built program's api and consumers as processes of their own, on a real PostgreSQL, ActiveMQ
// and S3, to be driven over HTTP, killed at will, and looked at from outside. Tests and the chaos program share it.
package stack

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"exportd/broker"
	"exportd/db"
	"exportd/s3out"
)

// World is one installation: where its services are and what its processes are told. The bucket's credentials are those of the environment.
type World struct {
	Program   string // path of the built exportd
	Database  string // URL; holds the export function of function.sql too
	Broker    broker.Config
	S3        s3out.Config
	Work      string // queue names
	Parking   string
	Settings  []string // further NAME=value for every process, overruling Fast
	mu        sync.Mutex
	processes []*Process
}

// Fast are settings under which a lost worker is replaced within seconds, with three attempts and nothing that repairs by itself unless asked.
var Fast = []string{
	"EXPORTD_LEASE=4s", "EXPORTD_SWEEP_INTERVAL=500ms", "EXPORTD_RETRY_BASE=200ms", "EXPORTD_RETRY_MAX=1s", "EXPORTD_MAX_ATTEMPTS=3",
	"EXPORTD_REPUBLISH_AFTER=3s", "EXPORTD_BROKER_FALLBACK=0", "EXPORTD_CONCURRENCY=4", "EXPORTD_PART_SIZE=5MiB", "EXPORTD_DRAIN_TIMEOUT=10s",
	"EXPORTD_LOG_LEVEL=debug",
}

//go:embed function.sql
var function string

// Prepare migrates an empty database and puts the export function into it.
func Prepare(ctx context.Context, url string) error {
	if err := db.Migrate(ctx, url); err != nil {
		return err
	}
	return CreateSource(ctx, url)
}

// CreateSource puts the export function into a migrated database.
func CreateSource(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, function); err != nil {
		return fmt.Errorf("create the export function: %w", err)
	}
	return nil
}

// Environ is the environment of a process: that of this one without EXPORTD_ variables, and the world's.
func (w *World) Environ(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "EXPORTD_") })
	env = append(env, Fast...)
	env = append(env, "EXPORTD_DATABASE_URL="+w.Database, "EXPORTD_HTTP_ADDR=127.0.0.1:0",
		"EXPORTD_BROKER_URLS="+strings.Join(w.Broker.URLs, ","), "EXPORTD_BROKER_USER="+w.Broker.User, "EXPORTD_BROKER_PASSWORD="+w.Broker.Password,
		"EXPORTD_WORK_QUEUE="+w.Work, "EXPORTD_PARKING_QUEUE="+w.Parking,
		"EXPORTD_S3_ENDPOINT="+w.S3.Endpoint, "EXPORTD_S3_REGION="+w.S3.Region, "EXPORTD_S3_BUCKET="+w.S3.Bucket, "EXPORTD_S3_BASE_PATH="+w.S3.BasePath)
	return append(append(env, w.Settings...), more...)
}

// Start runs a serving command, api or consumer, with further settings, and returns when it serves; see Process.Ready.
func (w *World) Start(ctx context.Context, command string, settings ...string) (*Process, error) {
	w.mu.Lock()
	name := fmt.Sprintf("%s-%d", command, len(w.processes)+1)
	w.mu.Unlock()
	p, err := start(ctx, name, w.Program, w.Environ(settings...), command)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	return p, nil
}

// Processes are all that were started, dead ones too.
func (w *World) Processes() []*Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

// KillAll kills what still runs.
func (w *World) KillAll() {
	for _, p := range w.Processes() {
		_ = p.Kill() // nothing depends on how it ends
	}
}

// Run runs a command to its end and returns the exit code with everything it wrote.
func (w *World) Run(ctx context.Context, settings []string, args ...string) (code int, output string, err error) {
	cmd := exec.CommandContext(ctx, w.Program, args...)
	cmd.Env = w.Environ(settings...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return 0, string(out), fmt.Errorf("run exportd %s: %w", strings.Join(args, " "), err)
	}
	return cmd.ProcessState.ExitCode(), string(out), nil
}
