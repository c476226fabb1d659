package locals3_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exportd/s3out/locals3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAServerComesBackOnTheSamePortAndFolder(t *testing.T) {
	program, err := locals3.Find(t.Context())
	if err != nil {
		if strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "s3") {
			t.Fatal(err)
		}
		t.Skipf("%v\ntry: %s", err, locals3.Hint)
	}
	dir := t.TempDir()
	s, err := locals3.Start(t.Context(), program, dir)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := s.Endpoint()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	wantAway(t, endpoint)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Endpoint() != endpoint {
		t.Errorf("it came back at %s, was at %s", s.Endpoint(), endpoint)
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	wantAway(t, endpoint)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if resp, err := ask(t.Context(), endpoint); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("after a pause: %v, %v", resp, err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	wantAway(t, endpoint)
	if err := s.Stop(); err != nil {
		t.Errorf("stopping twice: %v", err)
	}
}

func TestAProgramThatEndsAtOnceIsAnError(t *testing.T) {
	if s, err := locals3.Start(t.Context(), "/bin/false", t.TempDir()); err == nil {
		t.Errorf("%+v", s)
	}
}

func ask(ctx context.Context, endpoint string) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/healthz", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

func wantAway(t *testing.T, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if resp, err := ask(ctx, endpoint); err == nil {
		t.Errorf("it still answers: %s", resp.Status)
	}
}
