// Package pglocal runs throw-away PostgreSQL servers from the programs installed on this machine, for the demo and for tests.
//
// A server listens on 127.0.0.1 only, asks for a random password, and does not outlive its parent: on Linux the kernel sends the postmaster
// an immediate shutdown when this process dies, however it dies. Folders that a killed process left are removed by the next Start.
package pglocal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options of Start. The zero value is a server in a temporary folder on a free port.
type Options struct {
	// Dir keeps the cluster. It is made when missing, used again when it holds one, and stays after Stop. Empty means a temporary folder that
	// Stop removes. As root, the user postgres (or nobody) becomes its owner.
	Dir string
	// Port on 127.0.0.1; 0 means a free one.
	Port int
	// Settings are server parameters, such as "fsync": "off".
	Settings map[string]string
	Log      *slog.Logger
}

// Server is one running or stopped server. Its methods may be called from any goroutine, one at a time.
type Server struct {
	bin      string
	account  *osAccount
	dir      string
	temp     bool
	owner    *os.File
	port     int
	settings map[string]string
	password string
	log      *slog.Logger

	mu    sync.Mutex
	child *child // nil while stopped
}

const (
	superuser = "postgres"
	// startLimit bounds one start. After a kill the old backends may hold the shared memory for a moment, and a large log is replayed.
	startLimit = 60 * time.Second
	// retryLimit is how long a start on an existing cluster is tried again when the postmaster refuses.
	retryLimit = 10 * time.Second
)

// Start makes a cluster, unless there is one, and returns when the server takes connections. ctx bounds the start, not the server's life.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: o.Settings, port: o.Port, log: o.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.account, err = account(); err != nil {
		return nil, err
	}
	removeAbandoned()
	if err := s.makeDir(o.Dir); err != nil {
		return nil, err
	}
	if err := s.startFirst(ctx, o.Port); err != nil {
		s.release()
		return nil, err
	}
	s.log.Info("postgres started", "port", s.port, "dir", s.dir, "pid", s.Pid())
	return s, nil
}

func (s *Server) startFirst(ctx context.Context, port int) error {
	fresh, err := s.initCluster(ctx)
	if err != nil {
		return err
	}
	s.removeStalePID()
	deadline := time.Now().Add(retryLimit)
	for try := 1; ; try++ {
		if port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		err := s.launch(ctx)
		// Somebody may have taken the free port; on an existing cluster the last server may still be going down.
		again := fresh && port == 0 && try < 3 || !fresh && time.Now().Before(deadline)
		if err == nil || !again || !waitBriefly(ctx) {
			return err
		}
	}
}

// URL of a database for the superuser.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Pid of the postmaster, 0 while stopped.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return 0
	}
	return s.child.pid
}

// Stop ends the server fast: sessions are cut, the cluster is left clean. When ctx ends first the server is killed. A temporary folder is
// removed. May be called again.
func (s *Server) Stop(ctx context.Context) error {
	err := s.end(ctx, syscall.SIGINT)
	s.release()
	return err
}

// Kill is kill -9 of the postmaster; its backends notice and end by themselves. The folder stays, for Restart.
func (s *Server) Kill() error { return s.end(context.Background(), syscall.SIGKILL) }

// Restart starts the server again on the same folder and port, after stopping it fast when it runs.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.end(ctx, syscall.SIGINT); err != nil {
		return err
	}
	deadline := time.Now().Add(retryLimit)
	for {
		err := s.launch(ctx)
		if err == nil || time.Now().After(deadline) || !waitBriefly(ctx) {
			return err
		}
	}
}

// end signals the postmaster and waits until it is gone. What a Pause has stopped could not notice.
func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	if err := s.Resume(); err != nil {
		return err
	}
	s.mu.Lock()
	c := s.child
	s.child = nil
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	if err := c.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal postgres: %w", err)
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		_ = c.process.Kill() // it may be gone by now
		<-c.done
		return fmt.Errorf("postgres did not stop in time and was killed: %w", context.Cause(ctx))
	}
}

// initCluster runs initdb unless the folder holds a cluster.
func (s *Server) initCluster(ctx context.Context) (fresh bool, err error) {
	secret := filepath.Join(s.dir, "password")
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); err == nil {
		b, err := os.ReadFile(secret)
		if err != nil {
			return false, fmt.Errorf("%s holds a cluster that was not made here: %w", s.dir, err)
		}
		s.password = strings.TrimSpace(string(b))
		return false, nil
	}
	// initdb is not atomic: what a killed one left is made again.
	if err := os.RemoveAll(s.data()); err != nil {
		return false, err
	}
	s.password = rand.Text()
	if err := os.WriteFile(secret, []byte(s.password+"\n"), 0o600); err != nil {
		return false, err
	}
	if err := s.account.own(secret); err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata="+s.data(), "--username="+superuser, "--pwfile="+secret,
		"--auth=scram-sha-256", "--locale=C.UTF-8", "--encoding=UTF8", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.dir, childEnv(), childAttr(s.account)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	c, err := startChild(cmd)
	if err != nil {
		return false, fmt.Errorf("start initdb: %w", err)
	}
	<-c.done
	if c.err != nil {
		return false, fmt.Errorf("initdb: %w\n%s", c.err, tail(out.Bytes()))
	}
	return true, nil
}

// launch starts the postmaster once and waits for its word that it is ready, as pg_ctl does: the eighth line of postmaster.pid.
func (s *Server) launch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	from, _ := log.Seek(0, 2)

	cmd := exec.Command(filepath.Join(s.bin, "postgres"), s.arguments()...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.dir, childEnv(), childAttr(s.account)
	cmd.Stdout, cmd.Stderr = log, log
	c, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	for !s.ready(c.pid) {
		select {
		case <-c.done:
			said := make([]byte, 64<<10)
			n, _ := log.ReadAt(said, from)
			return fmt.Errorf("postgres ended while starting (%v):\n%s", c.err, tail(said[:n]))
		case <-ctx.Done():
			_ = c.process.Kill() // it may be gone by now
			<-c.done
			return fmt.Errorf("start postgres: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
	return nil
}

func (s *Server) arguments() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": s.dir,
	}
	if len(s.dir) > 80 { // a socket's path has about 100 bytes at most
		settings["unix_socket_directories"] = ""
	}
	for name, value := range s.settings {
		settings[name] = value
	}
	args := []string{"-D", s.data()}
	for name, value := range settings {
		args = append(args, "-c"+name+"="+value)
	}
	slices.Sort(args[2:])
	return args
}

func (s *Server) ready(pid int) bool {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(b), "\n")
	return len(lines) > 7 && strings.TrimSpace(lines[0]) == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// freePort is outside the range from which systems take the ports of outgoing connections: those could occupy it while the server is down, and a
// client that dials a dead server could even reach itself.
func freePort() (int, error) {
	for range 100 {
		port := 20_000 + mathrand.N(12_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no port is free")
}

// waitBriefly is false when ctx is over.
func waitBriefly(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// tail is the end of a program's output, short enough for an error.
func tail(b []byte) string {
	if len(b) > 2000 {
		b = b[len(b)-2000:]
	}
	return string(bytes.TrimSpace(b))
}
