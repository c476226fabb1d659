-- +goose Up

-- What people ordered, in the transaction that did it; and what was refused. Lines are added and never changed. No foreign key: they outlive their jobs.
create table audit (
    audit_id   bigint generated always as identity primary key,
    at         timestamptz not null default now(),
    action     text not null,
    -- Who, and from where. forwarded is what a proxy, or anybody, says of it.
    tenant     text not null,
    role       text not null,
    token      text not null,
    address    text not null,
    forwarded  text not null,
    user_agent text not null,
    via        text not null,
    request_id text not null,
    trace_id   text not null,
    -- What, and what came of it: status is HTTP's, of what was refused.
    job_id     text collate "C",
    job_tenant text,
    filter     jsonb,
    chunks     integer,
    status     integer,
    problem    text
);
create index audit_at on audit (at, audit_id);
create index audit_tenant on audit (tenant, at, audit_id);
create index audit_job on audit (job_id, at, audit_id) where job_id is not null;

-- What default privileges have given away: nobody but the owner changes a line.
-- +goose StatementBegin
do $$
declare
    r record;
begin
    for r in
        select distinct a.grantee, a.privilege_type from pg_class c cross join lateral aclexplode(c.relacl) a
        where c.oid = 'audit'::regclass and a.grantee not in (0, c.relowner) and a.privilege_type not in ('SELECT', 'INSERT')
    loop
        execute format('revoke %s on audit from %s', r.privilege_type, r.grantee::regrole);
    end loop;
end $$;
-- +goose StatementEnd
