package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program under measurement. It ends when its standard input does.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // of its standard output; closed at its end
	log   string
}

// start runs the program with its log in a file, as under a service manager.
func (b *bench) start(name, program string, env []string, args ...string) (*process, error) {
	b.runs++
	p := &process{name: name, cmd: exec.Command(program, args...), lines: make(chan string, 16), log: filepath.Join(b.dir, fmt.Sprintf("%s-%d.log", name, b.runs))}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the bench, which ends it
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p, nil
}

// line waits for the next line of its output.
func (p *process) line(ctx context.Context) (string, error) {
	select {
	case l, ok := <-p.lines:
		if !ok {
			log, _ := os.ReadFile(p.log)
			return "", fmt.Errorf("%s ended:\n%s", p.name, log[max(0, len(log)-3000):])
		}
		return l, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s says nothing: %w", p.name, ctx.Err())
	}
}

// stop ends it, by force when it takes too long.
func (p *process) stop() {
	p.stdin.Close()
	kill := time.AfterFunc(15*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	for range p.lines { // nothing more is wanted of it
	}
	_ = p.cmd.Wait() // its work was counted before
	os.Remove(p.log)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// usage is what processes have used, by name: CPU time and peak memory.
type usage struct {
	CPU  map[string]time.Duration
	Peak map[string]int64 // bytes; not of PostgreSQL, whose processes share theirs
}

// services are the shared processes and p the variant's own.
func (b *bench) watched(own []*process) map[string]int {
	pids := map[string]int{"postgres": b.postgres.Pid(), "s3": 0, "activemq": 0}
	for _, p := range own {
		pids[p.name] = p.pid()
	}
	for name, program := range map[string]string{"s3": "versitygw", "activemq": "java"} {
		pids[name] = childOf(os.Getpid(), program)
	}
	return pids
}

// childOf finds the child that runs the program.
func childOf(parent int, program string) int {
	for pid, stat := range processes() {
		if stat.parent == parent && stat.program == program {
			return pid
		}
	}
	return 0
}

// used reads the counters of the watched processes; PostgreSQL's include its children, living and ended.
func used(pids map[string]int) (usage, error) {
	u := usage{CPU: map[string]time.Duration{}, Peak: map[string]int64{}}
	all := processes()
	for name, pid := range pids {
		stat, ok := all[pid]
		if !ok {
			return u, fmt.Errorf("%s is not running", name)
		}
		u.CPU[name] = stat.cpu
		if name == "postgres" {
			u.CPU[name] += stat.ended
			for _, child := range all {
				if child.parent == pid {
					u.CPU[name] += child.cpu
				}
			}
			continue
		}
		peak, err := peakMemory(pid)
		if err != nil {
			return u, err
		}
		u.Peak[name] = peak
	}
	return u, nil
}

// since is what was used after an earlier look; peaks are of the whole time, so forgetPeaks first.
func (u usage) since(before usage) usage {
	for name := range u.CPU {
		u.CPU[name] -= before.CPU[name]
	}
	return u
}

// forgetPeaks starts the peak memory of the processes anew: proc(5), clear_refs.
func forgetPeaks(pids map[string]int) error {
	var errs []error
	for _, pid := range pids {
		errs = append(errs, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0))
	}
	return errors.Join(errs...)
}

type processStat struct {
	program    string
	parent     int
	cpu, ended time.Duration // its own; that of its children that have ended
}

const tick = time.Second / 100 // USER_HZ, the same on all Linux systems of today

// processes reads /proc: proc(5), /proc/pid/stat.
func processes() map[int]processStat {
	all := map[int]processStat{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended since
		}
		line := string(b)
		open, shut := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
		pid, err := strconv.Atoi(strings.TrimSpace(line[:open]))
		fields := strings.Fields(line[shut+1:])
		if err != nil || len(fields) < 15 {
			continue
		}
		number := func(i int) time.Duration {
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			return time.Duration(n) * tick
		}
		parent, _ := strconv.Atoi(fields[1])
		all[pid] = processStat{program: line[open+1 : shut], parent: parent, cpu: number(11) + number(12), ended: number(13) + number(14)}
	}
	return all
}

func peakMemory(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel does not tell VmHWM")
}
