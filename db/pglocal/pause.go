package pglocal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Pause stops the server in its tracks, every session with it: it neither answers nor refuses, until Resume. Linux only.
func (s *Server) Pause() error {
	pid := s.Pid()
	if pid == 0 {
		return errors.New("the server does not run")
	}
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	// The postmaster starts nothing any more once it has stopped, which is some time after the signal: look until there is nothing new.
	stopped := map[int]bool{}
	for {
		sessions, err := children(pid)
		if err != nil {
			return err
		}
		before := len(stopped)
		for _, c := range sessions {
			if !stopped[c] {
				stopped[c] = true
				if err := signal(c, syscall.SIGSTOP); err != nil {
					return err
				}
			}
		}
		if len(stopped) == before {
			return nil
		}
	}
}

// Resume ends a Pause. No error without one.
func (s *Server) Resume() error {
	pid := s.Pid()
	if pid == 0 {
		return nil
	}
	sessions, err := children(pid)
	if err != nil {
		return err
	}
	for _, p := range append(sessions, pid) {
		if err := signal(p, syscall.SIGCONT); err != nil {
			return err
		}
	}
	return nil
}

func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal a process of postgres: %w", err)
	}
	return nil
}

// children are the processes that pid has started; none where there is no /proc.
func children(pid int) (list []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …; the name may hold anything, parentheses too
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat))); err == nil {
			list = append(list, child)
		}
	}
	return list, err
}
