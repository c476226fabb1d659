package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/broker/brokertest"
	"exportd/db/dbtest"
	"exportd/s3out"
	"exportd/s3out/s3test"
)

// beExportd makes the test binary behave as the program, for tests that need real processes: the demo starts its own executable.
const beExportd = "EXPORTD_TEST_BE_EXPORTD"

func TestMain(m *testing.M) {
	if os.Getenv(beExportd) != "" {
		main()
	}
	code := m.Run()
	s3test.Stop()
	os.Exit(code)
}

// world is what one test has to itself: a database, two queues, a bucket, and the environment that names them.
type world struct {
	t           *testing.T
	databaseURL string
	bucket      *s3out.Store
	environ     []string
}

// setup makes a world whose export function gives, for a key that is a number, that many rows.
func setup(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL, ActiveMQ and S3")
	}
	queues := brokertest.ActiveMQ(t)
	s3 := s3test.Config(t)
	w := &world{t: t, databaseURL: dbtest.URL(t)}
	bucket, err := s3out.Open(t.Context(), s3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bucket.Close)
	w.bucket = bucket
	work := brokertest.Queue(t)
	w.environ = []string{
		"EXPORTD_DATABASE_URL=" + w.databaseURL,
		"EXPORTD_BROKER_URLS=" + strings.Join(queues.URLs, ","), "EXPORTD_BROKER_USER=" + queues.User, "EXPORTD_BROKER_PASSWORD=" + queues.Password,
		"EXPORTD_WORK_QUEUE=" + work, "EXPORTD_PARKING_QUEUE=" + work + ".parking",
		"EXPORTD_S3_BUCKET=" + s3.Bucket, "EXPORTD_S3_BASE_PATH=" + s3.BasePath, "EXPORTD_S3_ENDPOINT=" + s3.Endpoint, "EXPORTD_S3_REGION=" + s3.Region,
		"EXPORTD_HTTP_ADDR=127.0.0.1:0",
	}
	w.sql(`create function export_rows(key text, effective_date date) returns table (n int, day date) language sql stable as
		$$ select n, effective_date from generate_series(1, key::int) n order by n $$`)
	return w
}

func (w *world) sql(statement string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // also in clean-up, when the test's own context has ended
	defer cancel()
	conn, err := pgx.Connect(ctx, w.databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		w.t.Fatal(err)
	}
}

// with is the environment with more variables, which win.
func (w *world) with(more ...string) []string {
	return append(append([]string{}, w.environ...), more...)
}

// command runs a command to its end.
func (w *world) command(environ []string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	var out, errs strings.Builder
	code = run(ctx, args, strings.NewReader(""), &out, &errs, environ)
	return code, out.String(), errs.String()
}

// server is a command that runs until it is stopped.
type server struct {
	addr string // http://host:port
	stop func() int
}

// start runs a command in this process until stop or the end of the test, and returns when it serves.
func (w *world) start(environ []string, args ...string) *server {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, args, strings.NewReader(""), in, w.t.Output(), environ)
		in.Close()
	}()
	s := &server{stop: sync.OnceValue(func() int {
		cancel()
		select {
		case c := <-code:
			return c
		case <-time.After(time.Minute):
			w.t.Errorf("%q does not stop", args)
			return -1
		}
	})}
	w.t.Cleanup(func() { s.stop() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			s.addr = addr
			go io.Copy(io.Discard, out)
			return s
		}
	}
	w.t.Fatalf("%q ended with %d before it served", args, s.stop())
	return nil
}

func call(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// eventually polls until ok, and fails the test with the last thing said when that takes too long.
func eventually(t *testing.T, limit time.Duration, ok func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		done, said := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, said)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the test ended")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// object is the content of an object, or the reason why there is none.
func (w *world) object(key string) string {
	body, _, err := w.bucket.Get(w.t.Context(), key)
	if err != nil {
		return fmt.Sprint(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(text)
}
