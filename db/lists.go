package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// where collects conditions that name only what is asked for, so that each combination has a plan of its own.
type where struct {
	conditions []string
	args       []any
}

// and adds a condition with one %d, the number of its argument.
func (w *where) and(condition string, arg any) {
	w.args = append(w.args, arg)
	w.conditions = append(w.conditions, fmt.Sprintf(condition, len(w.args)))
}

func (w *where) String() string {
	return strings.Join(append([]string{"true"}, w.conditions...), " and ")
}

func jobsWhere(f export.JobFilter) *where {
	w := &where{}
	if f.Tenant != "" {
		w.and("j.tenant = $%d", f.Tenant)
	}
	if f.Status != "" {
		w.and("j.status = $%d", f.Status)
	}
	between(w, f)
	return w
}

func between(w *where, f export.JobFilter) {
	if !f.From.IsZero() {
		w.and("j.created_at >= $%d", f.From)
	}
	if !f.To.IsZero() {
		w.and("j.created_at < $%d", f.To)
	}
}

// jobsPage are the conditions of a page of jobs, what is the same in all of them, and the order. That begins with what is the same, which is compared with an array
// of one, so that only the index that begins so serves: a planner who reads "tenant = $1" may think the index of all jobs as good, and walk through everybody's.
func jobsPage(f export.JobFilter, after *export.Place) (w *where, same, order string) {
	w, same, order = &where{}, "null", "order by j.created_at desc, j.job_id desc"
	value := ""
	switch {
	case f.Tenant != "" && f.Status != "":
		same, value = "j.tenant || ' ' || j.status", f.Tenant+" "+string(f.Status)
	case f.Tenant != "":
		same, value = "j.tenant", f.Tenant
	case f.Status != "":
		same, value = "j.status", string(f.Status)
	}
	if value != "" {
		w.and("("+same+") = any($%d::text[])", []string{value})
		order = "order by j.same desc, j.created_at desc, j.job_id desc"
	}
	between(w, f)
	if after != nil {
		w.args = append(w.args, after.CreatedAt, after.JobID)
		w.conditions = append(w.conditions, fmt.Sprintf("(j.created_at, j.job_id) < ($%d, $%d)", len(w.args)-1, len(w.args)))
	}
	return w, same, order
}

// mostLooks is how many jobs one page of a list looks through for a key. Each look is one probe of the chunks' primary key, so that no index on the
// key of all chunks is needed, which every claim and settlement would pay for.
const mostLooks = 250

// Jobs lists jobs from the newest on, behind after if that is not nil, and says where the list goes on; nil at its end. With a key in the filter a page
// may be short, even empty, and yet not the last.
func (s *Store) Jobs(ctx context.Context, f export.JobFilter, after *export.Place, limit int) (jobs []export.Job, next *export.Place, err error) {
	sql, args := jobsSQL(f, after, limit, s.mostLooks)
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var hit, farthest bool
			job, err := scanJob(rows, &hit, &farthest)
			if err != nil {
				return err
			}
			if hit && len(jobs) == limit { // there are more: on behind the last one of the page
				last := jobs[limit-1]
				next = &export.Place{CreatedAt: last.CreatedAt, JobID: last.ID}
				break
			}
			if hit {
				jobs = append(jobs, job)
			}
			if farthest {
				next = &export.Place{CreatedAt: job.CreatedAt, JobID: job.ID}
			}
		}
		rows.Close()
		return rows.Err()
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, away(fmt.Errorf("list the jobs: %w", err))
	}
	return jobs, next, nil
}

// byIndex has the next statement of a batch, which is one transaction, read in the order of an index. On new tables, where all of one costs next to nothing, reading
// and sorting all looks cheaper; the plan is kept.
const byIndex = `select set_config(name, 'off', true) from unnest(array['enable_sort', 'enable_incremental_sort', 'enable_bitmapscan']) name`

// jobsSQL reads one job more than the page has.
func jobsSQL(f export.JobFilter, after *export.Place, limit, mostLooks int) (sql string, args []any) {
	w, same, order := jobsPage(f, after)
	look := fmt.Sprintf(`select * from (select j.*, %s as same, true as hit, false as farthest from job j where %s) j %s limit %d`, same, w, order, limit+1)
	args = w.args
	if f.Key != "" {
		// The farthest job looked at comes along, hit or not: the place where a short page goes on must be of the same snapshot.
		args = append(args, f.Key)
		look = fmt.Sprintf(`select * from (
				select j.*, %s as hit, row_number() over (%[5]s) = %[2]d as farthest from (select * from (select j.*, %[3]s as same from job j where %[4]s) j %[5]s limit %[2]d) j
			) j where hit or farthest %[5]s limit %[6]d`, hasChunk(len(args)), mostLooks, same, w, order, limit+1)
	}
	return `select ` + jobColumns + `, j.hit, j.farthest from (` + look + `) j cross join lateral (` + countsSQL + `) c ` + order, args
}

// hasChunk asks whether job j has a chunk of the key in argument n. The bounds make it a probe of the primary key (';' follows ':' in "C"), and the offset
// keeps the planner from making a join or a hash of it, which read all chunks.
func hasChunk(n int) string {
	return fmt.Sprintf(`exists (select from job_chunk k where k.job_id = j.job_id and k.chunk_key > 'key=' || $%[1]d || ':date=' and k.chunk_key < 'key=' || $%[1]d || ':date=;'
		and k.key = $%[1]d offset 0)`, n)
}

// jobColumns are what scanJob reads of job j and its counts c.
const jobColumns = `j.job_id, j.tenant, j.status, j.run, j.total, coalesce(c.pending, 0), coalesce(c.running, 0), coalesce(c.retrying, 0),
	coalesce(j.done, c.done), coalesce(j.failed, c.failed), coalesce(j.cancelled, c.cancelled), coalesce(j.files_reused, c.reused),
	coalesce(j.row_count, c.row_count), coalesce(j.byte_count, c.byte_count), coalesce(j.error_message, ''),
	j.created_at, j.updated_at, j.started_at, j.completed_at`

// scanJob reads jobColumns, and more that follow.
func scanJob(row pgx.CollectableRow, more ...any) (job export.Job, err error) {
	var reused int
	err = row.Scan(append([]any{&job.ID, &job.Tenant, &job.Status, &job.Run, &job.Total, &job.Pending, &job.Running, &job.Retrying, &job.Done, &job.Failed, &job.Cancelled,
		&reused, &job.RowCount, &job.ByteCount, &job.ErrorMessage, &job.CreatedAt, &job.UpdatedAt, &job.StartedAt, &job.CompletedAt}, more...)...)
	job.FilesReused, job.FilesGenerated = reused, job.Done-reused
	return job, err
}

// chunkColumns are what scanChunk reads of chunk c. A file is superseded once the registry names one of a claim that began after this chunk was done, or
// another file than the chunk does. $1 is the bucket, $2 the function.
const chunkColumns = `c.job_id, c.key, c.effective_date, c.status, c.attempts, c.next_retry_at, c.started_at, c.completed_at,
	case when c.status = 'DONE' then c.s3_object_key else '' end, case when c.status = 'DONE' then c.row_count else 0 end,
	case when c.status = 'DONE' then c.byte_count else 0 end, case when c.status = 'DONE' then c.sha256 else '' end, c.reused,
	coalesce(c.status = 'DONE' and (select f.claim_started_at > c.completed_at or f.etag <> c.etag from file_cache f
		where f.bucket = $1 and f.export_function = $2 and f.object_key = c.s3_object_key), false),
	coalesce(c.error_code, ''), coalesce(c.error_message, '')`

func scanChunk(row pgx.CollectableRow) (v export.ChunkView, err error) {
	var date time.Time
	err = row.Scan(&v.JobID, &v.Key, &date, &v.Status, &v.Attempts, &v.NextRetryAt, &v.StartedAt, &v.CompletedAt,
		&v.ObjectKey, &v.Rows, &v.Bytes, &v.SHA256, &v.Reused, &v.Superseded, &v.ErrorCode, &v.Error)
	v.Date = export.DateOf(date)
	return v, err
}

// Chunks lists the chunks of a job in the order of their chunk keys, behind the key after, and says whether there are more.
func (s *Store) Chunks(ctx context.Context, tenant, jobID string, f export.ChunkFilter, after string, limit int) (chunks []export.ChunkView, more bool, err error) {
	if err := s.visible(ctx, tenant, jobID); err != nil {
		return nil, false, err
	}
	w := &where{args: []any{s.Bucket, s.Function}}
	w.and("c.job_id = $%d", jobID)
	w.and("c.chunk_key > $%d", after)
	if f.Status != "" {
		w.and("c.status = $%d", f.Status)
	}
	if f.Key != "" {
		w.and("c.key = $%d", f.Key)
		w.and("c.chunk_key > 'key=' || $%d || ':date='", f.Key)
		w.and("c.chunk_key < 'key=' || $%d || ':date=;'", f.Key)
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`select %s from job_chunk c where %s order by c.chunk_key limit %d`, chunkColumns, w, limit+1), w.args...)
	if err == nil {
		chunks, err = pgx.CollectRows(rows, scanChunk)
	}
	if err != nil {
		return nil, false, away(fmt.Errorf("list the chunks: %w", err))
	}
	return chunks[:min(len(chunks), limit)], len(chunks) > limit, nil
}

// Files lists the files of a job in the order of their chunk keys.
func (s *Store) Files(ctx context.Context, tenant, jobID string, limit int) ([]export.ChunkFile, error) {
	if err := s.visible(ctx, tenant, jobID); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`select key, effective_date, s3_object_key, row_count, byte_count, sha256, reused from job_chunk
		where job_id = $1 and status = 'DONE' order by chunk_key limit %d`, limit), jobID)
	if err != nil {
		return nil, away(fmt.Errorf("list the files: %w", err))
	}
	var files []export.ChunkFile
	var f export.ChunkFile
	var date time.Time
	_, err = pgx.ForEachRow(rows, []any{&f.Key, &date, &f.ObjectKey, &f.Rows, &f.Bytes, &f.SHA256, &f.Reused}, func() error {
		f.Date = export.DateOf(date)
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, away(fmt.Errorf("list the files: %w", err))
	}
	return files, nil
}

// Chunk is one chunk with its attempts, oldest first. That of its current or successful claim is made from the chunk's row, all others were noted when
// they ended. Attempts from before a re-drive are among them.
func (s *Store) Chunk(ctx context.Context, tenant, jobID, chunkKey string) (v export.ChunkView, attempts []export.Attempt, err error) {
	if err := s.visible(ctx, tenant, jobID); err != nil {
		return v, nil, err
	}
	var b pgx.Batch
	b.Queue(`select `+chunkColumns+` from job_chunk c where job_id = $3 and chunk_key = $4`, s.Bucket, s.Function, jobID, chunkKey).Query(func(rows pgx.Rows) (err error) {
		v, err = pgx.CollectExactlyOneRow(rows, scanChunk)
		return err
	})
	b.Queue(`
		select attempt, coalesce(worker, ''), started_at, ended_at, outcome, coalesce(error_code, ''), coalesce(error_message, '') from chunk_attempt
		where job_id = $1 and chunk_key = $2
		union all
		select attempts, coalesce(lock_owner, ''), started_at, completed_at, status, '', '' from job_chunk
		where job_id = $1 and chunk_key = $2 and status in ('RUNNING', 'DONE')
		order by 3, 1`, jobID, chunkKey).Query(func(rows pgx.Rows) (err error) {
		attempts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a export.Attempt, err error) {
			err = row.Scan(&a.Number, &a.Worker, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.ErrorCode, &a.Error)
			return a, err
		})
		return err
	})
	err = s.pool.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return v, nil, export.ErrNotFound
	}
	if err != nil {
		return v, nil, away(fmt.Errorf("read the chunk: %w", err))
	}
	return v, attempts, nil
}

// visible says whether the tenant may see the job; export.ErrNotFound if not.
func (s *Store) visible(ctx context.Context, tenant, jobID string) error {
	var found bool
	err := s.pool.QueryRow(ctx, `select exists (select from job where job_id = $1 and ($2 = '' or tenant = $2))`, jobID, tenant).Scan(&found)
	if err != nil {
		return away(fmt.Errorf("find the job: %w", err))
	}
	if !found {
		return export.ErrNotFound
	}
	return nil
}
