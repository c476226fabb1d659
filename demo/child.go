package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// child is a process of the same program: exportd api or exportd consumer. It ends when its standard input does, so it cannot outlive the
// demo, however that ends.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	addr  chan string // the address it serves, once
	log   lastLines
	done  chan struct{} // closed when the process is gone
	err   error         // of its end; read it after done
}

// listening is what api and consumer print on standard output, followed by their address.
const listening = "listening on "

func startChild(name, executable string, env []string, args ...string) (*child, error) {
	c := &child{name: name, cmd: exec.Command(executable, args...), addr: make(chan string, 1), done: make(chan struct{})}
	c.cmd.Env = env
	c.cmd.Stderr = &c.log
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if addr, ok := strings.CutPrefix(lines.Text(), listening); ok {
				select {
				case c.addr <- addr:
				default:
				}
			}
		}
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// ready waits until the child serves, and returns its address.
func (c *child) ready(ctx context.Context) (string, error) {
	select {
	case addr := <-c.addr:
		return addr, nil
	case <-c.done:
		return "", fmt.Errorf("%s ended while starting: %w", c.name, c.ending())
	case <-ctx.Done():
		return "", fmt.Errorf("%s does not start: %w", c.name, context.Cause(ctx))
	}
}

func (c *child) ending() error {
	if c.err != nil {
		return c.err
	}
	return errors.New("it ended by itself")
}

// kill is kill -9.
func (c *child) kill() error {
	err := c.cmd.Process.Kill()
	<-c.done
	return err
}

// stop ends the child gracefully, by force after limit.
func (c *child) stop(limit time.Duration) {
	c.stdin.Close()
	select {
	case <-c.done:
	case <-time.After(limit):
		_ = c.kill() // it may have ended meanwhile
	}
}

// lastLines keeps the end of a child's log, to show when something fails.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

const keptLog = 4 << 10

func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if len(l.text) > 2*keptLog {
		l.text = append(l.text[:0], l.text[len(l.text)-keptLog:]...)
	}
	return len(b), nil
}

func (l *lastLines) last(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(l.text)), "\n")
	return lines[max(0, len(lines)-n):]
}
