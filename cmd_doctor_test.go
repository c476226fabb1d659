package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// verdicts are the first words of the doctor's lines by what they are about; FAIL wins over ok.
func verdicts(out string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) >= 2 && (words[0] == "ok" || words[0] == "FAIL") {
			found[words[1]] = words[0]
		}
	}
	return found
}

func TestDoctorFindsNothingWrongWithAWorkingSystem(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if code, _, errs := w.command(w.environ, "migrate"); code != exitOK {
		t.Fatal(errs)
	}
	for _, role := range []string{"consumer", "api"} {
		code, out, errs := w.command(w.environ, "doctor", "--role="+role)
		if code != exitOK || strings.Contains(out, "FAIL") || verdicts(out)["bucket"] != "ok" {
			t.Errorf("%s: exit %d\n%s%s", role, code, out, errs)
		}
	}
}

func TestDoctorGoesOnAfterEachFailureAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for _, c := range []struct {
		name, setting, failing, want string
	}{
		{"migrations", "", "migrations", "run exportd migrate"},
		{"function", "EXPORTD_EXPORT_FUNCTION=no_such_function", "source", "no export function"},
		{"password", "EXPORTD_BROKER_PASSWORD=wrong", "broker", ""},
		{"bucket", "EXPORTD_S3_BUCKET=no-such-bucket-anywhere", "bucket", ""},
		{"lease", "EXPORTD_LEASE=1s", "configuration", "at least 3s"},
		{"url", "EXPORTD_DATABASE_URL=postgres://nobody:hunter2@127.0.0.1:1/none", "database", "check address"},
	} {
		environ := w.environ
		if c.setting != "" {
			environ = w.with(c.setting)
		}
		code, out, _ := w.command(environ, "doctor")
		found := verdicts(out)
		if code != exitFailed || found[c.failing] != "FAIL" || !strings.Contains(out, c.want) || len(found) != 6 {
			t.Errorf("%s: exit %d\n%s", c.name, code, out)
		}
		if strings.Contains(out, "hunter2") {
			t.Errorf("%s shows the password:\n%s", c.name, out)
		}
	}
}

func TestDoctorNamesRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if code, _, errs := w.command(w.environ, "migrate"); code != exitOK {
		t.Fatal(errs)
	}
	role := "doctor_" + fmt.Sprint(time.Now().UnixNano())
	w.sql("create role " + role + " login password 'pw'; grant select, insert, update, delete on all tables in schema public to " + role +
		"; grant usage on all sequences in schema public to " + role + "; revoke update on dispatch from " + role)
	t.Cleanup(func() { w.sql("drop owned by " + role + "; drop role " + role) })
	asRole := strings.Replace(w.databaseURL, w.databaseURL[len("postgres://"):strings.Index(w.databaseURL, "@")], role+":pw", 1)
	code, out, _ := w.command(w.with("EXPORTD_DATABASE_URL="+asRole), "doctor")
	if code != exitFailed || !strings.Contains(out, "UPDATE on dispatch") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestDoctorDoesNotWaitForASilentDependency(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits as long as the doctor does")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := silent.Addr().String()
	began := time.Now()
	w := &world{t: t}
	code, out, _ := w.command([]string{
		"EXPORTD_DATABASE_URL=postgres://u:p@" + addr + "/d?sslmode=disable", "EXPORTD_DISPATCH=database",
		"EXPORTD_S3_BUCKET=files", "EXPORTD_S3_ENDPOINT=http://" + addr,
	}, "doctor")
	if took := time.Since(began); code != exitFailed || took > 2*doctorLimit {
		t.Errorf("exit %d after %s\n%s", code, took, out)
	}
}
