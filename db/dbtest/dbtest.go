// Package dbtest gives each test a database of its own on a real PostgreSQL server.
//
// The server of a test binary is found in this order: the superuser URL in EXPORTD_TEST_DATABASE_URL; a container, when an engine answers and
// has the image; the programs installed on this machine, unless EXPORTD_TEST_REQUIRE names containers. Without any the test skips, or fails when that names postgres.
package dbtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"exportd/containertest"
	"exportd/db/pglocal"
)

const (
	envURL     = "EXPORTD_TEST_DATABASE_URL"
	envRequire = "EXPORTD_TEST_REQUIRE"
	// stepLimit bounds each single step of a helper.
	stepLimit = time.Minute
)

// Run is for TestMain: os.Exit(dbtest.Run(m)). It runs the tests, removes what this package made, and fails when goroutines are left behind. A test
// binary without it works too; its server then dies with the process.
func Run(m *testing.M) int {
	code := m.Run()
	if s := shared.stop(); s != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", s)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// URL of a fresh, empty database for this test's superuser. It is dropped after the test, whoever is still connected.
func URL(t testing.TB) string {
	t.Helper()
	return newDatabase(t, shared.find(t), "template0")
}

// Template is URL for a database prepared once per test binary: the first call with a name runs prepare on an empty database, every call gives a copy.
// prepare must close its connections.
func Template(t testing.TB, name string, prepare func(url string) error) string {
	t.Helper()
	admin := shared.find(t)
	template, err := shared.template(admin, name, prepare)
	if err != nil {
		t.Fatalf("prepare the template database %q: %v", name, err)
	}
	return newDatabase(t, admin, template)
}

// Server starts a server for this test alone, to be killed and restarted by it.
func Server(t testing.TB) *pglocal.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	s, err := pglocal.Start(ctx, pglocal.Options{Settings: settings})
	if err != nil {
		unavailable(t, fmt.Errorf("this test needs a server of its own: %w", err))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// settings of servers started here: room for parallel tests; a machine that crashes in a test may lose its data.
var settings = map[string]string{"max_connections": "400", "fsync": "off", "full_page_writes": "off"}

func unavailable(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, pglocal.ErrNotInstalled) || strings.Contains(os.Getenv(envRequire), "postgres") {
		t.Fatalf("no PostgreSQL for this test: %v", err)
	}
	t.Skipf("%v; or set %s to a superuser's URL", err, envURL)
}

func newDatabase(t testing.TB, admin, template string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if err := createDatabase(admin, name, template); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	t.Cleanup(func() {
		// Errors do not matter to the test: a server that it killed, for instance.
		if err := onServer(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Logf("drop the test's database: %v", err)
		}
	})
	return withDatabase(admin, name)
}

func createDatabase(admin, name, template string) error {
	return onServer(admin, "CREATE DATABASE "+name+" TEMPLATE "+template)
}

func onServer(admin string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // not reached: the server was found through this URL
	}
	u.Path = "/" + name
	return u.String()
}

// sharedServer is the server of this test binary, found at first use, and the templates on it.
type sharedServer struct {
	once  sync.Once
	admin string // superuser URL
	err   error
	end   func(context.Context) error

	mu        sync.Mutex
	templates map[string]*preparedTemplate
}

type preparedTemplate struct {
	once     sync.Once
	database string
	err      error
}

var shared = &sharedServer{templates: map[string]*preparedTemplate{}}

func (s *sharedServer) find(t testing.TB) string {
	t.Helper()
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*stepLimit)
		defer cancel()
		s.admin, s.end, s.err = findServer(ctx)
	})
	if s.err != nil {
		unavailable(t, s.err)
	}
	return s.admin
}

func findServer(ctx context.Context) (admin string, end func(context.Context) error, err error) {
	if admin = os.Getenv(envURL); admin != "" {
		if u, err := url.Parse(admin); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return "", nil, fmt.Errorf("%s must have the form postgres://user:password@host:port/database", envURL)
		}
		return admin, nil, nil
	}
	switch admin, stop, err := startContainer(ctx); {
	case err == nil:
		return admin, func(context.Context) error { return stop() }, nil
	case !errors.Is(err, containertest.ErrNone):
		return "", nil, err
	}
	s, err := pglocal.Start(ctx, pglocal.Options{Settings: settings})
	if err != nil {
		return "", nil, err
	}
	return s.URL("postgres"), s.Stop, nil
}

func (s *sharedServer) template(admin, name string, prepare func(url string) error) (string, error) {
	s.mu.Lock()
	p := s.templates[name]
	if p == nil {
		p = &preparedTemplate{database: "template_" + strings.ToLower(rand.Text())}
		s.templates[name] = p
	}
	s.mu.Unlock()
	p.once.Do(func() {
		if p.err = createDatabase(admin, p.database, "template0"); p.err != nil {
			return
		}
		if p.err = prepare(withDatabase(admin, p.database)); p.err != nil {
			return
		}
		// A database with sessions cannot be copied, and a session just closed is there for a moment.
		p.err = onServer(admin,
			"ALTER DATABASE "+p.database+" WITH ALLOW_CONNECTIONS false",
			"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+p.database+"'")
	})
	return p.database, p.err
}

func (s *sharedServer) stop() error {
	if s.admin == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	if s.end != nil {
		return s.end(ctx)
	}
	for _, p := range s.templates {
		if err := onServer(s.admin, "DROP DATABASE IF EXISTS "+p.database+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	return nil
}
