package containertest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"exportd/containertest"
)

// beStarter makes the test binary a process that starts a container, tells its address and waits.
const beStarter = "EXPORTD_TEST_BE_STARTER"

func TestMain(m *testing.M) {
	if os.Getenv(beStarter) == "" {
		os.Exit(m.Run())
	}
	address, _, err := containertest.Start(context.Background(), service)
	if err != nil {
		address = err.Error()
	}
	os.Stdout.WriteString(address + "\n")
	io.Copy(io.Discard, os.Stdin)
}

// The store's image serves HTTP at once.
var service = containertest.Service{
	Image:   storeImage(),
	Command: []string{"sh", "-c", "mkdir /tmp/data && exec versitygw --port :7070 --health /healthz posix /tmp/data"},
	Env:     map[string]string{"ROOT_ACCESS_KEY": "user", "ROOT_SECRET_KEY": "password"},
	Port:    "7070/tcp",
	Path:    "/healthz",
}

// storeImage is the one of compose.yaml.
func storeImage() string {
	text, err := os.ReadFile("../compose.yaml")
	if err != nil {
		panic(err)
	}
	return string(regexp.MustCompile(`image: (\S+versitygw\S+)`).FindSubmatch(text)[1])
}

func start(t *testing.T) (address string, end func() error) {
	t.Helper()
	address, end, err := containertest.Start(t.Context(), service)
	if errors.Is(err, containertest.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return address, end
}

func answers(address string) bool {
	resp, err := http.Get("http://" + address + "/healthz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func gone(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); answers(address); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
	}
}

func TestAContainerServesUntilItIsEnded(t *testing.T) {
	t.Parallel()
	address, end := start(t)
	if !answers(address) {
		t.Error("it does not answer")
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	gone(t, address)
}

func TestAContainerEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	_, end := start(t) // or skip
	if err := end(); err != nil {
		t.Error(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), beStarter+"=yes")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 1000)
	n, _ := stdout.Read(line)
	address := strings.TrimSpace(string(line[:n]))
	if !answers(address) {
		t.Errorf("it does not answer: %q", address)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, address)
}

func TestWithoutTheImageThereIsNone(t *testing.T) {
	if _, _, err := containertest.Start(t.Context(), containertest.Service{Image: "exportd.example/nowhere:none"}); !errors.Is(err, containertest.ErrNone) {
		t.Errorf("got %v", err)
	}
	t.Setenv("EXPORTD_TEST_REQUIRE", "s3,containers")
	if _, _, err := containertest.Start(t.Context(), containertest.Service{Image: "exportd.example/nowhere:none"}); err == nil || errors.Is(err, containertest.ErrNone) {
		t.Errorf("got %v", err)
	}
}

func TestAServiceThatEndsAtOnceIsAnErrorThatTellsItsImage(t *testing.T) {
	t.Parallel()
	_, end := start(t) // or skip
	if err := end(); err != nil {
		t.Error(err)
	}
	broken := service
	broken.Command = []string{"false"}
	if _, _, err := containertest.Start(t.Context(), broken); err == nil || !strings.Contains(err.Error(), broken.Image) {
		t.Errorf("got %v", err)
	}
}
