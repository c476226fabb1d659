# Run by the postgres image at its first start, after demo/sample.sql.
gunzip -c /sample/flights.csv.gz |
  psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "copy flights from stdin (format csv, header)" -c "create index on flights (origin, departed_at)"
