package db_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// A statement has at most 65 535 parameters. From 1000 chunks on rows are copied: nobody is to see a difference.
func TestAJobIsStoredWholeHoweverManyChunksItHas(t *testing.T) {
	t.Parallel()
	s := setup(t)
	conn := sessions(t, s)
	for _, n := range []int{1, 999, 1000, 73_200} {
		r := submission(n, func(r *export.SubmitRequest) { r.IdempotencyKey = fmt.Sprint(n) })
		id, _ := submit(t, s, r)
		var chunks, debts, like, ranks, step int
		must(t, conn.QueryRow(t.Context(), `select (select count(*) from job_chunk where job_id = $1), (select count(*) from dispatch where job_id = $1),
			(select count(*) from job_chunk c join dispatch d using (job_id, chunk_key) where job_id = $1 and c.status = 'PENDING' and c.attempts = 0 and d.state = 'READY' and d.sends = 0
				and c.chunk_key = 'key=' || c.key || ':date=' || to_char(c.effective_date, 'YYYYMMDD')),
			(select count(distinct rank) from dispatch where job_id = $1), (select (max(rank) - min(rank)) / greatest(count(*) - 1, 1) from dispatch where job_id = $1)`, id).
			Scan(&chunks, &debts, &like, &ranks, &step))
		if j := job(t, s, id); chunks != n || debts != n || like != n || ranks != n || j.Total != n || j.Pending != n {
			t.Errorf("%d chunks, %d debts, %d as they should be, %d ranks; %+v", chunks, debts, like, ranks, j)
		}
		if want := 2520 / (r.Priority + 1); n > 1 && step != want {
			t.Errorf("debts of %d chunks are %d apart, want %d", n, step, want)
		}
		if again, replayed, err := s.Submit(t.Context(), r); err != nil || !replayed || again.ID != id {
			t.Errorf("the same again: %+v, replayed %t, %v", again, replayed, err)
		}
	}
}

func TestAJobWhoseChunksCannotBeStoredLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 2000} {
		s := setup(t)
		conn := sessions(t, s)
		_, err := conn.Exec(t.Context(), `alter table dispatch add check (chunk_key not like '%08')`)
		must(t, err)
		if _, _, err := s.Submit(t.Context(), submission(n)); err == nil {
			t.Error("no error")
		}
		rows, err := conn.Query(t.Context(), `select 'job' from job union all select 'job_chunk' from job_chunk union all select 'dispatch' from dispatch`)
		must(t, err)
		if left, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left[:min(len(left), 3)], err)
		}
	}
}
