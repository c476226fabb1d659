-- The export function of the tests. What it does is named by the key:
--   ROWS_n, EMPTY    n rows; none
--   ERR_n, DIV_n     n rows, then RAISE EXCEPTION (transient); n rows, then a division by zero (permanent)
--   FLAKY_n          fails in the first n attempts of the chunk, then 10 rows
--   SLOW_s, KILLER   one row a second, s of them or for an hour
--   GATE_n, HALF_n   3 rows once nobody holds the advisory lock n any more; n MiB, the last one then
--   BIG_m, STREAM_m  m MiB at full speed; 1 MiB every tenth of a second
--   NASTY            every type and every character that a CSV can get wrong
--   VER, VERBIG_m    one row with the number in src_version; m MiB that differ with it
-- In a session with e2e.fast = on nothing sleeps. No literal depends on standard_conforming_strings. LANGUAGE sql and STABLE, so that it is inlined and its rows stream.
create table src_version (v integer not null);
insert into src_version values (1);

create function src_raise(code text, says text) returns boolean language plpgsql as $$
begin
    raise exception using errcode = code, message = says;
end $$;

-- Waits a while, or for a lock, unless the session is fast.
create function src_wait(seconds float8, lock bigint) returns boolean language plpgsql as $$
begin
    if coalesce(current_setting('e2e.fast', true), '') <> 'on' then
        perform pg_sleep(seconds);
        if lock is not null then
            perform pg_advisory_xact_lock_shared(lock);
        end if;
    end if;
    return true;
end $$;

create function src_kind(key text) returns text language sql immutable as $$ select substring(key from '^[A-Z]+') $$;
create function src_arg(key text) returns integer language sql immutable as $$ select coalesce(substring(key from '^[A-Z]+_([0-9]+)')::integer, 0) $$;

create function export_rows(key text, effective_date date)
returns table (n bigint, name text, note text, amount numeric, day date, at timestamptz, ratio float8, span interval, raw bytea)
language sql stable as $$
    select i::bigint, key || ' ' || i, case i % 3 when 0 then null when 1 then '' else 'quiet' end, i * 1.10, effective_date + i % 28,
           timestamptz '2025-03-09 23:30Z' + i * interval '1 second', i / 7.0::float8, make_interval(secs => i), null::bytea
    from generate_series(1, case src_kind(key)
        when 'ROWS' then src_arg(key) when 'ERR' then src_arg(key) + 1 when 'DIV' then src_arg(key) + 1 when 'FLAKY' then 10 else 0 end) i
    where case src_kind(key)
        when 'ERR' then i <= src_arg(key) or src_raise('P0001', 'row ' || i || ' is cursed')
        when 'DIV' then 1 / (src_arg(key) + 1 - i) >= 0
        when 'FLAKY' then i > 1 or src_arg(key) < (select coalesce(max(c.attempts), 1000) from job_chunk c
            where c.key = export_rows.key and c.effective_date = export_rows.effective_date and c.status = 'RUNNING') or src_raise('P0001', 'not yet')
        else true end
    union all
    select i::bigint, key, null, null, effective_date, null, null, null, null
    from generate_series(1, case src_kind(key) when 'SLOW' then src_arg(key) when 'KILLER' then 3600 when 'GATE' then 3 else 0 end) i
    where case src_kind(key) when 'GATE' then src_wait(0, src_arg(key)) else src_wait(1, null) end
    union all
    select i::bigint, repeat(md5(i::text || key), 32), null, null, effective_date, null, null, null, null
    from generate_series(1, case src_kind(key) when 'BIG' then src_arg(key) * 1024 else 0 end) i
    union all
    select i::bigint, repeat(md5(i::text || key), 32768), null, null, effective_date, null, null, null, null
    from generate_series(1, case src_kind(key) when 'STREAM' then src_arg(key) when 'HALF' then src_arg(key) else 0 end) i
    where case when src_kind(key) = 'STREAM' then src_wait(0.1, null) when i = src_arg(key) then src_wait(0, i) else true end
    union all
    select v.* from (values
        (1::bigint, null::text, ''::text, 1.10::numeric, date '2025-01-31', timestamptz '2025-03-09 23:30Z', 0.1::float8 + 0.2::float8, interval '1 day 2 hours', E'\\xdeadbeef'::bytea),
        (2, 'a' || chr(10) || 'b', 'say "hi", ok', -5, '2024-02-29', '2025-06-30 23:30Z', 'NaN', '-1 mon', ''),
        (3, 'c' || chr(13) || 'd', '=1+1', 12345678901234567890, 'infinity', null, 'Infinity', null, null),
        (4, E'\\.', 'é', 0, null, null, null, null, null)) v
    where src_kind(key) = 'NASTY'
    union all
    select v, key, null, null, effective_date, null, null, null, null from src_version where src_kind(key) = 'VER'
    union all
    select v, repeat(md5(i::text || key || v), 32), null, null, effective_date, null, null, null, null
    from src_version, generate_series(1, case src_kind(key) when 'VERBIG' then src_arg(key) * 1024 else 0 end) i
$$;
