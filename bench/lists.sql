-- A history of jobs, one a minute up to now, in an empty database. Settings: fill.jobs, of which the newest fill.open have not ended; of those that have,
-- every fill.failed-th is FAILED and every fill.cancelled-th CANCELLED; every fill.few-th is of the tenant "few".

-- What was emptied in the same transaction is written without a log, if wal_level is minimal.
truncate job, job_chunk, dispatch, chunk_attempt, file_cache;

-- n counts jobs from the oldest, age from the newest, 0.
create temp table made as
select n, age, created_at, 'J' || to_char(created_at at time zone 'UTC', 'YYYYMMDD') || '_' || lpad(n::text, 6, '0') as job_id,
       case when n % few = 3 then 'few' else 't' || n % 4 end as tenant, -- of t3 nothing has ever failed
       case when n <= 3 then 10000 else 40 end as total,
       case when n = 1 then 'COMPLETED' when n = 2 then 'FAILED' when n = 3 then 'IN_PROGRESS'
            when age < open then case when age < 210 and age % 21 = 0 then 'CANCELLING' when age % 21 <= 10 then 'SUBMITTED' else 'IN_PROGRESS' end
            when n % failed = 1 and n % 4 <> 3 then 'FAILED'
            when n % cancelled = 2 then 'CANCELLED'
            else 'COMPLETED' end as status,
       age < 210 or n = 3 as busy -- has a chunk at work
from (select current_setting('fill.jobs')::int as jobs, current_setting('fill.open')::int as open, current_setting('fill.failed')::int as failed,
             current_setting('fill.cancelled')::int as cancelled, current_setting('fill.few')::int as few) s
cross join lateral generate_series(1, jobs) n
cross join lateral (select jobs - n as age, now() - make_interval(mins => jobs - n) as created_at) a;
create unique index on made (n);
analyze made;

select setval('job_number', (select max(n) from made));

-- The jobs of a group ran at the same time, so their chunks lie mixed.
insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, next_retry_at, claim_id, lock_owner, started_at, lease_until, completed_at,
                       s3_object_key, row_count, byte_count, sha256, etag, reused, error_code, error_message)
select job_id, 'key=' || key || ':date=' || yyyymmdd, key, day, status,
       case when status = 'PENDING' or not ran then 0 when status = 'DLQ' then 5 else 1 + (n % 20 = 0)::int end,
       case when status = 'RETRY_WAIT' then now() + interval '1 day' end,
       case when ran then gen_random_uuid() end,
       case when ran then 'host-' || c % 16 || '/4711/w' || c % 16 end,
       case when ran then created_at + interval '1 s' end,
       case when status = 'RUNNING' then now() + interval '1 day' end,
       case when status in ('DONE', 'DLQ', 'CANCELLED') then created_at + interval '30 s' end,
       case when status = 'DONE' then format('exports/%s/%s/%s/%s_%s.csv', left(yyyymmdd, 4), substr(yyyymmdd, 5, 2), right(yyyymmdd, 2), key, yyyymmdd) end,
       case when status = 'DONE' then 10000 end, case when status = 'DONE' then 1140000 + c end,
       case when status = 'DONE' then sum || sum end, case when status = 'DONE' then '"' || sum || '"' end,
       status = 'DONE' and n % 10 = 7,
       case when status in ('DLQ', 'RETRY_WAIT') then case when n % 7 = 0 then 'S3_ACCESS_DENIED' else 'SQL_22012' end end,
       case when status in ('DLQ', 'RETRY_WAIT') then 'division by zero (in the function export_rows, called with an unheard-of key)' end
from (
    select *, status in ('RUNNING', 'RETRY_WAIT', 'DONE', 'DLQ') as ran, to_char(day, 'YYYYMMDD') as yyyymmdd, md5(key || c) as sum from (
        select m.n, m.job_id, m.created_at, c,
               case when c < 4 then 'EVERY' when n = 4 and c < 8 then 'RARE' else 'K' || (n * 7 + c / 4) % 1000 end as key,
               date '2020-01-01' + c % 4 + case when m.total > 40 then (c / 4000) * 4 else n / 100 % 400 * 4 end as day,
               case m.status
                    when 'COMPLETED' then 'DONE'
                    when 'SUBMITTED' then 'PENDING'
                    when 'FAILED' then case when c = m.total - 1 then 'DLQ' when c < m.total / 2 then 'DONE' else 'CANCELLED' end
                    else case when c < m.total / 2 then 'DONE'
                              when c = m.total / 2 and m.busy then 'RUNNING'
                              when m.status in ('CANCELLED', 'CANCELLING') then 'CANCELLED'
                              when c = m.total / 2 + 1 then 'RETRY_WAIT'
                              else 'PENDING' end
               end as status
        from made m cross join lateral generate_series(0, m.total - 1) c order by n / 8, c
    ) chunk offset 0
) chunk;

insert into job (job_id, tenant, status, ending, outcome, pinned_at, request_hash, idempotency_key, request_id, priority, on_failure, reuse, compression, total,
                 done, failed, cancelled, files_reused, row_count, byte_count, error_message, created_at, updated_at, started_at, completed_at)
select job_id, tenant, status, case status when 'FAILED' then 'FAIL' when 'CANCELLED' then 'CANCEL' when 'CANCELLING' then 'CANCEL' end,
       case when ended then status end, case when ended then changed_at end, sha256(job_id::bytea), case when age < 7 * 24 * 60 and n % 2 = 0 then 'req-' || job_id end,
       md5(job_id), 4, 'FAIL_FAST', true, 'NONE', total,
       case when ended then done end, case when ended then bad end, case when ended then total - done - bad end,
       case when ended then case when n % 10 = 7 then done else 0 end end, case when ended then done * 10000::bigint end, case when ended then done * 1140000::bigint end,
       case when status = 'FAILED' then 'Chunk failed after 5 attempts: key=EVERY date=2020-01-01: division by zero' end,
       created_at, changed_at, case when status <> 'SUBMITTED' then created_at + interval '1 s' end, case when ended then changed_at end
from (select *, created_at + interval '40 s' as changed_at, status in ('COMPLETED', 'FAILED', 'CANCELLED') as ended, (status = 'FAILED')::int as bad,
             case status when 'COMPLETED' then total when 'SUBMITTED' then 0 else total / 2 end as done from made) m order by n;

insert into dispatch (job_id, chunk_key, state, rank, due_at)
select job_id, chunk_key, case status when 'PENDING' then 'READY' else 'WAIT' end, row_number() over (partition by job_id order by chunk_key) * 504, coalesce(next_retry_at, now())
from job_chunk where status in ('PENDING', 'RETRY_WAIT') order by job_id, chunk_key;

insert into chunk_attempt (claim_id, job_id, chunk_key, run, attempt, worker, started_at, ended_at, outcome, error_code, error_message)
select gen_random_uuid(), job_id, chunk_key, 1, t, 'host-1/4711/w1', started_at - interval '1 min' + t * interval '1 s', started_at - interval '50 s' + t * interval '1 s',
       case when t < 5 then 'RETRY' else 'DLQ' end, coalesce(error_code, 'SQL_57014'), coalesce(error_message, 'canceling statement due to statement timeout')
from made m join job_chunk c using (job_id) cross join lateral generate_series(1, attempts - (c.status = 'DONE')::int) t
where n % 20 = 0 and attempts > 1 or c.status in ('DLQ', 'RETRY_WAIT');

insert into file_cache (bucket, object_key, export_function, row_count, byte_count, sha256, etag, claim_id, claim_started_at, job_id)
select 'exports', s3_object_key, 'export_rows', row_count, byte_count, sha256, etag, claim_id, started_at, job_id
from made m join job_chunk c using (job_id) where n % 4 = 1 and c.status = 'DONE'
on conflict do nothing;

insert into outbox (destination, headers, body, due_at)
select 'https://client.example/exports', jsonb_build_object('id', 'evt_' || gen_random_uuid(), 'requestId', md5(job_id)), convert_to('{}', 'UTF8'), now() + interval '1 day' from made where n % 25 = 1;

-- Their heartbeats stay fresh as long as the measuring takes.
insert into worker (worker_id, host, version, concurrency, in_flight, heartbeat_at)
select 'host-' || i || '/4711/w' || i, 'host-' || i, '1.0.0', 8, 8, now() + interval '1 day' from generate_series(0, 15) i;

drop table made;
