package db

import "exportd/export"

// ByIndex precedes JobsSQL in its transaction.
const ByIndex = byIndex

// JobsSQL is what lists a page of 50 jobs.
func JobsSQL(f export.JobFilter, after *export.Place) string {
	sql, _ := jobsSQL(f, after, 50, mostLooks)
	return sql
}
