-- +goose Up

-- Dead letters of all jobs, newest first. Few chunks are in it, and none that is settled DONE ever enters it.
create index if not exists job_chunk_dead on job_chunk (completed_at, job_id, chunk_key) where status = 'DLQ';
