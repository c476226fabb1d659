package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// enough is an environment with which a consumer's configuration is complete.
func enough(more ...string) []string {
	return append([]string{
		"EXPORTD_DATABASE_URL=postgres://app:pw@db:5432/jobs",
		"EXPORTD_BROKER_URLS=stomp://mq:61613",
		"EXPORTD_S3_BUCKET=files",
	}, more...)
}

func loadForTest(args []string, environ []string) (got *loaded, code int, out string) {
	var buffer bytes.Buffer
	got, code = load(args, &buffer, &buffer, environ)
	return got, code, buffer.String()
}

func loadConsumer(t *testing.T, environ []string, flags ...string) *consumerCommand {
	t.Helper()
	got, code, out := loadForTest(append([]string{"consumer"}, flags...), environ)
	if got == nil {
		t.Fatalf("exit %d: %s", code, out)
	}
	return got.command.(*consumerCommand)
}

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	c := loadConsumer(t, enough())
	for _, check := range []struct {
		name      string
		got, want any
	}{
		{"lease", c.Lease.Lease, time.Minute},
		{"attempts", c.Lease.MaxAttempts, 5},
		{"retry base", c.Lease.RetryBase, time.Second},
		{"retry max", c.Lease.RetryMax, 5 * time.Minute},
		{"sweep", c.Lease.Sweep, 5 * time.Second},
		{"concurrency", c.Work.Concurrency, 8},
		{"chunk timeout", c.Work.ChunkTimeout, 30 * time.Minute},
		{"stall timeout", c.Work.StallTimeout, 2 * time.Minute},
		{"drain", c.Stop.Drain, 25 * time.Second},
		{"fallback", c.Work.Fallback, 30 * time.Second},
		{"reuse", c.Work.Reuse, true},
		{"reuse window", c.Work.ReuseWindow, 7},
		{"republish", c.Broker.Again, 5 * time.Minute},
		{"work queue", c.Broker.Work, "job.chunk.work"},
		{"parking queue", c.Broker.Parking, "job.chunk.parking"},
		{"base path", c.S3.BasePath, "exports"},
		{"part size", c.S3.PartSize, size(8 << 20)},
		{"path style", c.S3.pathStyle(), false},
		{"http", c.HTTP.Addr, ""},
		{"source", c.Source.URL, c.Database.URL},
		{"function", c.Source.Function, "export_rows"},
		{"source pool", c.Source.Pool >= c.Work.Concurrency, true},
	} {
		if check.got != check.want {
			t.Errorf("%s: got %v, want %v", check.name, check.got, check.want)
		}
	}
	got, _, out := loadForTest([]string{"api"}, enough())
	if got == nil {
		t.Fatal(out)
	}
	api := got.command.(*apiCommand)
	if api.HTTP.Addr != "127.0.0.1:8080" || api.HTTP.MaxChunks != 10000 || api.HTTP.MaxBody != 8<<20 || api.HTTP.RateLimit != 0 || api.Stop.Drain != 25*time.Second {
		t.Errorf("got %+v", api.HTTP)
	}
}

func TestFlagsWinOverTheEnvironment(t *testing.T) {
	c := loadConsumer(t, enough("EXPORTD_LEASE=20s", "EXPORTD_REUSE_ENABLED=true", "EXPORTD_S3_ENDPOINT=http://s3:7070"), "--lease=30s", "--reuse-enabled=false")
	if c.Lease.Lease != 30*time.Second || c.Work.Reuse || !c.S3.pathStyle() {
		t.Errorf("got lease %s, reuse %t, path style %t", c.Lease.Lease, c.Work.Reuse, c.S3.pathStyle())
	}
}

func TestVariableSetToNothingIsNotSet(t *testing.T) {
	if c := loadConsumer(t, enough("EXPORTD_LEASE=", "EXPORTD_SOURCE_URL=")); c.Lease.Lease != time.Minute {
		t.Errorf("got lease %s", c.Lease.Lease)
	}
}

func TestSecretsMayComeFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := loadConsumer(t, []string{
		"EXPORTD_DATABASE_URL_FILE=" + write("db", "postgres://app:s%2Fs@db/jobs\n"),
		"EXPORTD_BROKER_URLS=stomp://mq:61613", "EXPORTD_BROKER_USER=worker",
		"EXPORTD_BROKER_PASSWORD_FILE=" + write("mq", "p w \r\n"),
		"EXPORTD_S3_BUCKET=files",
	})
	if c.Database.URL != "postgres://app:s%2Fs@db/jobs" || c.Broker.Password != "p w " {
		t.Errorf("got %q and %q", string(c.Database.URL), string(c.Broker.Password))
	}

	for _, environ := range [][]string{
		enough("EXPORTD_DATABASE_URL_FILE=" + write("twice", "postgres://h/d")),
		enough("EXPORTD_BROKER_USER=u", "EXPORTD_BROKER_PASSWORD_FILE="+dir+"/missing"),
		enough("EXPORTD_BROKER_USER=u", "EXPORTD_BROKER_PASSWORD_FILE="+write("empty", "\n")),
	} {
		if got, _, out := loadForTest([]string{"consumer"}, environ); got != nil || strings.Count(out, "\n  EXPORTD_") != 1 {
			t.Errorf("%q: want one fault, got %s", environ, out)
		}
	}
}

func TestEveryFaultIsReportedAtOnce(t *testing.T) {
	got, code, out := loadForTest([]string{"consumer", "--stall-timeout=soon"}, []string{
		"EXPORTD_CONCURRENCY=many", "EXPORTD_LEASE=1s", "EXPORTD_PART_SIZE=1MiB", "EXPORTD_REUSE_ENABLED=maybe",
		"EXPORTD_SOURCE_URL=mysql://h/d", "EXPORTD_S3_ENDPOINT=s3:7070", "EXPORTD_LOG_LEVEL=loud",
	})
	if got != nil || code != exitUsage {
		t.Fatalf("code %d", code)
	}
	for _, name := range []string{
		"STALL_TIMEOUT", "CONCURRENCY", "LEASE", "PART_SIZE", "REUSE_ENABLED", "SOURCE_URL", "S3_ENDPOINT", "LOG_LEVEL",
		"DATABASE_URL", "BROKER_URLS", "S3_BUCKET",
	} {
		if strings.Count(out, "\n  EXPORTD_"+name+" ") != 1 {
			t.Errorf("want exactly one line about %s in:\n%s", name, out)
		}
	}
}

func TestFaultsNameTheSettingAndTheWayOut(t *testing.T) {
	for _, c := range []struct{ setting, want string }{
		{"EXPORTD_LEASE=2s", "at least 3s"},
		{"EXPORTD_SOURCE_POOL=7", "EXPORTD_CONCURRENCY"},
		{"EXPORTD_DB_POOL=1", "at least 4"},
		{"EXPORTD_CONCURRENCY=0", "from 1"},
		{"EXPORTD_MAX_ATTEMPTS=0", "from 1"},
		{"EXPORTD_RETRY_MAX=10ms", "EXPORTD_RETRY_BASE"},
		{"EXPORTD_CHUNK_TIMEOUT=0s", "at least"},
		{"EXPORTD_DRAIN_TIMEOUT=-1s", "at least"},
		{"EXPORTD_REUSE_WINDOW_DAYS=-1", "0 or more"},
		{"EXPORTD_PART_SIZE=4MiB", "5MiB"},
		{"EXPORTD_DISPATCH=none", "broker or database"},
		{"EXPORTD_BROKER_URLS=tcp://h:61616", "stomp://host:61613"},
		{"EXPORTD_BROKER_URLS=stomp://h", "61613"},
		{"EXPORTD_BROKER_URLS=stomp://h:61613,stomp://u:hunter2@h:61613", "EXPORTD_BROKER_USER"},
		{"EXPORTD_BROKER_PASSWORD=hunter2", "set both or none"},
		{"EXPORTD_BROKER_CA_FILE=/does/not/exist", "cannot be read"},
		{"EXPORTD_PARKING_QUEUE=job.chunk.work", "taken for work"},
		{"EXPORTD_WORK_QUEUE=/queue/a", "plain name"},
		{"EXPORTD_S3_BUCKET=Files", "lower-case"},
		{"EXPORTD_S3_BASE_PATH=a/../b", "names of letters"},
		{"EXPORTD_S3_PATH_STYLE=yes", "true nor false"},
		{"EXPORTD_EXPORT_FUNCTION=f(); drop table job", "name of a function"},
		{"EXPORTD_DATABASE_URL=postgres://app:hunter2@db", "names no database"},
		{"EXPORTD_DATABASE_URL=postgres://app:hun/ter2@db/jobs", "%2F"},
		{"EXPORTD_HTTP_ADDR=8080", "host:port"},
	} {
		got, code, out := loadForTest([]string{"consumer"}, enough(c.setting))
		name, _, _ := strings.Cut(c.setting, "=")
		if got != nil || code != exitUsage || !strings.Contains(out, "\n  "+name) && !strings.Contains(out, "\n  EXPORTD_BROKER_USER") || !strings.Contains(out, c.want) {
			t.Errorf("%s: want a fault with %q, got %d %s", c.setting, c.want, code, out)
		}
		if strings.Contains(out, "hunter2") || strings.Contains(out, "ter2") {
			t.Errorf("%s: the secret is shown: %s", c.setting, out)
		}
	}
}

func TestDispatchByDatabaseNeedsNoBroker(t *testing.T) {
	c := loadConsumer(t, []string{"EXPORTD_DATABASE_URL=postgres://db/jobs", "EXPORTD_S3_BUCKET=files", "EXPORTD_DISPATCH=database"})
	if c.Broker.used() {
		t.Error("a broker would be used")
	}
}

func TestRateLimitIsANumberOfRequests(t *testing.T) {
	for given, want := range map[string]float64{"50": 50, "0.5": 0.5} {
		got, _, out := loadForTest([]string{"api"}, enough("EXPORTD_RATE_LIMIT="+given))
		if got == nil || got.command.(*apiCommand).HTTP.RateLimit != want {
			t.Errorf("%s: %v %s", given, got, out)
		}
	}
	for _, wrong := range []string{"-1", "NaN", "1e9", "10/s", "fast"} {
		if got, _, out := loadForTest([]string{"api"}, enough("EXPORTD_RATE_LIMIT="+wrong)); got != nil || strings.Count(out, "\n  EXPORTD_RATE_LIMIT ") != 1 {
			t.Errorf("%s: %s", wrong, out)
		}
	}
}

func TestWebhooksNeedASecretOfTheirForm(t *testing.T) {
	const a, b = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_dGhpcnR5LXR3byBieXRlcyBvZiBhIHNlY3JldCBrZXk="
	load := func(more ...string) (*apiCommand, string) {
		got, _, out := loadForTest([]string{"api"}, enough(more...))
		if got == nil {
			return nil, out
		}
		return got.command.(*apiCommand), out
	}
	if c, out := load(); c == nil || c.Webhook.callbacks() != nil {
		t.Errorf("without a secret callbacks are taken: %s", out)
	}
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte(a+" "+b+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"EXPORTD_WEBHOOK_SECRET=" + a, "EXPORTD_WEBHOOK_SECRET_FILE=" + file} {
		c, out := load(setting)
		if c == nil {
			t.Fatalf("%s: %s", setting, out)
		}
		if err := c.Webhook.callbacks()("https://receiver.example"); err != nil {
			t.Errorf("%s: %v", setting, err)
		}
		if c.Webhook.callbacks()("http://receiver.example") == nil || c.Webhook.callbacks()("https://10.0.0.1") == nil {
			t.Errorf("%s: http or a private address is taken", setting)
		}
	}
	if c, out := load("EXPORTD_WEBHOOK_SECRET="+a, "EXPORTD_WEBHOOK_ALLOW_PRIVATE=true"); c == nil || c.Webhook.callbacks()("http://10.0.0.1") != nil {
		t.Errorf("a private address is refused though it is allowed: %s", out)
	}
	for _, wrong := range []string{"hunter2hunter2hunter2hunter2", "whsec_hunter2", a + " hunter2", a + "," + b} {
		if c, out := load("EXPORTD_WEBHOOK_SECRET=" + wrong); c != nil || !strings.Contains(out, "openssl rand") || strings.Contains(out, "hunter2") {
			t.Errorf("%s: %s", wrong, out)
		}
	}
}

func TestAPIWithoutTokensServesLoopbackOnly(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "localhost:8080": true, "[::1]:8080": true,
		":8080": false, "0.0.0.0:8080": false, "10.0.0.1:8080": false, "exports.example:8080": false,
	} {
		if got, _, out := loadForTest([]string{"api"}, enough("EXPORTD_HTTP_ADDR="+addr)); (got != nil) != ok {
			t.Errorf("%s: accepted %t, want %t: %s", addr, got != nil, ok, out)
		}
		if got, _, out := loadForTest([]string{"api"}, enough("EXPORTD_HTTP_ADDR="+addr, "EXPORTD_AUTH=none")); got == nil {
			t.Errorf("%s with EXPORTD_AUTH=none is refused: %s", addr, out)
		}
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	environ := enough("EXPORTD_BROKER_USER=u", "EXPORTD_BROKER_PASSWORD=hunter2", "EXPORTD_SOURCE_URL=postgres://u:hunter2@h/d?sslpassword=hunter2")
	_, _, help := loadForTest([]string{"consumer", "--help"}, environ)
	_, _, unknownFlag := loadForTest([]string{"consumer", "--broker-pasword=hunter2"}, environ)
	c := loadConsumer(t, environ)
	var logged bytes.Buffer
	newLogger(&logged, logConfig{}).Info("x", "password", c.Broker.Password, "broker", c.Broker, "url", c.Source.URL.redacted())
	for name, out := range map[string]string{"help": help, "unknown flag": unknownFlag, "log": logged.String()} {
		if out == "" || strings.Contains(out, "hunter2") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

func TestMisspeltVariableIsNamed(t *testing.T) {
	got, _, out := loadForTest([]string{"consumer"}, enough("EXPORTD_LEESE=4s", "EXPORTD_MAX_BODY=8MiB", "EXPORTD_PORT_8080_TCP=tcp://10.0.0.1:8080", "EXPORTD_TEST_REQUIRE=s3"))
	if got == nil || strings.Join(got.unknown, " ") != "EXPORTD_LEESE" {
		t.Errorf("got %+v: %s", got, out)
	}
}

func TestCommandLineMistakesEndWithUsageCode(t *testing.T) {
	for _, args := range [][]string{{"consume"}, {"api", "--nonsense"}, {"version", "please"}} {
		if got, code, out := loadForTest(args, nil); got != nil || code != exitUsage || out == "" {
			t.Errorf("%q: got %d, %s", args, code, out)
		}
	}
	for _, args := range [][]string{{}, {"--help"}, {"api", "--help"}, {"migrate", "--help"}} {
		if got, code, out := loadForTest(args, nil); got != nil || code != exitOK || !strings.Contains(out, "Usage: exportd") {
			t.Errorf("%q: got %d, %s", args, code, out)
		}
	}
}

func TestSizesAreReadAndShown(t *testing.T) {
	for text, want := range map[string]size{"8MiB": 8 << 20, "5 MiB": 5 << 20, "1GiB": 1 << 30, "500KB": 500_000, "12B": 12, "77": 77} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "8 TiB", "99999999999GiB"} {
		var got size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
	if got := size(8<<20).String() + " " + size(1000).String(); got != "8MiB 1000" {
		t.Error(got)
	}
}
