package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestHealthcheckTellsWhetherTheProcessLives(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", ":0") // every address, as in a container
	if err != nil {
		t.Fatal(err)
	}
	var health atomic.Int32
	health.Store(http.StatusOK)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(health.Load()))
		w.Write([]byte("stuck"))
	})}}
	server.Start()
	defer server.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	check := func(addr string) (int, string) {
		t.Helper()
		code, _, errs := (&world{t: t}).command([]string{"EXPORTD_HTTP_ADDR=" + addr}, "healthcheck")
		return code, errs
	}
	for _, addr := range []string{":" + port, "0.0.0.0:" + port, "127.0.0.1:" + port} {
		if code, errs := check(addr); code != exitOK || errs != "" {
			t.Errorf("%s: exit code %d, %s", addr, code, errs)
		}
	}
	health.Store(http.StatusServiceUnavailable)
	if code, errs := check(":" + port); code != exitFailed || !strings.Contains(errs, "503") || !strings.Contains(errs, "stuck") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	server.Close()
	if code, errs := check(":" + port); code != exitFailed || !strings.Contains(errs, "refused") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if code, errs := check("8080"); code != exitUsage || !strings.Contains(errs, "host:port") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
