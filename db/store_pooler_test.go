package db_test

import (
	"fmt"
	"net/url"
	"testing"

	"exportd/db"
	"exportd/export"
)

// The truth behind a pooler that hands out two sessions, one transaction at a time: modes that keep nothing in
// a session work.
func TestTheStoreWorksThroughATransactionModePooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "cache_describe", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			direct := setup(t, func(c *db.Config) { c.Backlog = 1000 })
			u, err := url.Parse(pooler(t, direct.URL))
			must(t, err)
			u.RawQuery += "&default_query_exec_mode=" + mode
			cfg := direct.Config
			cfg.URL = u.String()
			s, err := db.Open(t.Context(), cfg)
			must(t, err)
			t.Cleanup(s.Close)
			wholeLife(t, s)

			// Eight connections that change their sessions all the time, while a column is added.
			r := submission(200, func(r *export.SubmitRequest) { r.Items[0].Key = "many" })
			_, refs := submit(t, s, r)
			steps := make([]func() error, len(refs))
			for i, ref := range refs {
				steps[i] = func() error { return whole(t.Context(), s, ref) }
			}
			pool := sessions(t, direct)
			for i := range 3 {
				steps = append(steps, func() error {
					_, err := pool.Exec(t.Context(), fmt.Sprintf(`alter table job_chunk add column later%d int`, i))
					return err
				})
			}
			together(t, steps...)
			var n int
			must(t, pool.QueryRow(t.Context(), `select count(*) from job_chunk where key = 'many' and status = 'DONE'`).Scan(&n))
			if n != len(refs) {
				t.Errorf("%d of %d chunks are done", n, len(refs))
			}
		})
	}
}
