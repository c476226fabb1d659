-- The role that reads the source: EXPORTD_SOURCE_URL of the consumers. Plain SQL, repeatable; run it as a superuser in the database where the export function lives, be it the truth
-- or another, after the function was made. On a physical replica run it on its primary.
--
-- It may call the function. What the function reads it must be able to read too: add the tables at the end. (security definer would spare that, and would have Postgres materialise the rows of a
-- function that it streams otherwise.)

do $$
begin
	if not exists (select from pg_roles where rolname = 'exportd_source') then
		create role exportd_source login;
	end if;
	execute format('grant connect on database %I to exportd_source', current_database());
	alter role exportd_source set default_transaction_read_only = on;
end $$;
grant usage on schema public to exportd_source;
revoke execute on function public.export_rows(text, date) from public;
grant execute on function public.export_rows(text, date) to exportd_source;
-- grant select on public.flights to exportd_source;
