package db_test

import (
	"errors"
	"io"
	"net/url"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"exportd/db/dbtest"
	"exportd/db/pglocal"
	"exportd/export"
)

// replicaOf starts a physical replica that gives a query no time once it is in the way of what the primary does.
func replicaOf(t *testing.T, primary *pglocal.Server) *pglocal.Server {
	t.Helper()
	program, err := osexec.LookPath("pg_basebackup")
	if err != nil {
		t.Skip("needs pg_basebackup: apt-get install postgresql")
	}
	dir, err := os.MkdirTemp("/tmp", "exportd-replica-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	u, err := url.Parse(primary.URL("postgres"))
	must(t, err)
	password, _ := u.User.Password()
	must(t, os.WriteFile(filepath.Join(dir, "password"), []byte(password), 0o600))
	data := filepath.Join(dir, "data")
	if out, err := osexec.Command(program, "-D", data, "-R", "-X", "stream", "-c", "fast", "-d", u.String()).CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	if os.Geteuid() == 0 {
		account, err := user.Lookup("postgres")
		if err != nil {
			t.Skip(err)
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		must(t, filepath.WalkDir(data, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, uid, gid))
		}))
	}
	s, err := pglocal.Start(t.Context(), pglocal.Options{Dir: dir, Settings: map[string]string{
		"max_connections": "400", "max_standby_streaming_delay": "0", "hot_standby_feedback": "off",
	}})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestAReplicaIsASourceAndItsConflictsAreTransient(t *testing.T) {
	t.Parallel()
	primary := dbtest.Server(t)
	direct := primary.URL("postgres")
	run(t, direct, `create table data as select i from generate_series(1, 1000) i;
		create function export_rows(key text, d date) returns table (i int) language sql stable as $$ select i from data order by i $$;
		create function endless(key text, d date) returns table (i int, t text) language sql stable as $$ select s.i, repeat('x', 100) from (select data.i, generate_series(1, 2000000000) from data) s $$`)
	replica := replicaOf(t, primary)
	address := replica.URL("postgres")
	watch := session(t, address)
	if !value[bool](t, watch, `select pg_is_in_recovery()`) {
		t.Fatal("it is no replica")
	}
	s := source(t, address, named("export_rows", 1))
	must(t, s.Probe(t.Context()))
	if d, err := s.Describe(t.Context()); err != nil || len(d.Columns) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if got, rows := exported(t, s, "k"); rows != 1000 || !strings.HasPrefix(got, "i\n1\n2\n") {
		t.Errorf("%d rows: %.40q", rows, got)
	}

	// What it reads is removed on the primary while it reads.
	var once sync.Once
	_, err := source(t, address, named("endless", 1)).Export(t.Context(), "k", day, writer(func([]byte) error {
		once.Do(func() {
			run(t, direct, `delete from data where i > 10`)
			run(t, direct, `vacuum data`)
		})
		return nil
	}))
	var f *export.Failure
	if !errors.As(err, &f) || f.Class != export.Transient || f.Code != "SQL_40001" || !strings.Contains(f.Error(), "conflict with recovery") {
		t.Errorf("got %v", err)
	}
	poll(t, "the replica has caught up", func() bool { return value[int](t, watch, `select count(*) from data`) == 10 })
	if rows, err := s.Export(t.Context(), "k", day, io.Discard); err != nil || rows != 10 {
		t.Errorf("after it: %d rows, %v", rows, err)
	}
}
