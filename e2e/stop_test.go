package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"exportd/e2e/stack"
)

func TestAConsumerThatDrainsIsNotReady(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	leaving := w.startConsumer("EXPORTD_DRAIN_TIMEOUT=60s")
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: items("GATE_1")})
	w.eventually("it is at work", func() bool { return w.number(`select count(*) from job_chunk where status = 'RUNNING'`) == 1 })
	if err := leaving.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is not ready", func() bool {
		status, body := w.get(leaving, "/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, `"stopping"`)
	})
	open()
	if code := w.exit(leaving, 30*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.ended(job, "COMPLETED")
	w.checkInvariants()
}

func TestAnAPIWithOpenStreamsStopsInTime(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI("EXPORTD_DRAIN_TIMEOUT=20s")
	job := w.submit(stack.Submission{Items: items("ROWS_1")}) // nobody works on it
	const streams = 200
	ended := make(chan error, streams)
	for range streams {
		conn, err := net.Dial("tcp", strings.TrimPrefix(api.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /jobs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", job.JobID)
		lines := bufio.NewReader(conn)
		for line := ""; !strings.HasPrefix(line, "event: progress"); {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			for {
				if line, err := lines.ReadString('\n'); err != nil || line == "0\r\n" { // the last piece: the answer is whole
					ended <- err
					return
				}
			}
		}()
	}
	if err := api.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.exit(api, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for range streams {
		if err := <-ended; err != nil {
			t.Errorf("a stream broke off: %v", err)
		}
	}
}
