// Package brokertest finds a real ActiveMQ for tests and holds the conformance suite that it and the embedded broker must pass.
package brokertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/localmq"
	"exportd/containertest"
)

// Server is a broker to test against, as a user who may create queues.
type Server struct {
	Name           string
	URLs           []string
	User, Password string
	CAFile         string
	TLSURL         string // also offered with TLS, or empty
	// Private is set when the broker belongs to this test alone: it may be stopped and started.
	Private Controls
}

// Controls stop and start a private broker, on the same address and with its messages.
type Controls interface {
	Kill()
	Restart(context.Context) error
}

// Config to reach the server.
func (s Server) Config(t testing.TB) broker.Config {
	return broker.Config{URLs: s.URLs, User: s.User, Password: s.Password, CAFile: s.CAFile, Log: Log(t)}
}

// Queue is a new name for every call.
func Queue(testing.TB) string { return "test." + rand.Text() }

// Log writes to the test's log.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ActiveMQ finds a real ActiveMQ: the address in EXPORTD_TEST_BROKER_URL (with _USER and _PASSWORD), a container when an engine answers and has
// the image, Debian's package. Otherwise the test is skipped, or fails when EXPORTD_TEST_REQUIRE lists activemq. One serves the whole test binary.
func ActiveMQ(t testing.TB) Server {
	t.Helper()
	if url := os.Getenv("EXPORTD_TEST_BROKER_URL"); url != "" {
		return Server{Name: "activemq", URLs: []string{url}, User: os.Getenv("EXPORTD_TEST_BROKER_USER"), Password: os.Getenv("EXPORTD_TEST_BROKER_PASSWORD")}
	}
	url, err := shared()
	if err != nil {
		missing(t, err)
	}
	return Server{Name: "activemq", URLs: []string{url}, User: "admin", Password: "admin"}
}

// server is the one ActiveMQ of this test binary, started at first use.
var server struct {
	sync.Mutex
	url string
	err error
	end func() error // of a container; localmq ends a program with this process
}

func shared() (url string, err error) {
	server.Lock()
	defer server.Unlock()
	if server.url == "" && server.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		server.url, server.end, server.err = find(ctx)
	}
	return server.url, server.err
}

func find(ctx context.Context) (url string, end func() error, err error) {
	if url, end, err = container(ctx); !errors.Is(err, containertest.ErrNone) {
		return url, end, err
	}
	s, err := localmq.Start(ctx, localmq.Config{})
	if err != nil {
		return "", nil, err
	}
	return s.URL(), nil, nil
}

// Stop ends a container that ActiveMQ started. TestMain calls it after the tests, before it looks for leaks; what nobody stops ends with the process.
func Stop() {
	server.Lock()
	defer server.Unlock()
	if server.end != nil {
		_ = server.end() // it ends with the process anyway
	}
	server.url, server.end = "", nil
}

// PrivateActiveMQ starts an ActiveMQ of this test's own, with a TLS connector, and stops it when the test ends. It needs Debian's package.
func PrivateActiveMQ(t testing.TB, cfg localmq.Config) (Server, *localmq.Server) {
	t.Helper()
	if err := localmq.Missing(); err != nil {
		missing(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := localmq.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	srv := Server{Name: "activemq", URLs: []string{s.URL()}, User: "admin", Password: "admin", Private: s}
	if cfg.TLS {
		srv.TLSURL, srv.CAFile = s.TLSURL(), s.CAFile()
	}
	return srv, s
}

func missing(t testing.TB, err error) {
	t.Helper()
	text := fmt.Sprintf("no ActiveMQ for this test: %v; or set EXPORTD_TEST_BROKER_URL, or start a container engine and pull %s", err, Image)
	if containertest.Required() || strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "activemq") {
		t.Fatal(text)
	}
	t.Skip(text)
}
