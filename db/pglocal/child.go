package pglocal

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
)

type child struct {
	process *os.Process
	pid     int
	done    chan struct{} // closed when the process is gone
	err     error         // of Wait; read it after done
}

// startChild starts cmd and waits for its end in the background. The kernel's parent-death signal goes out when the starting *thread* ends, and Go
// ends threads as it likes; so the child is started from a thread that does nothing else and lives as long as the child.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.process, c.pid = cmd.Process, cmd.Process.Pid
		}
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	return c, <-started
}

// childEnv is this process's environment without what would steer the server programs elsewhere.
func childEnv() []string {
	env := []string{"LC_ALL=C.UTF-8"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") && !strings.HasPrefix(kv, "LANG") {
			env = append(env, kv)
		}
	}
	return env
}
