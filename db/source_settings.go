package db

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// settings of a session, name and value.
type settings [][2]string

// sourceSettings are those that the bytes of a value or the order of a scan depend on besides the data, and the conduct of the backend. search_path stays as
// the role and database have it: the function may rely on it. The values are spelled as the server shows them, but for a time limit.
func sourceSettings(statementTimeout time.Duration) settings {
	return settings{
		{"transaction_read_only", "on"},
		{"client_encoding", "UTF8"},
		{"timezone", "UTC"},
		{"datestyle", "ISO, YMD"},
		{"intervalstyle", "postgres"},
		{"extra_float_digits", "1"}, // shortest text that reads back as the same number
		{"bytea_output", "hex"},
		{"lc_monetary", "C"},
		{"xmlbinary", "base64"},
		{"quote_all_identifiers", "off"}, // regclass and its like
		{"statement_timeout", fmt.Sprint(statementTimeout.Milliseconds())},
		{"max_parallel_workers_per_gather", "0"},   // the order of a parallel scan is chance
		{"synchronize_seqscans", "off"},            // and so is where a shared one begins
		{"client_connection_check_interval", "2s"}, // the backend of a killed worker ends; it exists since PostgreSQL 14
	}
}

// forTransaction fixes them for one transaction: those that differ, since to set one and take it back costs several times the look.
//
// Rows and not a list of calls: the server analyses one call.
func (s settings) forTransaction() string {
	return s.sql(true) + " WHERE current_setting(name) <> value"
}

func (s settings) sql(local bool) string {
	rows := make([]string, len(s))
	for i, s := range s {
		rows[i] = fmt.Sprintf("('%s', '%s')", s[0], s[1])
	}
	return "SELECT set_config(name, value, " + strconv.FormatBool(local) + ") FROM (VALUES " + strings.Join(rows, ", ") + ") AS settings (name, value)"
}

// forSession fixes them for the transactions to come.
func (s settings) forSession() string {
	session := append(settings{}, s...)
	session[0][0] = "default_transaction_read_only" // what a transaction is cannot be set for a session
	return session.sql(false)
}

// settingsKept asks whether the function left those alone that the texts of dates and timestamps depend on.
const settingsKept = "SELECT current_setting('timezone') = 'UTC' AND current_setting('datestyle') = 'ISO, YMD'"

// settingsName is the prepared statement that fixes the settings for one transaction.
const settingsName = "exportd_settings"

// prepareSession makes the settings those of the session and prepares their statement, unless a pooler lends out another session for each transaction.
func prepareSession(ctx context.Context, c *pgconn.PgConn, s settings) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if lent, err := pooled(ctx, c); err != nil || lent {
		return err
	}
	if _, err := c.Exec(ctx, s.forSession()).ReadAll(); err != nil {
		return err
	}
	if _, err := c.Prepare(ctx, settingsName, s.forTransaction(), nil); err != nil {
		return err
	}
	c.CustomData()[settingsName] = true
	return nil
}

// sessionPrepared says whether prepareSession prepared it; forgetSession is for one that has lost its statement (DEALLOCATE ALL in an export function).
func sessionPrepared(c *pgconn.PgConn) bool { return c.CustomData()[settingsName] != nil }
func forgetSession(c *pgconn.PgConn)        { delete(c.CustomData(), settingsName) }
