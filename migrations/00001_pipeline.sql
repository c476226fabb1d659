-- +goose Up

-- One sequence for all days, never reset.
create sequence job_number as bigint;

create table job (
    job_id          text collate "C" primary key,
    tenant          text not null,
    status          text not null default 'SUBMITTED'
                    check (status in ('SUBMITTED', 'IN_PROGRESS', 'CANCELLING', 'COMPLETED', 'FAILED', 'CANCELLED')),
    run             integer not null default 1 check (run >= 1),
    ending          text check (ending in ('CANCEL', 'FAIL')),
    outcome         text check (outcome in ('COMPLETED', 'FAILED', 'CANCELLED')),
    pinned_at       timestamptz,
    request_hash    bytea not null,
    idempotency_key text,
    request_id      text not null default '',
    traceparent     text not null default '',
    priority        smallint not null check (priority between 0 and 9),
    on_failure      text not null check (on_failure in ('FAIL_FAST', 'CONTINUE')),
    reuse           boolean not null,
    compression     text not null check (compression in ('NONE', 'GZIP', 'ZSTD')),
    callback_url    text,
    total           integer not null check (total > 0),
    -- Stored when the job ends; counted from the chunks before.
    done            integer,
    failed          integer,
    cancelled       integer,
    files_reused    integer,
    row_count       bigint,
    byte_count      bigint,
    error_message   text,
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    started_at      timestamptz,
    completed_at    timestamptz,
    check ((completed_at is not null) = (status in ('COMPLETED', 'FAILED', 'CANCELLED'))),
    check ((outcome is not null) = (pinned_at is not null)),
    check (completed_at is null or (status = outcome and done + failed + cancelled = total))
);
create unique index job_idempotency on job (tenant, idempotency_key) where idempotency_key is not null;
create index job_created on job (created_at, job_id);
create index job_open on job (job_id) where completed_at is null;
create index job_ended on job (completed_at) where completed_at is not null;

-- No foreign key to job: both are written in one transaction and removed together, and the check would cost more than the insert.
-- No index on lease_until: with one, no renewal would be a HOT update.
create table job_chunk (
    job_id          text collate "C" not null,
    chunk_key       text collate "C" not null,
    key             text not null,
    effective_date  date not null,
    status          text not null default 'PENDING'
                    check (status in ('PENDING', 'RUNNING', 'RETRY_WAIT', 'DONE', 'DLQ', 'CANCELLED')),
    attempts        integer not null default 0 check (attempts >= 0),
    next_retry_at   timestamptz,
    -- Of the current claim, or of the last one.
    claim_id        uuid,
    lock_owner      text,
    started_at      timestamptz,
    lease_until     timestamptz,
    upload_id       text,
    completed_at    timestamptz,
    -- From the announcement on in RUNNING, final in DONE, null otherwise.
    s3_object_key   text,
    row_count       bigint check (row_count >= 0),
    byte_count      bigint check (byte_count >= 0),
    sha256          text,
    etag            text,
    reused          boolean not null default false,
    error_code      text,
    error_message   text,
    primary key (job_id, chunk_key),
    check ((completed_at is not null) = (status in ('DONE', 'DLQ', 'CANCELLED'))),
    check ((next_retry_at is not null) = (status = 'RETRY_WAIT')),
    check ((etag is not null) = (status = 'DONE')),
    check (status <> 'DONE' or (s3_object_key is not null and row_count is not null and byte_count is not null and sha256 is not null)),
    check (status in ('RUNNING', 'DONE') or (s3_object_key is null and sha256 is null and upload_id is null)),
    check (status <> 'RUNNING' or claim_id is not null)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
create index job_chunk_open on job_chunk (job_id) where status in ('PENDING', 'RUNNING', 'RETRY_WAIT');
create index job_chunk_running on job_chunk (job_id, chunk_key) where status = 'RUNNING';

-- The debts: a chunk that should run and is not running has exactly one row here, from the transaction that owes the run to the claim
-- that takes it.
--   READY    in line for the relay, by rank: the virtual time of a fair queue over jobs (each job's rows are 2520/(priority+1) apart)
--   SENDING  leased by a relay (or by a consumer that takes debts from the database) until due_at
--   SENT     confirmed by the broker; due again at due_at, in case nobody claims it
--   WAIT     due at due_at: backoff
create table dispatch (
    debt_id   bigint generated always as identity,
    job_id    text collate "C" not null,
    chunk_key text collate "C" not null,
    state     text not null check (state in ('READY', 'SENDING', 'SENT', 'WAIT')),
    rank      bigint not null,
    due_at    timestamptz not null default now(),
    owed_at   timestamptz not null default now(), -- since when it is in line, however often it was leased
    sent_at   timestamptz,
    sends     integer not null default 0,
    error     text,
    primary key (job_id, chunk_key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index dispatch_ready on dispatch (rank, debt_id) where state = 'READY';
create index dispatch_due on dispatch (due_at) where state <> 'READY';

-- Messages owed to the outside, deleted when their receiver confirmed them. destination: 'parking', or the URL of a webhook.
create table outbox (
    id          bigint generated always as identity primary key,
    destination text not null,
    headers     jsonb not null,
    body        bytea not null,
    due_at      timestamptz not null default now(),
    tries       integer not null default 0,
    error       text,
    created_at  timestamptz not null default now()
);
create index outbox_due on outbox (due_at);

-- Attempts that ended without success; the successful one is on the chunk's row.
create table chunk_attempt (
    claim_id      uuid primary key,
    job_id        text collate "C" not null,
    chunk_key     text collate "C" not null,
    run           integer not null,
    attempt       integer not null,
    worker        text,
    started_at    timestamptz,
    ended_at      timestamptz not null default now(),
    outcome       text not null check (outcome in ('RETRY', 'GIVEN_BACK', 'LOST', 'DLQ', 'CANCELLED')),
    error_code    text,
    error_message text
);
create index chunk_attempt_chunk on chunk_attempt (job_id, chunk_key);

-- The newest file of each object key: what reuse may use, and what the next conditional write must find.
create table file_cache (
    bucket            text not null,
    object_key        text collate "C" not null,
    export_function   text not null,
    row_count         bigint not null,
    byte_count        bigint not null,
    sha256            text not null,
    etag              text not null,
    claim_id          uuid not null,
    claim_started_at  timestamptz not null,
    job_id            text not null,
    created_at        timestamptz not null default now(),
    last_generated_at timestamptz not null default now(),
    primary key (bucket, object_key, export_function)
);

create table worker (
    worker_id    text primary key,
    host         text not null,
    version      text not null,
    concurrency  integer not null,
    in_flight    integer not null default 0,
    started_at   timestamptz not null default now(),
    heartbeat_at timestamptz not null default now()
);
