package pglocal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	tempPrefix = "exportd-pg-"
	ownerLock  = "owner.lock"
)

// makeDir makes the server's folder and takes its lock.
func (s *Server) makeDir(dir string) error {
	if s.temp = dir == ""; s.temp {
		made, err := s.makeTemp()
		if err != nil {
			return err
		}
		dir = made
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := s.account.checkReach(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := s.account.own(dir); err != nil {
		return err
	}
	owner, ok := lockOwner(filepath.Join(dir, ownerLock))
	if !ok {
		return fmt.Errorf("%s is in use by another process", dir)
	}
	s.dir, s.owner = dir, owner
	return nil
}

// makeTemp makes a folder below the first parent that the server's account can enter: TMPDIR may be private to root.
func (s *Server) makeTemp() (string, error) {
	var firstErr error
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		err := s.account.checkReach(filepath.Join(parent, tempPrefix))
		if err == nil {
			var dir string
			if dir, err = os.MkdirTemp(parent, tempPrefix); err == nil {
				return dir, nil
			}
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return "", firstErr
}

// release gives the folder free, and removes it when it is temporary.
func (s *Server) release() {
	if s.owner == nil {
		return
	}
	if s.temp {
		if err := os.RemoveAll(s.dir); err != nil {
			s.log.Warn("remove the folder of a stopped postgres", "dir", s.dir, "error", err)
		}
	}
	s.owner.Close()
	s.owner = nil
}

// removeAbandoned removes the temporary folders of processes that ended without Stop. A young folder may belong to a Start that has not locked
// it yet; one whose postmaster lives is still going down.
func removeAbandoned() {
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		dirs, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
		for _, dir := range dirs {
			lock := filepath.Join(dir, ownerLock)
			info, err := os.Stat(lock)
			if err != nil || time.Since(info.ModTime()) < time.Minute {
				continue
			}
			f, ok := lockOwner(lock)
			if !ok {
				continue
			}
			if _, alive := postmasterOf(filepath.Join(dir, "data")); !alive {
				_ = os.RemoveAll(dir) // a folder of another user stays
			}
			f.Close()
		}
	}
}

// removeStalePID removes a postmaster.pid whose process is gone or is something else by now: in a container the numbers repeat, and PostgreSQL would refuse to
// start because of any live process of that number.
func (s *Server) removeStalePID() {
	if known, alive := postmasterOf(s.data()); known && !alive {
		_ = os.Remove(filepath.Join(s.data(), "postmaster.pid")) // PostgreSQL says it if it matters
	}
}

// postmasterOf says whether the cluster's postmaster.pid names a process, and whether that is alive and a server on this cluster.
func postmasterOf(data string) (known, alive bool) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return false, false
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return false, false
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		return false, true // no way to know
	}
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return true, err == nil && bytes.Contains(cmdline, []byte(data))
}
