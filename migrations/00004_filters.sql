-- +goose Up

-- The list of a tenant's jobs in a state.
create index if not exists job_tenant_status_created on job ((tenant || ' ' || status), created_at, job_id);
-- The jobs to re-drive for an error. Few chunks are in it, and none that is settled DONE ever enters it.
create index if not exists job_chunk_error on job_chunk (job_id, error_code) where status in ('DLQ', 'CANCELLED') and error_code is not null;
