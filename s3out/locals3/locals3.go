// Package locals3 runs versitygw, a real S3 server over a folder, as a child process on this machine: for tests, and for programs that kill it on
// purpose. The child dies with the process that started it. Linux only.
package locals3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// The credentials of every server started here.
const (
	AccessKey = "exportd"
	SecretKey = "exportd-secret"
)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 10 * time.Second
)

// Server is one versitygw with its folder and its port, running or not. Its methods are for one goroutine.
type Server struct {
	program string
	dir     string
	addr    string
	process *os.Process
	ended   chan struct{} // closed when the process is gone
}

// Start runs program on a free port of the loopback, with its objects in dir/data and its output in dir/versitygw.log.
func Start(ctx context.Context, program, dir string) (*Server, error) {
	for _, sub := range []string{"data", "sidecar"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	s := &Server{program: program, dir: dir}
	var err error
	for range 3 { // somebody else may take the port in between
		if s.addr, err = freeAddr(); err != nil {
			return nil, err
		}
		if err = s.Restart(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Endpoint is the server's URL; it stays the same over restarts.
func (s *Server) Endpoint() string { return "http://" + s.addr }

// Restart runs the server again, on the same folder and port, and waits until it answers.
func (s *Server) Restart(ctx context.Context) error {
	out, err := os.OpenFile(filepath.Join(s.dir, "versitygw.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	args := []string{"--port", s.addr, "--keep-alive", "--quiet", "--health", "/healthz", "posix"}
	if !attributes(filepath.Join(s.dir, "data")) {
		args = append(args, "--sidecar", filepath.Join(s.dir, "sidecar"))
	}
	cmd := exec.Command(s.program, append(args, filepath.Join(s.dir, "data"))...)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + AccessKey, "ROOT_SECRET_KEY=" + SecretKey}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // no Ctrl-C of ours
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the death signal comes when the starting thread ends
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in the log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", s.program, err)
	}
	s.process, s.ended = cmd.Process, ended
	if err := s.ready(ctx); err != nil {
		s.Kill()
		return err
	}
	return nil
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint()+"/healthz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-s.ended:
			return fmt.Errorf("versitygw ended at once, see %s/versitygw.log", s.dir)
		case <-ctx.Done():
			return fmt.Errorf("versitygw does not answer at %s: %w", s.Endpoint(), ctx.Err())
		}
	}
}

// Stop ends the server as an operator would, and by force if that takes too long.
func (s *Server) Stop() error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopTimeout):
		return s.Kill()
	}
}

// Kill ends the server at once, as kill -9.
func (s *Server) Kill() error {
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.ended
	return nil
}

// Pause stops the server in its tracks: it neither answers nor refuses, until Resume.
func (s *Server) Pause() error {
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); !stopped(s.process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the server goes on although it was told to pause")
		}
	}
	return nil
}

// stopped says whether every thread of the process has stopped: the kernel returns from the signal before they have.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, t := range threads {
		stat, err := os.ReadFile(t)
		// pid (name) state …; the name may hold anything, parentheses too
		if end := bytes.LastIndexByte(stat, ')'); err != nil || end < 0 || !bytes.HasPrefix(stat[end:], []byte(") T")) {
			return false
		}
	}
	return true
}

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// freeAddr is outside the range from which systems take the ports of outgoing connections: those could occupy it while the server is down, and a
// client that dials a dead server could even reach itself.
func freeAddr() (string, error) {
	for range 100 {
		port := 20_000 + rand.N(12_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return l.Addr().String(), l.Close()
	}
	return "", errors.New("no port is free")
}

// attributes says whether the file system keeps extended attributes, where versitygw puts metadata.
func attributes(dir string) bool {
	return syscall.Setxattr(dir, "user.exportd", []byte("1"), 0) == nil
}
