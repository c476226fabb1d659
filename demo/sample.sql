-- The sample data of the demo and of compose.yaml; the rows are in flights.csv.gz.
create table flights (
    departed_at    timestamp not null,
    origin         text      not null,
    destination    text      not null,
    delay_minutes  int       not null,
    distance_miles int       not null
);

-- The departures of an airport (the key) on a day. LANGUAGE sql STABLE, so that its rows stream; the order is total, so that the same
-- rows always give the same file.
create function export_rows(key text, effective_date date)
returns table (departed_at timestamp, origin text, destination text, delay_minutes int, distance_miles int)
language sql stable as $$
    select f.departed_at, f.origin, f.destination, f.delay_minutes, f.distance_miles
    from flights f
    where f.origin = export_rows.key
      and f.departed_at >= export_rows.effective_date
      and f.departed_at < export_rows.effective_date + 1
    order by f.departed_at, f.destination, f.delay_minutes, f.distance_miles
$$;
