// Package compose brings up compose.yaml as it is, with the program of the tree in an image of its own, kills its containers and takes it down.
package compose

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"exportd/broker"
	"exportd/e2e/stack"
	"exportd/s3out"
)

const (
	root  = "../.." // of the module
	limit = 3 * time.Minute
)

// system is a compose project of this test's own.
type system struct {
	t       *testing.T
	command []string // docker compose, with the project and its files
	env     []string
	world   *stack.World
	client  stack.Client
	db      *pgx.Conn
}

// Fast enough to wait for; the file leaves the defaults.
const faster = `
services:
  api: &faster {environment: {EXPORTD_LEASE: 6s, EXPORTD_SWEEP_INTERVAL: 500ms}}
  consumer: *faster
`

// missing says why there can be no such system here.
func missing(images []string) (composer []string, reason string) {
	if out, err := exec.Command("docker", "info").CombinedOutput(); err != nil {
		return nil, fmt.Sprintf("no container engine answers: %v %s", err, lastLine(out))
	}
	composer = []string{"docker", "compose"}
	if exec.Command("docker", "compose", "version").Run() != nil {
		if composer = []string{"docker-compose"}; exec.Command("docker-compose", "version").Run() != nil {
			return nil, "there is neither docker compose nor docker-compose"
		}
	}
	var absent []string
	for _, image := range images {
		if exec.Command("docker", "image", "inspect", image).Run() != nil {
			absent = append(absent, image)
		}
	}
	if len(absent) > 0 {
		return nil, "images are not here, and tests pull none: docker pull " + strings.Join(absent, "; docker pull ")
	}
	return composer, ""
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// up builds the image and brings everything up, from nothing, and takes it down when the test ends.
func up(t *testing.T) *system {
	t.Helper()
	if testing.Short() {
		t.Skip("brings up the whole system in containers")
	}
	final, base := finalStage(t)
	composer, reason := missing(append(images(t, "postgres", "activemq", "s3"), base))
	if reason != "" {
		unavailable(t, reason)
	}
	project := "exportd-test-" + strings.ToLower(rand.Text()[:10])
	override := filepath.Join(t.TempDir(), "faster.yaml")
	if err := os.WriteFile(override, []byte(faster), 0o600); err != nil {
		t.Fatal(err)
	}
	const hostile = `p@ss:w/o#r d"%41'\` // as people choose them
	s := &system{t: t, command: append(composer, "-p", project, "-f", root+"/compose.yaml", "-f", override)}
	s.env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "COMPOSE_") })
	s.env = append(s.env, "IMAGE="+project+":1", "POSTGRES_PASSWORD="+hostile, "BROKER_API_PASSWORD=api "+hostile, "BROKER_WORKER_PASSWORD=worker "+hostile,
		"BROKER_ADMIN_PASSWORD=admin "+hostile, "S3_ACCESS_KEY=composetest", "S3_SECRET_KEY=secret+/of=the-test",
		"HTTP_PORT=0", "POSTGRES_PORT=0", "BROKER_PORT=0", "BROKER_CONSOLE_PORT=0", "S3_PORT=0",
		"PROMETHEUS_PORT=0")
	s.build(project+":1", final)
	t.Cleanup(s.down)
	s.compose("up", "--no-build", "-d")

	t.Setenv("AWS_ACCESS_KEY_ID", "composetest")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret+/of=the-test")
	s.client.URL = "http://" + s.address("api", 8080)
	database := url.URL{Scheme: "postgres", User: url.UserPassword("exportd", hostile), Host: s.address("postgres", 5432), Path: "/exportd", RawQuery: "sslmode=disable"}
	s.world = &stack.World{
		Database: database.String(), Work: "job.chunk.work", Parking: "job.chunk.parking",
		Broker: broker.Config{User: "admin", Password: "admin " + hostile},
		S3:     s3out.Config{Bucket: "exports", BasePath: "exports", Endpoint: "http://" + s.address("s3", 7070), Region: "us-east-1"},
	}
	var err error
	if s.db, err = pgx.Connect(t.Context(), s.world.Database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close(context.Background()) })
	return s
}

// unavailable skips the test, unless it is required.
func unavailable(t *testing.T, reason string) {
	t.Helper()
	if strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "compose") {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// images are those of services in compose.yaml.
func images(t *testing.T, services ...string) (names []string) {
	text, err := os.ReadFile(root + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct{ Image string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, service := range services {
		names = append(names, file.Services[service].Image)
	}
	return names
}

// finalStage is the last stage of the Dockerfile, taking the program from beside it, and the image that it is from.
func finalStage(t *testing.T) (stage, base string) {
	text, err := os.ReadFile(root + "/deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)\nFROM (\S+)\n.*`).FindStringSubmatch(string(text))
	const copied = "COPY --from=build /out/exportd "
	if m == nil || strings.Count(m[0], copied) != 1 {
		t.Fatal("the Dockerfile has no last stage that copies the program")
	}
	return strings.Replace(m[0], copied, "COPY exportd ", 1), m[1]
}

// build makes the image. Its first stage, which needs the network for the modules, is done on this machine.
func (s *system) build(tag, dockerfile string) {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.WriteFile(dir+"/Dockerfile", []byte(dockerfile), 0o600); err != nil {
		s.t.Fatal(err)
	}
	program := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=composetest", "-o", dir+"/exportd", ".")
	program.Dir, program.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	s.run(program)
	s.t.Cleanup(func() { s.run(exec.Command("docker", "rmi", tag)) })
	s.run(exec.Command("docker", "build", "-q", "-t", tag, dir))
}

// run runs a command to its end and returns what it wrote to its standard output.
func (s *system) run(cmd *exec.Cmd) string {
	s.t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, errs.String())
	}
	return strings.TrimSpace(string(out))
}

func (s *system) compose(args ...string) string {
	s.t.Helper()
	args = append(slices.Clone(s.command), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = s.env
	return s.run(cmd)
}

func (s *system) docker(args ...string) string {
	s.t.Helper()
	return s.run(exec.Command("docker", args...))
}

// address is where a port of a service is published now.
func (s *system) address(service string, port int) string {
	s.t.Helper()
	return s.compose("port", service, fmt.Sprint(port))
}

// containers of a service, by their ids.
func (s *system) containers(service string) []string {
	s.t.Helper()
	return strings.Fields(s.compose("ps", "-q", service))
}

// down takes everything away, and sees that nothing is left.
func (s *system) down() {
	if s.t.Failed() {
		s.t.Logf("%s\n%s", s.compose("ps"), s.compose("logs", "--no-color", "--tail=200"))
	}
	s.env = append(s.env, "COMPOSE_PROFILES=observability") // without it what the profile started stays
	s.compose("down", "-v", "--remove-orphans")
	ours := "label=com.docker.compose.project=" + s.command[slices.Index(s.command, "-p")+1]
	for _, left := range []string{s.docker("ps", "-aq", "--filter", ours), s.docker("volume", "ls", "-q", "--filter", ours), s.docker("network", "ls", "-q", "--filter", ours)} {
		if left != "" {
			s.t.Errorf("left behind: %s", left)
		}
	}
}
