package locals3

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Version of versitygw that Find installs.
const Version = "v1.8.0"

const module = "github.com/versity/versitygw/cmd/versitygw@" + Version

// Hint is what a person can do when Find finds nothing.
const Hint = "GOBIN=$PWD/.tools go install " + module

// Find looks for the program versitygw: EXPORTD_TEST_VERSITYGW, the PATH, .tools in this module's root, where it is built if the go command is
// there.
func Find(ctx context.Context) (program string, err error) {
	if p := os.Getenv("EXPORTD_TEST_VERSITYGW"); p != "" {
		return exec.LookPath(p)
	}
	if p, err := exec.LookPath("versitygw"); err == nil {
		return p, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	tools := filepath.Join(root, ".tools")
	program = filepath.Join(tools, "versitygw")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(tools, "versitygw.lock")) // test binaries run side by side
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	return program, install(ctx, tools)
}

func install(ctx context.Context, tools string) error {
	fresh, err := os.MkdirTemp(tools, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	cmd := exec.CommandContext(ctx, "go", "install", module)
	cmd.Dir = fresh // outside of the module's requirements
	cmd.Env = append(os.Environ(), "GOBIN="+fresh, "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s: %w\n%s", module, err, out)
	}
	return os.Rename(filepath.Join(fresh, "versitygw"), filepath.Join(tools, "versitygw"))
}

func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}
