-- Every change of a job and of a chunk, as the database saw it.
create table chaos_audit (
    n           bigint generated always as identity primary key,
    at          timestamptz not null default now(),
    job_id      text collate "C" not null,
    chunk_key   text collate "C", -- null: the job itself
    run         integer not null,
    was         text not null,
    becomes     text not null,
    claim_id    uuid,
    attempts    integer, -- spent by the change
    lease_until timestamptz -- before the change
);

create function chaos_note_chunk() returns trigger language plpgsql as $$
begin
    insert into public.chaos_audit (job_id, chunk_key, run, was, becomes, claim_id, attempts, lease_until)
    values (new.job_id, new.chunk_key, (select run from public.job where job_id = new.job_id), old.status, new.status, new.claim_id, new.attempts - old.attempts, old.lease_until);
    return null;
end $$;

create trigger chaos_note after update on job_chunk for each row
when (old.status is distinct from new.status or old.claim_id is distinct from new.claim_id or old.attempts is distinct from new.attempts) execute function chaos_note_chunk();

create function chaos_note_job() returns trigger language plpgsql as $$
begin
    insert into public.chaos_audit (job_id, run, was, becomes) values (new.job_id, new.run, old.status, new.status);
    return null;
end $$;

create trigger chaos_note after update on job for each row when (old.status is distinct from new.status) execute function chaos_note_job();
