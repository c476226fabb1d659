package dbtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pooler starts PgBouncer in transaction mode, with two server connections, before the database, and returns the URL through it.
func Pooler(t testing.TB, address string) string {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; osexec.Command(program, "--version").Run() != nil {
			if strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "pgbouncer") {
				t.Fatal("pgbouncer is missing")
			}
			t.Skip("needs pgbouncer: apt-get install pgbouncer")
		}
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "exportd-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	password, _ := u.User.Password()
	config := fmt.Sprintf("[databases]\n* = host=%s port=%s user=%s password='%s'\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\nauth_type=any\n"+
		"pool_mode=transaction\ndefault_pool_size=2\nmax_client_conn=50\n", u.Hostname(), u.Port(), u.User.Username(), password, port)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(program, file)
	if os.Geteuid() == 0 { // which it refuses
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Skip(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // its error is the kill
	})
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for deadline := time.Now().Add(stepLimit); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", u.Host, time.Second)
		if err == nil {
			conn.Close()
			return u.String()
		}
		if time.Now().After(deadline) {
			t.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}
