package db_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/export"
)

// The model says what the tables must hold after every step of the property test. Its clock stands still but for the steps that make time pass,
// which move all times in the tables into the past instead.
type model struct {
	clock  time.Duration
	jobs   []*modelJob
	chunks []*modelChunk
	keys   map[string]*modelJob // idempotency keys
	cache  map[string]string    // object key -> claim
	ended  map[string]string    // claim that ended without success -> outcome
	notes  int                  // dead letters announced
}

type modelJob struct {
	ID        string
	onFailure export.OnFailure
	request   export.SubmitRequest
	Status    export.JobStatus
	Ending    string
	Outcome   string
	Run       int
	pinnedAt  time.Duration
	chunks    []*modelChunk
}

type modelChunk struct {
	Ref         export.Ref
	job         *modelJob
	Status      export.ChunkStatus
	Attempts    int
	Claim       string
	lease       time.Duration
	retryAt     time.Duration
	Upload      bool
	Announced   bool
	Debt        *modelDebt
	claimObject *export.Claim
}

type modelDebt struct {
	id     int64 // 0 until it was seen
	State  string
	Sends  int
	due    time.Duration
	owed   time.Duration // since when it is in line
	sentAt time.Duration
}

const (
	modelLease     = 60 * time.Second
	modelRetry     = 100 * time.Second
	modelRepublish = 250 * time.Second
	modelBacklog   = 5
	modelAttempts  = 3
)

func newModel() *model {
	return &model{keys: map[string]*modelJob{}, cache: map[string]string{}, ended: map[string]string{}}
}

func (c *modelChunk) expired(m *model) bool { return c.Status == export.Running && c.lease <= m.clock }

func (c *modelChunk) owe(m *model, state string, delay time.Duration) {
	c.Debt = &modelDebt{State: state, due: m.clock + delay, owed: m.clock}
}

// left says whether this is what the chunk's claim left on it.
func (c *modelChunk) left(o export.Overtaken) bool {
	return o.ClaimID == c.Claim && o.ObjectKey != "" && (o.UploadID != "") == c.Upload && (o.Facts != nil) == c.Announced
}

// drop what the claim wrote on the row.
func (c *modelChunk) drop() { c.Upload, c.Announced = false, false }

func (j *modelJob) ended() bool { return j.Status.Ended() }

func (j *modelJob) open() bool {
	return slices.ContainsFunc(j.chunks, func(c *modelChunk) bool { return c.Status.Open() })
}

// cancelWaiting cancels what has not started; no debt is left in the job.
func (j *modelJob) cancelWaiting() (n int) {
	for _, c := range j.chunks {
		if c.Status == export.Pending || c.Status == export.RetryWait {
			c.Status = export.ChunkCancelled
			n++
		}
		c.Debt = nil
	}
	return n
}

func (m *model) mayClaim(c *modelChunk) bool {
	switch {
	case c.job.Ending != "" || c.job.Outcome != "":
		return false
	case c.Status == export.Pending:
		return true
	case c.Status == export.RetryWait:
		return c.retryAt <= m.clock
	default:
		return c.expired(m) && c.Attempts < modelAttempts && c.Debt != nil
	}
}

func (m *model) refusal(c *modelChunk) export.Refusal {
	switch {
	case !c.Status.Open():
		return export.RefusedEnded
	case c.job.Ending != "":
		return export.RefusedEnding
	case c.Status == export.Running:
		return export.RefusedRunning
	default:
		return export.RefusedWaiting
	}
}

func (m *model) claimed(c *modelChunk, id string) {
	if c.Status == export.Running {
		m.ended[c.Claim] = "LOST"
	}
	c.Status, c.Claim, c.lease, c.Debt = export.Running, id, m.clock+modelLease, nil
	c.Attempts++
	c.drop()
	if c.job.Status == export.Submitted {
		c.job.Status = export.InProgress
	}
}

// release is Retry, or GiveBack with refund.
func (m *model) release(c *modelChunk, refund bool, delay time.Duration) {
	outcome := "RETRY"
	c.Status, c.retryAt = export.RetryWait, m.clock+delay
	if refund {
		outcome = "GIVEN_BACK"
		c.Status = export.Pending
		c.Attempts--
	}
	if c.job.Ending != "" {
		outcome = "CANCELLED"
		c.Status, c.Debt = export.ChunkCancelled, nil
	} else {
		c.owe(m, "WAIT", delay)
	}
	c.drop()
	m.ended[c.Claim] = outcome
}

func (m *model) deadLettered(c *modelChunk) {
	c.drop()
	c.Debt = nil
	if c.job.Ending != "" {
		c.Status, m.ended[c.Claim] = export.ChunkCancelled, "CANCELLED"
		return
	}
	c.Status, m.ended[c.Claim] = export.DeadLetter, "DLQ"
	m.notes++
	if c.job.onFailure == export.FailFast {
		c.job.Ending = "FAIL"
		c.job.cancelWaiting()
	}
}

// promote brings what is due into line.
func (m *model) promote() {
	for _, c := range m.chunks {
		if d := c.Debt; d != nil && d.State != "READY" && d.due <= m.clock {
			if d.State == "WAIT" {
				d.owed = d.due
			}
			d.State = "READY"
		}
	}
}

func (m *model) count(match func(*modelChunk) bool) (n int) {
	for _, c := range m.chunks {
		if match(c) {
			n++
		}
	}
	return n
}

func (m *model) find(r export.Ref) *modelChunk {
	for _, c := range m.chunks {
		if c.Ref == r {
			return c
		}
	}
	return nil
}

// text is the state as lines, to be compared with textOfTables.
func (m *model) text() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, j := range m.jobs {
		add("job %s %s run %d ending %q outcome %q", j.ID, j.Status, j.Run, j.Ending, j.Outcome)
	}
	for _, c := range m.chunks {
		add("chunk %s %s attempts %d claim %s live %t due %t upload %t announced %t", c.Ref, c.Status, c.Attempts, c.Claim,
			c.Status == export.Running && !c.expired(m), c.Status == export.RetryWait && c.retryAt <= m.clock, c.Upload, c.Announced || c.Status == export.Done)
		if d := c.Debt; d != nil {
			add("debt %s %s sends %d due %t", c.Ref, d.State, d.Sends, d.due <= m.clock)
		}
	}
	for claim, outcome := range m.ended {
		add("attempt %s %s", claim, outcome)
	}
	for key, claim := range m.cache {
		add("file %s %s", key, claim)
	}
	add("notices %d", m.notes)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

const tablesAsText = `
select format('job %s %s run %s ending "%s" outcome "%s"', job_id, status, run, ending, outcome) from job
union all
select format('chunk %s/%s %s attempts %s claim %s live %s due %s upload %s announced %s', job_id, chunk_key, status, attempts, claim_id,
	(status = 'RUNNING' and lease_until >= now())::text, (status = 'RETRY_WAIT' and next_retry_at <= now())::text, (upload_id is not null)::text, (sha256 is not null)::text) from job_chunk
union all
select format('debt %s/%s %s sends %s due %s', job_id, chunk_key, state, sends, (due_at <= now())::text) from dispatch
union all
select format('attempt %s %s', claim_id, outcome) from chunk_attempt
union all
select format('file %s %s', object_key, claim_id) from file_cache
union all
select format('notices %s', count(*)) from outbox`

// check compares the tables with the model, and notes the identities of new debts: another debt has another, the same one keeps it.
func (m *model) check(t fataler, pool *pgxpool.Pool) {
	t.Helper()
	ctx := context.Background()
	rows, err := pool.Query(ctx, tablesAsText)
	if err != nil {
		t.Fatalf("read the tables: %v", err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("read the tables: %v", err)
	}
	slices.Sort(lines)
	if diff := cmp.Diff(strings.Split(m.text(), "\n"), lines); diff != "" {
		t.Fatalf("the tables are not as they should be (-want +got):\n%s", diff)
	}
	ids := map[string]int64{}
	rows, err = pool.Query(ctx, `select job_id || '/' || chunk_key, debt_id from dispatch`)
	if err != nil {
		t.Fatalf("read the debts: %v", err)
	}
	var ref string
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&ref, &id}, func() error { ids[ref] = id; return nil }); err != nil {
		t.Fatalf("read the debts: %v", err)
	}
	seen := map[int64]bool{}
	for _, c := range m.chunks {
		if d := c.Debt; d != nil && d.id == 0 {
			d.id = ids[c.Ref.String()]
		} else if d != nil && d.id != ids[c.Ref.String()] {
			t.Fatalf("the debt of %s was %d and is %d", c.Ref, d.id, ids[c.Ref.String()])
		}
		if d := c.Debt; d != nil && seen[d.id] {
			t.Fatalf("debt %d belongs to two chunks", d.id)
		} else if d != nil {
			seen[d.id] = true
		}
	}
	checkInvariants(t, pool)
}
