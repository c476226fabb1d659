package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"exportd/e2e/stack"
)

// person runs the program as somebody who uses it from a shell.
func (w *world) person(stdin string, args ...string) (code int, out, errs string) {
	w.t.Helper()
	ctx, cancel := w.limited()
	defer cancel()
	cmd := w.command(ctx, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		w.t.Fatalf("exportd %s: %v %v\n%s", strings.Join(args, " "), err, ctx.Err(), &e)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.Program, args...)
	cmd.Env = w.Environ("EXPORTD_URL="+w.api.URL, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR=")
	return cmd
}

// terminal is a command on a terminal of 90 columns.
type terminal struct {
	cmd    *exec.Cmd
	keys   *os.File
	closed chan struct{} // the program has let go of it
	mu     sync.Mutex
	shown  strings.Builder
}

func (w *world) terminal(settings []string, args ...string) *terminal {
	w.t.Helper()
	ctx, cancel := w.limited()
	w.t.Cleanup(cancel)
	t := &terminal{cmd: w.command(ctx, args...), closed: make(chan struct{})}
	t.cmd.Env = append(t.cmd.Env, settings...)
	var err error
	if t.keys, err = pty.StartWithSize(t.cmd, &pty.Winsize{Rows: 24, Cols: 90}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { t.keys.Close() })
	go func() {
		defer close(t.closed)
		buffer := make([]byte, 4096)
		for {
			n, err := t.keys.Read(buffer)
			t.mu.Lock()
			t.shown.Write(buffer[:n])
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t
}

func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown.String()
}

// end waits for the end of the command.
func (t *terminal) end() (code int, shown string) {
	<-t.closed
	_ = t.cmd.Wait() // its state says how it ended
	return t.cmd.ProcessState.ExitCode(), t.text()
}

func TestSubmitAndWatchEndAsTheJobDoes(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	code, out, errs := w.person("", "submit", "--key", "ROWS_10", "--key", "EMPTY", "--dates", "20200101..20200131", "--compression", "gzip", "--watch")
	if last := lastLine(out); code != 0 || errs != "" || !regexp.MustCompile(`^J\d+_\d+ COMPLETED: 62 of 62 done, 0 failed, 0 cancelled, 310 rows, `).MatchString(last) {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	for line := range strings.Lines(out) {
		if strings.ContainsAny(line, "\r\x1b") || !regexp.MustCompile(`^J\d+_\d+ [A-Z_]+: `).MatchString(line) {
			t.Errorf("the line %q", line)
		}
	}
	code, out, errs = w.person("key,date\nROWS_1,2020-01-31\nDIV_1,20200131\n", "submit", "--from", "-", "--on-failure", "continue", "--watch", "--json")
	var last stack.Job
	if err := json.Unmarshal([]byte(lastLine(out)), &last); err != nil || code != 3 || last.Status != "FAILED" || last.Done != 1 || last.Failed != 1 {
		t.Errorf("code %d, printed %q, %q: %v", code, out, errs, err)
	}
	w.closeGate(1)
	code, out, errs = w.person("", "submit", "--key", "GATE_1", "--dates", "20200131")
	job := strings.TrimSpace(out)
	if code != 0 || out != job+"\n" || !regexp.MustCompile(`^J\d+_\d+$`).MatchString(job) {
		t.Fatalf("code %d, printed %q, %q", code, out, errs)
	}
	watching := w.background(t, "watch", job)
	watching.await(t, "IN_PROGRESS")
	if code, out, errs := w.person("", "cancel", job); code != 0 || !strings.HasPrefix(out, job+" CANCEL") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, rest := watching.end(t); code != 4 || !strings.HasPrefix(lastLine(rest), job+" CANCELLED") {
		t.Errorf("code %d, printed %q", code, rest)
	}
	if code, _, errs := w.person("", "watch", "J20200101_000000"); code != 5 || !strings.Contains(errs, "unknown job") {
		t.Errorf("an unknown job: code %d, %q", code, errs)
	}
	if code, out, errs := w.person("", "submit", "--key", " ", "--dates", "20200131"); code != 1 || out != "" || !strings.Contains(errs, `--key " " --dates 20200131: the key must not be empty`) {
		t.Errorf("a key of nothing: code %d, printed %q, %q", code, out, errs)
	}
	w.checkInvariants()
	w.kill(w.api)
	if code, _, errs := w.person("", "watch", job); code != 6 || !strings.Contains(errs, "EXPORTD_URL") {
		t.Errorf("a dead API: code %d, %q", code, errs)
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

// background is a command whose output is read while it runs.
type background struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	seen strings.Builder
}

func (w *world) background(t *testing.T, args ...string) *background {
	t.Helper()
	ctx, cancel := w.limited()
	t.Cleanup(cancel)
	b := &background{cmd: w.command(ctx, args...)}
	pipe, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.out = bufio.NewReader(pipe)
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return b
}

// await reads up to a line that holds text.
func (b *background) await(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := b.out.ReadString('\n')
		b.seen.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("no %q: %v in %q", text, err, b.seen.String())
		}
	}
}

func (b *background) end(t *testing.T) (code int, out string) {
	t.Helper()
	rest, err := io.ReadAll(b.out)
	if err != nil {
		t.Error(err)
	}
	b.seen.Write(rest)
	_ = b.cmd.Wait() // its state says how it ended
	return b.cmd.ProcessState.ExitCode(), b.seen.String()
}

func TestWatchOutlastsARestartOfTheAPI(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI()
	w.startConsumer()
	open := w.closeGate(1)
	job := w.submit(stack.Submission{Items: items("GATE_1", "ROWS_1")})
	watching := w.background(t, "watch", job.JobID)
	watching.await(t, "1 of 2 done")
	w.kill(api)
	w.startAPI("EXPORTD_HTTP_ADDR=" + strings.TrimPrefix(api.URL, "http://"))
	open()
	if code, out := watching.end(t); code != 0 || !strings.Contains(lastLine(out), "COMPLETED: 2 of 2") {
		t.Errorf("code %d, printed %q", code, out)
	}
	w.checkInvariants()
}

func TestWatchOnATerminalDrawsOneLine(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	open := w.closeGate(1)
	submitted := w.terminal(nil, "submit", "--key", "ROWS_1", "--key", "GATE_1", "--dates", "20200130,20200131", "--watch")
	bar := regexp.MustCompile(`IN_PROGRESS .*█+.*░+.* 50%  2/4.*2 running`)
	w.eventually("a bar half full", func() bool { return bar.MatchString(submitted.text()) })
	if _, err := submitted.keys.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	code, shown := submitted.end()
	job := regexp.MustCompile(`J\d+_\d+`).FindString(shown)
	if code != 130 || !strings.Contains(shown, "interrupted; job \""+job+"\" goes on") || !strings.Contains(shown, "\x1b[32m") {
		t.Errorf("code %d, shown %q", code, shown)
	}
	plain := w.terminal([]string{"NO_COLOR=1", "LC_ALL=C"}, "watch", job)
	w.eventually("a bar without colours", func() bool { return strings.Contains(plain.text(), "#....") })
	open()
	code, shown = plain.end()
	if last := shown[strings.LastIndex(shown, "\x1b[K")+3:]; code != 0 || !strings.HasPrefix(last, job+" COMPLETED: 4 of 4 done") || strings.Contains(shown, "\x1b[3") {
		t.Errorf("code %d, shown %q", code, shown)
	}
	for drawn := range strings.SplitSeq(shown, "\r") {
		if n := len([]rune(strings.ReplaceAll(strings.TrimRight(drawn, "\n"), "\x1b[K", ""))); strings.Contains(drawn, "%") && n > 89 {
			t.Errorf("%d characters on 90 columns: %q", n, drawn)
		}
	}
	if code, shown := w.terminal([]string{"TERM=dumb"}, "watch", job).end(); code != 0 || strings.ContainsAny(strings.ReplaceAll(shown, "\r\n", ""), "\r\x1b") {
		t.Errorf("on a dumb terminal: code %d, shown %q", code, shown)
	}
	if code, shown := w.terminal(nil, "jobs").end(); code != 0 || !strings.Contains(shown, "STATUS") || !strings.Contains(shown, "\x1b[32mCOMPLETED\x1b[0m") {
		t.Errorf("code %d, shown %q", code, shown)
	}
	w.checkInvariants()
}

func TestWatchIsInterruptedBySignals(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	w.closeGate(1)
	job := w.submit(stack.Submission{Items: items("GATE_1")})
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		watching := w.background(t, "watch", "--json", job.JobID)
		watching.await(t, "IN_PROGRESS")
		if err := watching.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if code, out := watching.end(t); code != 130 {
			t.Errorf("%s: code %d, printed %q", signal, code, out)
		}
	}
}

func TestDeadLettersAreFoundRedrivenAndDrained(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	code, out, errs := w.person("", "submit", "--key", "ROWS_1", "--key", "DIV_1", "--dates", "20200130..20200131", "--on-failure", "continue", "--watch")
	if code != 3 {
		t.Fatalf("code %d, printed %q, %q", code, out, errs)
	}
	job, _, _ := strings.Cut(out, " ")
	w.parked("DIV_1")
	for _, c := range []struct{ args, says string }{
		{"parked", job + "\tkey=DIV_1:date=20200131\t1\t"},
		{"parked --broker", job + "\tkey=DIV_1:date=20200131\t1\t"},
		{"parked --broker --json", `"errorCode":"SQL_22012"`},
		{"parked --json --since 1d --error-code SQL_22012", `"jobId":"` + job + `"`},
		{"chunks " + job + " --status dlq", "division by zero"},
		{"chunks " + job + " key=DIV_1:date=20200131", "1\tDLQ\t"},
		{"jobs --status failed --key DIV_1", job + "\tFAILED\t2\t4\t2\t0"},
		{"queues", w.Parking + "\t2\t0\t0"},
		{"status " + job, "FAILED: 2 of 4 done"},
		{"redrive --error-code SQL_22012 --since 24h --dry-run", "would put back 2 chunks of 1 job\n"},
		{"redrive --error-code SQL_22013 --since 24h", "would put back 0 chunks of 0 jobs\n"},
	} {
		w.eventually(c.args+" says "+c.says, func() bool { // the broker tells a little late
			code, out, errs = w.person("", strings.Fields(c.args)...)
			if code != 0 || errs != "" {
				t.Fatalf("%s: code %d, printed %q, %q", c.args, code, out, errs)
			}
			return strings.Contains(out, c.says)
		})
	}
	for answer, want := range map[string]int{"\n": 1, "\x03": 130} { // Enter, Ctrl-C
		asked := w.terminal(nil, "redrive", "--status", "failed")
		w.eventually("a question", func() bool { return strings.Contains(asked.text(), "Put back 2 chunks of 1 job? [y/N]") })
		if _, err := asked.keys.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if code, shown := asked.end(); code != want || !strings.Contains(shown, "nothing was put back") {
			t.Errorf("%q: code %d, shown %q", answer, code, shown)
		}
	}
	w.exec(`create or replace function export_rows(key text, effective_date date) returns table (n bigint, name text, note text, amount numeric, day date, at timestamptz,
		ratio float8, span interval, raw bytea) language sql stable as $$ select 1::bigint, key, null::text, null::numeric, effective_date,
		null::timestamptz, null::float8, null::interval, null::bytea $$`)
	if code, out, errs = w.person("", "redrive", "--error-code", "SQL_22012", "--since", "24h"); code != 0 || out != "put back 2 chunks of 1 job\n" {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, out, errs = w.person("", "watch", job); code != 0 || !strings.Contains(lastLine(out), "COMPLETED: 4 of 4") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, out, errs = w.person("", "parked", "--drain"); code != 2 || !strings.Contains(errs, "--yes") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, out, errs = w.person("", "parked", "--drain", "--yes"); code != 0 || out != fmt.Sprintf("2 messages taken from %s\n", w.Parking) {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, out, errs = w.person("", "parked", "--broker"); code != 0 || out != "" {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if code, out, errs = w.person("", "parked"); code != 0 || out != "" {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
}
