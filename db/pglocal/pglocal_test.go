package pglocal

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// childMode makes this test binary the parent of a server, to be killed by a test.
const childMode = "PGLOCAL_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		s, err := Start(context.Background(), Options{Settings: quick})
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(strconv.Itoa(s.Pid()) + " " + s.dir + "\n")
		select {}
	}
	os.Exit(m.Run())
}

var quick = map[string]string{"fsync": "off"}

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if errors.Is(err, ErrNotInstalled) {
		if strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "postgres") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func ask(t *testing.T, s *Server, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func remember(t *testing.T, s *Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 'still here' AS word"); err != nil {
		t.Fatal(err)
	}
}

// tempDir is a folder that the server's account can enter.
func tempDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "pglocal-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15 s: %s", what)
		}
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestServerAnswersAsConfiguredAndStopLeavesNothing(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Settings: map[string]string{"fsync": "off", "max_connections": "37"}})
	for sql, want := range map[string]string{
		"SHOW max_connections":           "37",
		"SHOW server_encoding":           "UTF8",
		"SELECT 'é' COLLATE \"default\"": "é",
		"SHOW listen_addresses":          "127.0.0.1",
		"SELECT datcollate FROM pg_database WHERE datname = 'postgres'": "C.UTF-8",
	} {
		if got := ask(t, s, sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	pid, dir := s.Pid(), s.dir
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) || s.Pid() != 0 {
		t.Errorf("postmaster %d is still there", pid)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestAStrangerWithoutThePasswordIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Settings: quick})
	if conn, err := pgx.Connect(t.Context(), strings.Replace(s.URL("postgres"), s.password, "guess", 1)); err == nil {
		conn.Close(t.Context())
		t.Fatal("a wrong password was let in")
	}
}

func TestDataSurvivesKillAndRestartOnTheSameAddress(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Settings: quick})
	before := s.URL("postgres")
	remember(t, s)
	pid := s.Pid()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Fatal("the postmaster survived the kill")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.URL("postgres") != before {
		t.Errorf("the URL changed from %s to %s", before, s.URL("postgres"))
	}
	if got := ask(t, s, "SELECT word FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatalf("restart of a running server: %v", err)
	}
	if got := ask(t, s, "SELECT word FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
}

func TestAGivenFolderIsKeptAndUsedAgainDespiteAStalePidFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "pg")
	s := start(t, Options{Dir: dir, Settings: quick})
	remember(t, s)
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil {
		t.Fatal("two servers on one folder")
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A process of that number lives, but is no server.
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(strconv.Itoa(os.Getpid())+"\n"+dir+"/data\n1\n1\n\n127.0.0.1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	again := start(t, Options{Dir: dir, Settings: quick})
	if got := ask(t, again, "SELECT word FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
}

func TestATakenPortIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := programs(); err != nil {
		t.Skip(err)
	}
	s, err := Start(t.Context(), Options{Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil {
		s.Stop(context.Background())
		t.Fatal("started on a taken port")
	}
	if !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("the error does not show what the server said: %v", err)
	}
}

func TestTheServerDiesWithItsParentAndTheNextStartRemovesItsFolder(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("Linux only")
	}
	if _, err := programs(); err != nil {
		t.Skip(err)
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), childMode+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = parent.Process.Kill()
	_ = parent.Wait() // its error is the kill
	if err != nil {
		t.Fatal(err)
	}
	pidText, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, _ := strconv.Atoi(pidText)
	if pid == 0 {
		t.Fatalf("no pid in %q", line)
	}
	eventually(t, "the postmaster is gone", func() bool { return gone(pid) })

	old := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(filepath.Join(dir, ownerLock), old, old); err != nil {
		t.Fatal(err)
	}
	removeAbandoned()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestMissingProgramsAreASentinel(t *testing.T) {
	before := installed
	t.Cleanup(func() { installed = before })
	installed = nil
	t.Setenv("PATH", "")
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

func TestTheNewestInstalledVersionIsTaken(t *testing.T) {
	before := installed
	t.Cleanup(func() { installed = before })
	root := t.TempDir()
	for _, version := range []string{"9", "17", "18"} {
		bin := filepath.Join(root, version, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{"initdb", "postgres"} {
			if version == "18" && program == "postgres" {
				continue // a client package only
			}
			if err := os.WriteFile(filepath.Join(bin, program), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", "")
	installed = []string{root + "/*/bin"}
	got, err := programs()
	if err != nil || filepath.Base(filepath.Dir(got)) != "17" {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestAPausedServerAnswersNothingUntilItIsResumedAndCanBeKilled(t *testing.T) {
	s := start(t, Options{})
	remember(t, s)
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(context.Background()) }()
	brief, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if other, err := pgx.Connect(brief, s.URL("postgres")); err == nil {
		other.Close(t.Context())
		t.Error("a paused server takes a session")
	}
	select {
	case err := <-answered:
		t.Errorf("a paused session answers %v", err)
	default:
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil { // which needs the sessions to be gone
		t.Fatal(err)
	}
	ask(t, s, "select 'still here'")
}
