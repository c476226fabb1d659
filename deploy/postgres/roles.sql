-- Roles of the truth database, each with what it needs and no more. Plain SQL, repeatable. Run it in that database as a superuser (or as its owner with CREATEROLE): before the
-- first `exportd migrate`, and once more after each that applied something, which takes from consumers what only an api does.
--
--   exportd_owner     owns the tables; for `exportd migrate` alone
--   exportd_api       takes jobs, and relays, sweeps and ends jobs like every process
--   exportd_consumer  the same without making jobs, and nothing of the audit log
--
-- Lines of the audit log are added by the api, and changed and removed by nobody but the owner. None may truncate, create or drop anything except the owner. The one that reads the source is in source.sql. Give each a password by \password, or a certificate; none is here.

do $$
declare
	r text;
	ours constant text[] := array['job', 'job_chunk', 'dispatch', 'outbox', 'chunk_attempt', 'file_cache', 'worker'];
begin
	foreach r in array array['exportd_owner', 'exportd_api', 'exportd_consumer'] loop
		if not exists (select from pg_roles where rolname = r) then
			execute format('create role %I login', r);
		end if;
		execute format('grant connect on database %I to %I', current_database(), r);
	end loop;
	-- A session that was left in a transaction keeps dead rows of the queue alive for everybody.
	execute 'alter role exportd_api set idle_in_transaction_session_timeout = ''60s''';
	execute 'alter role exportd_consumer set idle_in_transaction_session_timeout = ''60s''';

	revoke create on schema public from public;
	grant usage, create on schema public to exportd_owner;
	grant usage on schema public to exportd_api, exportd_consumer;
	-- What the migrations to come will make.
	alter default privileges for role exportd_owner in schema public grant select, insert, update, delete on tables to exportd_api, exportd_consumer;
	alter default privileges for role exportd_owner in schema public grant usage on sequences to exportd_api;

	if to_regclass('public.audit') is not null then
		alter table public.audit owner to exportd_owner;
		revoke all on public.audit from exportd_api, exportd_consumer;
		grant select, insert on public.audit to exportd_api;
	end if;
	-- What is there, be it made by another role.
	foreach r in array ours loop
		if to_regclass('public.' || r) is not null then
			execute format('alter table public.%I owner to exportd_owner', r);
			execute format('grant select, insert, update, delete on public.%I to exportd_api, exportd_consumer', r);
		end if;
	end loop;
	if to_regclass('public.job') is not null then
		alter sequence public.job_number owner to exportd_owner;
		grant usage on sequence public.job_number to exportd_api;
		alter table public.goose_db_version owner to exportd_owner;
		revoke insert, update, delete on public.goose_db_version from exportd_api, exportd_consumer;
		revoke insert on public.job, public.job_chunk from exportd_consumer;
	end if;
end $$;

-- Where the database is exportd's alone:
-- revoke connect, temporary on database exportd from public;
