package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportd/db/pglocal"
	"exportd/demo"
)

// needPostgres skips where the demo would have to install something.
func needPostgres(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the whole demo")
	}
	server, err := pglocal.Start(t.Context(), pglocal.Options{})
	if errors.Is(err, pglocal.ErrNotInstalled) && !strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "postgres") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestDemoEndsWellAndKeepsTheFilesItIsAskedTo(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	dir := t.TempDir()
	environ := append(os.Environ(), beExportd+"=1", "EXPORTD_LEASE=nonsense that must not reach it")
	code, out, errs := (&world{t: t}).command(environ, "demo", "--dir", dir)
	if code != exitOK || !strings.Contains(out, "kill -9") || !strings.Contains(out, "COMPLETED") {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	files, err := filepath.Glob(filepath.Join(dir, "files", "demo", "exports", "2001", "01", "01", "*.csv"))
	if err != nil || len(files) != 20 {
		t.Errorf("got %d files, %v", len(files), err)
	}
}

func TestDemoThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	needPostgres(t)
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	err := demo.Run(t.Context(), demo.Options{Executable: "/bin/false", Environ: os.Environ(), Out: &out})
	if err == nil || !strings.Contains(err.Error(), "api ended while starting") {
		t.Errorf("got %v", err)
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "exportd-demo-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

var pids = regexp.MustCompile(`pid (\d+)(?:, (\d+))?\)`)

func TestProcessesOfADemoThatIsKilledEndWithIt(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, executable, "demo", "--serve")
	cmd.Env = append(os.Environ(), beExportd+"=1", "TMPDIR="+t.TempDir()) // what it leaves is removed with the test
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var children []int
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && len(children) < 3 {
		if !strings.HasPrefix(lines.Text(), "running:") {
			continue
		}
		for _, match := range pids.FindAllStringSubmatch(lines.Text(), -1) {
			for _, digits := range match[1:] {
				if pid, err := strconv.Atoi(digits); err == nil {
					children = append(children, pid)
				}
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if len(children) != 3 {
		t.Fatalf("got the processes %v", children)
	}
	eventually(t, 20*time.Second, func() (bool, string) {
		for _, pid := range children {
			if syscall.Kill(pid, 0) == nil {
				return false, "process " + strconv.Itoa(pid) + " lives"
			}
		}
		return true, ""
	})
}
