-- +goose Up

-- Lists of jobs go by (created_at, job_id), those of a tenant or in a state too.
create index job_tenant_created on job (tenant, created_at, job_id);
create index job_status_created on job (status, created_at, job_id);
