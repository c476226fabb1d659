package db

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// recordedColumns are those of the file f that recordedJoin finds for row w of job j, if there is one.
const recordedColumns = `f.object_key, f.row_count, f.byte_count, f.sha256, f.etag, f.claim_id::text, f.claim_started_at`

func recordedJoin(bucket, function, when string) string {
	return `left join lateral (
    select * from file_cache f
    where ` + when + ` and f.bucket = ` + bucket + ` and f.export_function = ` + function + `
      and f.object_key = w.object_key || case j.compression when '` + string(export.Gzip) + `' then '` + extra(export.Gzip) + `' when '` + string(export.Zstd) + `' then '` + extra(export.Zstd) + `' else '' end
    offset 0
) f on true`
}

// extra is what the compression adds to an object key.
func extra(c export.Compression) string {
	return strings.TrimPrefix(c.Extension(), export.None.Extension())
}

func (s *Store) objectKey(r export.Ref, c export.Compression) string {
	return export.ObjectKey(s.BasePath, r.Key, r.Date, c)
}

// recordedRow reads recordedColumns.
type recordedRow struct {
	key, sha256, etag, claimID *string
	rows, bytes                *int64
	started                    *time.Time
}

func (r *recordedRow) targets() []any {
	return []any{&r.key, &r.rows, &r.bytes, &r.sha256, &r.etag, &r.claimID, &r.started}
}

func (r *recordedRow) file() *export.File {
	if r.key == nil {
		return nil
	}
	return &export.File{ObjectKey: *r.key, Facts: export.Facts{Rows: *r.rows, Bytes: *r.bytes, SHA256: *r.sha256}, ETag: *r.etag, ClaimID: *r.claimID, ClaimStartedAt: *r.started}
}

// fileInto are the destinations of a file's columns.
func fileInto(f *export.File) []any {
	return []any{&f.ObjectKey, &f.Rows, &f.Bytes, &f.SHA256, &f.ETag, &f.ClaimID, &f.ClaimStartedAt}
}

// FileOf is what the claim recorded of its object, be it announced or settled; nil if nothing is known. The ETag is missing while it is only announced.
func (s *Store) FileOf(ctx context.Context, ref export.Ref, claimID, objectKey string) (*export.File, error) {
	var f export.File
	err := s.pool.QueryRow(ctx, `
		select s3_object_key, row_count, byte_count, sha256, coalesce(etag, ''), claim_id::text, started_at from job_chunk
		where job_id = $1 and chunk_key = $2 and claim_id = $3::uuid and sha256 is not null and not reused
		union all
		select object_key, row_count, byte_count, sha256, etag, claim_id::text, claim_started_at from file_cache
		where bucket = $4 and object_key = $5 and export_function = $6 and claim_id = $3::uuid
		limit 1`, ref.JobID, ref.ChunkKey(), claimID, s.Bucket, objectKey, s.Function).Scan(fileInto(&f)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// FileNeeded says whether the file that the (stale) claim made is needed all the same: the registry names it, or a claim for the same object is at work.
func (s *Store) FileNeeded(ctx context.Context, c *export.Claim, f export.File) (needed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = s.pool.QueryRow(ctx, `
		select exists (select from file_cache where bucket = $1 and object_key = $2 and export_function = $3 and etag = $4)
		    or exists (select from job_chunk c join job j using (job_id)
		               where c.status = 'RUNNING' and c.key = $5 and c.effective_date = $6 and j.compression = $7 and c.claim_id <> $8::uuid)`,
		s.Bucket, f.ObjectKey, s.Function, f.ETag, c.Key, c.Date.Time(), c.Job.Compression, c.ID).Scan(&needed)
	return needed, err
}
