package compose

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/e2e/stack"
)

const concurrency = 8 // of a consumer, by default

func TestContainersAreKilledAndNothingIsLost(t *testing.T) {
	s := up(t)
	if version := s.docker("exec", s.containers("api")[0], "/usr/local/bin/exportd", "version"); !strings.HasPrefix(version, "exportd composetest\n") {
		t.Errorf("the image says that it is %q", version)
	}
	s.eventually("two consumers are there", func() bool { return s.number(`select count(*) from worker`) == 2 })
	s.ended(s.submit("20010101", 40))
	s.check()

	t.Run("a consumer", func(t *testing.T) {
		s.t = t
		job, open := s.atWork("20010102", 40)
		victim := s.containers("consumer")[0]
		// Docker names a container's host by the first letters of its id, and a worker by its host.
		held := s.strings(`select chunk_key from job_chunk where status = 'RUNNING' and lock_owner like $1 || '%' order by chunk_key`, victim[:12])
		if len(held) != concurrency {
			t.Errorf("the victim holds %v", held)
		}
		s.docker("kill", victim)
		open()
		s.ended(job)
		lost := s.strings(`select chunk_key from chunk_attempt where outcome = 'LOST' and worker like $1 || '%' order by chunk_key`, victim[:12])
		if !slices.Equal(lost, held) {
			t.Errorf("it held %v; lost were %v", held, lost)
		}
	})

	others := s.containers("api")
	s.t = t
	s.compose("up", "--no-build", "-d") // again
	if now := s.containers("api"); !slices.Equal(now, others) {
		t.Errorf("a second up has replaced %v by %v", others, now)
	}

	t.Run("the broker", func(t *testing.T) {
		s.t = t
		job, open := s.atWork("20010103", 120)
		victim := s.containers("activemq")[0]
		s.docker("kill", victim)
		s.eventually("the api misses it", func() bool { return strings.Contains(s.notReady(), "broker") })
		open()
		s.eventually("what was at work is done", func() bool {
			return s.number(`select count(*) from job_chunk where status = 'DONE' and job_id = $1`, job.JobID) >= 2*concurrency
		})
		s.docker("start", victim)
		s.ended(job)
		if n := s.number(`select count(*) from job_chunk where attempts <> 1 and job_id = $1`, job.JobID); n > 0 {
			t.Errorf("%d chunks have spent more than an attempt", n)
		}
		s.eventually("the api has it again", func() bool { return s.notReady() == "" })
	})
	s.t = t
	s.check()

	t.Run("prometheus", func(t *testing.T) {
		s.t = t
		s.observed()
	})
	s.t = t
}

// submit posts a job of so many chunks, one for each day on from the given one.
func (s *system) submit(month string, n int) stack.Job {
	s.t.Helper()
	first, err := time.Parse("20060102", month)
	if err != nil {
		s.t.Fatal(err)
	}
	var days []string
	for i := range n / 4 {
		days = append(days, first.AddDate(0, 0, 3*i).Format("20060102")) // so that jobs of neighbouring days have no file in common
	}
	var items []stack.Item
	for _, key := range []string{"ABQ", "LAX", "MCO", "none/such"} {
		items = append(items, stack.Item{Key: key, EffectiveDates: days})
	}
	job, err := s.client.Submit(s.t.Context(), stack.Submission{Items: items})
	if err != nil {
		s.t.Fatal(err)
	}
	return job
}

// atWork submits a job and returns when every consumer has its hands full. None of it can end before open is called: the rows are locked.
func (s *system) atWork(month string, n int) (job stack.Job, open func()) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.world.Database)
	if err != nil {
		s.t.Fatal(err)
	}
	open = func() { conn.Close(context.Background()) }
	s.t.Cleanup(open)
	if _, err := conn.Exec(s.t.Context(), "begin; lock table flights"); err != nil {
		s.t.Fatal(err)
	}
	job = s.submit(month, n)
	s.eventually("both consumers are full", func() bool {
		return s.number(`select count(*) from job_chunk where status = 'RUNNING' and job_id = $1`, job.JobID) == 2*concurrency
	})
	return job, open
}

func (s *system) ended(job stack.Job) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	got, err := s.client.Wait(ctx, job.JobID, stack.Job.Ended)
	if err != nil {
		s.t.Fatal(err)
	}
	if got.Status != "COMPLETED" || got.Done != job.Total {
		s.t.Fatalf("got %+v", got)
	}
}

// check compares database, bucket and queues with each other, and every file with what the function gives.
func (s *system) check() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	s.world.Broker.URLs = []string{"stomp://" + s.address("activemq", 61613)} // another one after a restart
	breaches, err := s.world.Breaches(ctx, stack.Expect{Killed: true})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, b := range breaches {
		s.t.Error(b)
	}
}

// notReady is what the api says of its dependencies, or nothing when all answer.
func (s *system) notReady() string {
	resp, err := http.Get(s.client.URL + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return ""
	}
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

func (s *system) eventually(what string, ask func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	if err := stack.Poll(ctx, 50*time.Millisecond, func() (bool, error) { return ask(), nil }); err != nil {
		s.t.Fatalf("%s: not in time", what)
	}
}

func (s *system) number(sql string, args ...any) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *system) strings(sql string, args ...any) []string {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), sql, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}
