package stack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running exportd. It ends with the program that started it, because its standard input does.
type Process struct {
	Name string
	// URL is where it serves, once Start has returned.
	URL   string
	cmd   *exec.Cmd
	stdin io.Closer
	addr  chan string
	log   logBuffer
	done  chan struct{} // closed when it is gone
}

const startLimit = 30 * time.Second

// announced is what a serving process prints before its address.
const announced = "listening on "

// start runs the program and waits until it serves.
func start(ctx context.Context, name, program string, env []string, args ...string) (*Process, error) {
	p := &Process{Name: name, cmd: exec.Command(program, append(args, "--stop-with-stdin")...), addr: make(chan string, 1), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = env, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the parent
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if url, ok := strings.CutPrefix(lines.Text(), announced); ok {
				p.addr <- url
			}
		}
		_ = p.cmd.Wait() // its state says how it ended
	}()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	select {
	case p.URL = <-p.addr:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended at its start with %s:\n%s", name, p.cmd.ProcessState, p.Log())
	case <-ctx.Done():
		_ = p.Kill()
		return nil, fmt.Errorf("%s does not serve: %w\n%s", name, ctx.Err(), p.Log())
	}
}

// Ready waits until /readyz is content: every dependency answers.
func (p *Process) Ready(ctx context.Context) error {
	last := "no answer"
	err := Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("%s has ended: %s", p.Name, p.cmd.ProcessState)
		default:
		}
		resp, err := http.Get(p.URL + "/readyz")
		if err != nil {
			return false, nil // not yet, or not any more: the process's end says so
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		last = string(body)
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ready (%s): %w", p.Name, last, err)
	}
	return nil
}

// Pid of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill is kill -9. Killing what has ended is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Wait waits for the end and returns the exit code, -1 after a signal.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s does not end: %w", p.Name, ctx.Err())
	}
}

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.done }

// Log is what the process wrote to standard error.
func (p *Process) Log() string { return p.log.String() }

// PeakMemory is the most memory that the process ever had in use, in bytes. Linux only.
func (p *Process) PeakMemory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
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

// Poll asks again and again until the answer is true, an error, or ctx ends.
func Poll(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if ok, err := ask(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// logBuffer keeps all that is written, for whoever asks at any time.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
