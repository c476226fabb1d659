package dbtest

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func TestEachTestHasAnEmptyDatabaseThatIsDroppedThoughItIsInUse(t *testing.T) {
	t.Parallel()
	var first string
	t.Run("inner", func(t *testing.T) {
		first = URL(t)
		if _, err := connect(t, first).Exec(t.Context(), "CREATE TABLE mine()"); err != nil {
			t.Fatal(err)
		}
		left, err := pgx.Connect(context.Background(), first)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { left.Close(context.Background()) })
	})
	if _, err := pgx.Connect(t.Context(), first); err == nil {
		t.Error("the database is still there")
	}
	if _, err := connect(t, URL(t)).Exec(t.Context(), "CREATE TABLE mine()"); err != nil {
		t.Errorf("not empty: %v", err)
	}
}

func TestATemplateIsPreparedOnceAndItsCopiesAreIndependent(t *testing.T) {
	t.Parallel()
	var prepared atomic.Int32
	prepare := func(url string) error {
		prepared.Add(1)
		return onServer(url, "CREATE TABLE numbers AS SELECT 1 AS n")
	}
	t.Run("copies", func(t *testing.T) {
		for range 6 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				conn := connect(t, Template(t, "numbers", prepare))
				var sum int
				if err := conn.QueryRow(t.Context(), "WITH more AS (INSERT INTO numbers VALUES (2) RETURNING n) SELECT sum(n) FROM numbers").Scan(&sum); err != nil {
					t.Fatal(err)
				}
				if sum != 1 {
					t.Errorf("a copy began with the sum %d", sum)
				}
			})
		}
	})
	if prepared.Load() != 1 {
		t.Errorf("prepared %d times", prepared.Load())
	}
}

func TestAFailedPreparationIsReportedToEveryTest(t *testing.T) {
	admin := shared.find(t)
	broken := errors.New("broken migration")
	for range 2 {
		if _, err := shared.template(admin, "broken", func(string) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAServerOfItsOwnCanBeKilledAndRestarted(t *testing.T) {
	t.Parallel()
	s := Server(t)
	if s.URL("postgres") == shared.find(t) {
		t.Fatal("that is the shared server")
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	connect(t, s.URL("postgres"))
}
