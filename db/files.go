package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// CachedFile is the newest file recorded for the object key, nil if there is none.
func (s *Store) CachedFile(ctx context.Context, objectKey string) (*export.File, error) {
	return s.cached.do(ctx, objectKey)
}

const cachedSQL = `
select w.n, f.*
from unnest((select $1::text[])) with ordinality as w(object_key, n)
cross join lateral (
    select object_key, row_count, byte_count, sha256, etag, claim_id::text, claim_started_at from file_cache f
    where f.bucket = $2 and f.object_key = w.object_key and f.export_function = $3 offset 0
) f`

func (s *Store) cachedAll(ctx context.Context, objectKeys []string) ([]*export.File, error) {
	files := make([]*export.File, len(objectKeys))
	rows, err := s.pool.Query(ctx, cachedSQL, objectKeys, s.Bucket, s.Function)
	if err != nil {
		return nil, err
	}
	var n int
	var f export.File
	_, err = pgx.ForEachRow(rows, append([]any{&n}, fileInto(&f)...), func() error {
		found := f
		files[n-1] = &found
		return nil
	})
	return files, err
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
