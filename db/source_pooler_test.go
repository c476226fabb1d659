package db_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exportd/db/dbtest"
)

// pooler starts PgBouncer in transaction mode, with two server connections, before the database, and returns the URL through it.
func pooler(t *testing.T, address string) string {
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
	poll(t, "pgbouncer answers", func() bool {
		conn, err := net.DialTimeout("tcp", u.Host, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return u.String()
}

func TestExportsGoThroughATransactionModePoolerWhileTheTableChanges(t *testing.T) {
	t.Parallel()
	_, direct := world(t, `CREATE TABLE data (id int, t text); INSERT INTO data SELECT i, 'row ' || i FROM generate_series(1, 2000) i;
		CREATE FUNCTION export_rows(key text, d date) RETURNS SETOF data LANGUAGE sql STABLE AS $$ SELECT * FROM data $$`)
	run(t, direct, hostile)
	s := source(t, pooler(t, direct), named("export_rows", 8))
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Describe(t.Context()); err != nil || len(d.Columns) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	var exports sync.WaitGroup
	defer exports.Wait()
	for range 8 {
		exports.Go(func() {
			for range 15 {
				rows, err := s.Export(t.Context(), "k", day, io.Discard)
				if err != nil || rows != 2000 {
					t.Errorf("%d rows, %v", rows, err)
				}
			}
		})
	}
	for i := range 5 {
		run(t, direct+"&default_transaction_read_only=off", fmt.Sprintf("ALTER TABLE data ADD COLUMN extra%d int", i))
	}
	exports.Wait()
	if got, _ := exported(t, s, "k"); !strings.HasPrefix(got, "id,t,extra0,extra1,extra2,extra3,extra4\n1,row 1,,,,,\n") {
		t.Errorf("got %.80q", got)
	}
}

func TestTheSettingsDoNotLeakThroughThePooler(t *testing.T) {
	t.Parallel()
	_, direct := world(t, exportRows)
	run(t, direct, hostile)
	through := pooler(t, direct)
	s := source(t, through)
	for range 4 {
		if got := sameAsCopy(t, s, direct, "NASTY"); !strings.Contains(got, "\\xdeadbeef") {
			t.Error("the settings are not in force")
		}
	}
	conn := session(t, through+"&default_query_exec_mode=exec")
	for setting, want := range map[string]string{"timezone": "America/New_York", "bytea_output": "escape", "transaction_read_only": "on", "extra_float_digits": "-5"} {
		if got := value[string](t, conn, "SHOW "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
}

func TestAnAbandonedQueryEndsBehindThePooler(t *testing.T) {
	t.Parallel()
	direct := dbtest.URL(t)
	run(t, direct, slowRows)
	watch := session(t, direct)
	s := source(t, pooler(t, direct), named("dull", 1))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Export(ctx, "k", day, io.Discard) // ended below
	}()
	active := func() int {
		return value[int](t, watch, `select count(*) from pg_stat_activity where datname = current_database() and query like '%"dull"%' and state = 'active' and pid <> pg_backend_pid()`)
	}
	poll(t, "the query runs", func() bool { return active() == 1 })
	cancel()
	<-done
	poll(t, "the query has ended", func() bool { return active() == 0 })
}
