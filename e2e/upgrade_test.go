package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"exportd/e2e/stack"
)

// TestAnUpgradeAndARollbackUnderLoad goes the way of docs/operations.md under a load that never stops: tables and processes of the version before, the
// migrations of this one, both versions side by side, this one alone, both again, the one before alone on the newer tables.
func TestAnUpgradeAndARollbackUnderLoad(t *testing.T) {
	t.Parallel()
	w := setup(t, own{empty: true})
	old, current := version{"old", previousProgram(t)}, version{"current", w.Program}

	w.migrate(old)
	schema := w.number(`select max(version_id) from goose_db_version`)
	if err := stack.CreateSource(t.Context(), w.Database); err != nil {
		t.Fatal(err)
	}
	before := w.startFleet(old)
	load := w.startLoad(before)
	after := w.change(load, before, current, 12)
	t.Logf("migrations: %d before, %d now", schema, w.number(`select max(version_id) from goose_db_version`))

	w.change(load, after, old, 13)
	load.stop()
	w.eventually("all jobs end", func() bool { return w.number(`select count(*) from job where completed_at is null`) == 0 })
	t.Logf("%d jobs, %d chunks", len(load.jobs), w.number(`select count(*) from job_chunk`))
	load.check(w)
	w.checkInvariants()
}

// A consumer of one version dies after its upload and before its settlement; one of the other version takes the chunk over.
func TestAFileThatAnotherVersionWroteAndDidNotSettleIsNotLost(t *testing.T) {
	t.Parallel()
	for _, writer := range []string{"old", "current"} {
		t.Run(writer, func(t *testing.T) {
			t.Parallel()
			w := setup(t, own{})
			programs := []string{previousProgram(t), w.Program}
			if writer == "current" {
				slices.Reverse(programs)
			}
			w.startAPI()
			keys := []string{"ROWS_10", "BIG_12"} // in one part, and in several
			for _, key := range keys {
				release := w.holdSettlement(key)
				w.Program = programs[0]
				p := w.startConsumer()
				job := w.submit(stack.Submission{Items: items(key)})
				claim := w.awaitObject(key)
				w.kill(p)
				// The statement of the dead process still waits in the server, and would settle in its name.
				w.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'exportd' and wait_event_type = 'Lock'`)
				release()
				w.Program = programs[1]
				p = w.startConsumer()
				w.ended(job, "COMPLETED")
				t.Logf("%s was written again: %t", key, w.awaitObject(key) != claim)
				if code := w.exit(w.stop(p), 30*time.Second); code != 0 {
					t.Errorf("exit code %d", code)
				}
			}
			w.checkInvariants()
		})
	}
}

// version is a program of a version.
type version struct{ name, program string }

// fleet is an api and two consumers of one version.
type fleet struct {
	version
	api       *stack.Process
	consumers []*stack.Process
}

func (w *world) startFleet(v version) fleet {
	w.t.Helper()
	w.Program = v.program
	f := fleet{version: v, api: w.startAPI()}
	for range 2 {
		f.consumers = append(f.consumers, w.startConsumer("EXPORTD_DRAIN_TIMEOUT=5s"))
	}
	return f
}

func (w *world) migrate(v version) {
	w.t.Helper()
	w.Program = v.program
	if code, output := w.run(nil, "migrate"); code != 0 {
		w.t.Fatalf("migrate of the %s version: exit code %d\n%s", v.name, code, output)
	}
}

// change takes the place of a fleet by one of another version, as docs/operations.md says. What the leaving consumers have in their hands is taken over,
// from one that drains and from one that is killed in the middle of an upload.
func (w *world) change(l *load, from fleet, to version, half int) (next fleet) {
	w.t.Helper()
	w.migrate(to) // a rollback has nothing to migrate, but a deployment runs it all the same
	if code, output := w.run(nil, "doctor"); code != 0 {
		w.t.Errorf("doctor of the %s version: exit code %d\n%s", to.name, code, output)
	}
	openGates, openHalf := w.closeGate(half+100), w.closeGate(half)
	gate, upload := fmt.Sprintf("GATE_%d", half+100), fmt.Sprintf("HALF_%d", half)
	held := w.submit(stack.Submission{Items: []stack.Item{{Key: gate, EffectiveDates: days(5)}, {Key: upload, EffectiveDates: days(1)}}})
	w.eventually("the leaving have their hands full", func() bool {
		return w.number(`select count(*) from job_chunk where key = $1 and status = 'RUNNING' or key = $2 and upload_id is not null`, gate, upload) == 6
	})

	next = w.startFleet(to)
	l.through(from, next)
	since := w.doneBy(from)
	w.eventually("both versions work", func() bool { return l.goesOn(w.t) && w.doneBy(from) >= since+10 && w.doneBy(next) >= 10 })

	l.through(next)
	killed := w.owner(upload)
	w.kill(killed)
	leaving := slices.DeleteFunc(append(from.consumers, from.api), func(p *stack.Process) bool { return p == killed })
	for _, p := range leaving {
		w.stop(p)
	}
	for _, p := range leaving {
		if code := w.exit(p, 30*time.Second); code != 0 {
			w.t.Errorf("%s of the %s version: exit code %d", p.Name, from.name, code)
		}
	}
	w.eventually("the others have taken everything", func() bool {
		return w.number(`select count(*) from job_chunk where job_id = $1 and status = 'RUNNING' and split_part(lock_owner, '/', 2)::int = any($2)`, held.JobID, next.pids()) == 6
	})
	openGates()
	openHalf()
	w.ended(held, "COMPLETED")
	alone := w.doneBy(next)
	w.eventually("the others work alone", func() bool { return l.goesOn(w.t) && w.doneBy(next) >= alone+10 })
	return next
}

// stop tells a process to drain.
func (w *world) stop(p *stack.Process) *stack.Process {
	w.t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (f fleet) pids() (pids []int) {
	for _, p := range f.consumers {
		pids = append(pids, p.Pid())
	}
	return pids
}

func (w *world) doneBy(f fleet) int {
	w.t.Helper()
	return w.number(`select count(*) from job_chunk where status = 'DONE' and split_part(lock_owner, '/', 2)::int = any($1)`, f.pids())
}

// load submits five jobs a second, through each of its apis in turn.
type load struct {
	mu   sync.Mutex
	apis []stack.Client
	jobs []loadJob
	err  error
	stop func()
}

type loadJob struct {
	stack.Submission
	id, api string
}

func (w *world) startLoad(through ...fleet) *load {
	l := &load{}
	l.through(through...)
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ctx.Err() == nil && l.submit(n); n++ {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	l.stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(l.stop)
	return l
}

// through has jobs go through the apis of these fleets, and through no other once it has returned.
func (l *load) through(fleets ...fleet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.apis = nil
	for _, f := range fleets {
		l.apis = append(l.apis, stack.Client{URL: f.api.URL})
	}
}

func (l *load) submit(n int) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := loadJob{api: l.apis[n%len(l.apis)].URL, Submission: stack.Submission{
		OnFailure: "CONTINUE", IdempotencyKey: fmt.Sprintf("load-%d", n), Output: &stack.Output{Compression: []string{"NONE", "GZIP"}[n%2]},
		Items: append(items(fmt.Sprintf("FLAKY_1 %d", n), "ROWS_30 of all"), stack.Item{Key: fmt.Sprintf("ROWS_20 %d", n), EffectiveDates: days(3)})}}
	if n%5 == 0 {
		j.Items = append(j.Items, items(fmt.Sprintf("DIV_1 %d", n))...)
	}
	job, err := l.apis[n%len(l.apis)].Submit(context.Background(), j.Submission)
	if err != nil {
		l.err = fmt.Errorf("job %d: %w", n, err)
		return false
	}
	j.id = job.JobID
	l.jobs = append(l.jobs, j)
	return true
}

func (l *load) goesOn(t *testing.T) bool {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		t.Fatal(l.err)
	}
	return true
}

// check asks the api of the world for all jobs, and submits them to it again.
func (l *load) check(w *world) {
	w.t.Helper()
	l.goesOn(w.t)
	through := map[string]int{}
	for i, j := range l.jobs {
		through[j.api]++
		if again := w.submit(j.Submission); again.JobID != j.id || !again.Replayed {
			w.t.Errorf("job %s submitted again is %s, replayed %t", j.id, again.JobID, again.Replayed)
		}
		want := "COMPLETED"
		if i%5 == 0 {
			want = "FAILED"
		}
		if job := w.wait(stack.Job{JobID: j.id}); job.Status != want || job.Done != 5 {
			w.t.Errorf("got %+v", job)
		}
	}
	if len(through) != 3 {
		w.t.Errorf("jobs were taken by %d apis, want 3", len(through))
	}
}

// previousProgram is the version before this one.
func previousProgram(t *testing.T) string {
	t.Helper()
	program, err := buildPrevious()
	switch {
	case errors.Is(err, errNoHistory) && !strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "history"):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return program
}

var errNoHistory = errors.New("the version before this one is not in this clone; git fetch --unshallow --tags gets it")

// buildPrevious builds it from the history of this clone, as .ci/build does this one, so that the cache of the compiler serves both.
var buildPrevious = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("../.ci/previous")
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	revision := lines[len(lines)-1]
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	source, program := filepath.Join(dir, "previous"), filepath.Join(dir, "exportd-previous")
	do := func(dir, name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+source+".index", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := do("..", "git", "cat-file", "-e", revision+"^{commit}"); err != nil {
		return "", fmt.Errorf("%w: %w", errNoHistory, err)
	}
	for _, step := range []func() error{
		func() error { return do("..", "git", "read-tree", revision) },
		func() error { return do("..", "git", "checkout-index", "--all", "--prefix="+source+"/") },
		func() error { return do(source, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".") },
	} {
		if err := step(); err != nil {
			return "", err
		}
	}
	return program, nil
})
