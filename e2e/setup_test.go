package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/api/apitest"
	"exportd/broker/brokertest"
	"exportd/broker/localmq"
	"exportd/db/dbtest"
	"exportd/db/pglocal"
	"exportd/e2e/stack"
	"exportd/s3out"
	"exportd/s3out/locals3"
	"exportd/s3out/s3test"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait: for leases, for brokers that start.
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "6")
	}
	if os.Getenv("EXPORTD_TEST_S3_ENDPOINT") == "" { // a private server too needs them
		os.Setenv("AWS_ACCESS_KEY_ID", locals3.AccessKey)
		os.Setenv("AWS_SECRET_ACCESS_KEY", locals3.SecretKey)
	}
	code := m.Run()
	s3test.Stop()
	if dir := builtIn; dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// builtIn is the folder of the programs under test.
var builtIn string

var buildDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "exportd-e2e-")
	builtIn = dir
	return dir, err
})

// The program as the tests themselves are built, with the race detector or without; and one always without, where its memory is measured.
var (
	program      = sync.OnceValues(func() (string, error) { return build(raceDetector()) })
	plainProgram = sync.OnceValues(func() (string, error) { return build(false) })
)

func build(race bool) (string, error) {
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	return stack.Build(dir, race)
}

func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// world is a stack.World whose calls fail the test.
type world struct {
	*stack.World
	t        *testing.T
	api      *stack.Process
	client   stack.Client
	contract *apitest.Contract // of api
	db       *pgx.Conn
	expect   stack.Expect

	// Servers of this test's own, where it asked for them.
	postgres *pglocal.Server
	activemq *localmq.Server
	s3       *locals3.Server
}

// own says which servers a test wants for itself, to stop and kill.
type own struct {
	postgres, broker, s3 bool
	plain                bool     // the program without the race detector
	empty                bool     // a database without tables and function
	brokerEnv            []string // for the ${...} of activemq.xml, with a broker of its own
}

// setup makes a world of the test's own: a database with the export function, two queues, a bucket. Nothing of exportd runs yet. When the test ends, all
// processes are killed, and the invariants of the world are checked, unless the test has failed.
func setup(t *testing.T, o own) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the whole system")
	}
	w := &world{World: &stack.World{}, t: t}
	build := program
	if o.plain {
		build = plainProgram
	}
	var err error
	if w.Program, err = build(); err != nil {
		t.Fatal(err)
	}
	w.setupDatabase(o.postgres, o.empty)
	w.setupBroker(o.broker, o.brokerEnv)
	w.setupBucket(o.s3)
	t.Cleanup(func() {
		w.KillAll()
		for _, p := range w.Processes() {
			log := p.Log()
			if strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:") {
				t.Errorf("%s has crashed or raced", p.Name)
			}
			if t.Failed() {
				t.Logf("log of %s:\n%s", p.Name, shortened(log))
			}
		}
	})
	return w
}

// shortened leaves out the answers to the test's own questions, and the middle of what is very long.
func shortened(log string) string {
	var lines strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"route":"GET /`) {
			lines.WriteString(line)
		}
	}
	log = lines.String()
	const most = 60_000
	if len(log) <= most {
		return log
	}
	return log[:most/2] + "\n[…]\n" + log[len(log)-most/2:]
}

// hostile are defaults of the database under which text is written differently: the files must not depend on them.
var hostile = []string{"timezone = 'Asia/Kathmandu'", "datestyle = 'German, DMY'", "intervalstyle = 'iso_8601'", "extra_float_digits = -5",
	"bytea_output = 'escape'", "standard_conforming_strings = off"}

func (w *world) setupDatabase(own, empty bool) {
	w.t.Helper()
	prepare := func(url string) error { return stack.Prepare(context.Background(), url) }
	if empty {
		w.Database = dbtest.URL(w.t)
	} else if own {
		w.postgres = dbtest.Server(w.t)
		w.Database = w.postgres.URL("postgres")
		if err := prepare(w.Database); err != nil {
			w.t.Fatal(err)
		}
	} else {
		w.Database = dbtest.Template(w.t, "e2e", prepare)
	}
	for _, setting := range hostile {
		w.exec(fmt.Sprintf(`do $$ begin execute format('alter database %%I set %s', current_database()); end $$`, strings.ReplaceAll(setting, "'", "''")))
	}
	w.db.Close(w.t.Context()) // sessions take the settings at their start
	w.db = nil
}

func (w *world) setupBroker(own bool, env []string) {
	w.t.Helper()
	var server brokertest.Server
	if own { // with the names that activemq.xml knows
		server, w.activemq = brokertest.PrivateActiveMQ(w.t, localmq.Config{Env: env})
		w.Work, w.Parking = "job.chunk.work", "job.chunk.parking"
	} else {
		server = brokertest.ActiveMQ(w.t)
		w.Work, w.Parking = brokertest.Queue(w.t)+".work", brokertest.Queue(w.t)+".parking"
	}
	w.Broker = server.Config(w.t)
	w.Broker.Log = nil
}

func (w *world) setupBucket(own bool) {
	w.t.Helper()
	if !own {
		w.S3 = s3test.Config(w.t)
		return
	}
	path, err := locals3.Find(w.t.Context())
	if err != nil {
		w.t.Skipf("this test needs an S3 server of its own: %v", err)
	}
	if w.s3, err = locals3.Start(w.t.Context(), path, w.t.TempDir()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.s3.Kill() })
	w.S3 = s3out.Config{Bucket: "exports", BasePath: "exports", Endpoint: w.s3.Endpoint(), Region: "us-east-1", CreateBucket: true}
	if err := w.bucket().Probe(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// limit is how long a test waits for what must happen.
const limit = 2 * time.Minute

func (w *world) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.t.Context(), limit)
}

// startAPI starts an api and makes it the one that the test talks to. Its answers are held against the document that it serves.
func (w *world) startAPI(settings ...string) *stack.Process {
	w.t.Helper()
	p := w.start("api", settings...)
	contract, err := apitest.Fetch(http.DefaultClient, p.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.api, w.client, w.contract = p, stack.Client{URL: p.URL, Check: contract.Check}, contract
	return p
}

func (w *world) start(command string, settings ...string) *stack.Process {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	p, err := w.Start(ctx, command, settings...)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// startConsumer starts a consumer and waits until all its dependencies answer.
func (w *world) startConsumer(settings ...string) *stack.Process {
	w.t.Helper()
	p := w.start("consumer", settings...)
	w.ready(p)
	return p
}

func (w *world) ready(p *stack.Process) {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		w.t.Fatalf("%v\n%s", err, shortened(p.Log()))
	}
}

func (w *world) submit(s stack.Submission) stack.Job {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	job, err := w.client.Submit(ctx, s)
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// wait waits until the job has ended.
func (w *world) wait(job stack.Job) stack.Job {
	w.t.Helper()
	return w.waitFor(job, stack.Job.Ended)
}

func (w *world) waitFor(job stack.Job, until func(stack.Job) bool) stack.Job {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	job, err := w.client.Wait(ctx, job.JobID, until)
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

// completed submits a job and waits until it is COMPLETED.
func (w *world) completed(s stack.Submission) stack.Job {
	w.t.Helper()
	return w.ended(w.submit(s), "COMPLETED")
}

// ended waits for the end of the job, which must be the given one.
func (w *world) ended(job stack.Job, status string) stack.Job {
	w.t.Helper()
	job = w.wait(job)
	if job.Status != status {
		w.t.Fatalf("got %+v, want %s", job, status)
	}
	return job
}

// eventually waits until the question is answered by yes.
func (w *world) eventually(what string, ask func() bool) {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	if err := stack.Poll(ctx, 20*time.Millisecond, func() (bool, error) { return ask(), nil }); err != nil {
		w.t.Fatalf("%s: not in time", what)
	}
}

// items asks for one chunk for each key on a day long past, where reuse is allowed.
func items(keys ...string) []stack.Item {
	list := make([]stack.Item, len(keys))
	for i, k := range keys {
		list[i] = stack.Item{Key: k, EffectiveDates: []string{"20200131"}}
	}
	return list
}
