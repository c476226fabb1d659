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
		rows[i] = "(" + quoteText(s[0]) + ", " + quoteText(s[1]) + ")"
	}
	return "SELECT set_config(name, value, " + strconv.FormatBool(local) + ") FROM (VALUES " + strings.Join(rows, ", ") + ") AS settings (name, value)"
}

// quoteText makes a literal of a text.
func quoteText(text string) string {
	return "E'" + strings.NewReplacer("'", "''", `\`, `\\`).Replace(text) + "'"
}

// forSession fixes them for the transactions to come.
func (s settings) forSession() string {
	session := append(settings{}, s...)
	session[0][0] = "default_transaction_read_only" // what a transaction is cannot be set for a session
	return session.sql(false)
}

// settingsKept asks whether the function left those alone that the texts of dates and timestamps depend on, and what all texts are encoded in.
const settingsKept = "SELECT current_setting('timezone') = 'UTC' AND current_setting('datestyle') = 'ISO, YMD', current_setting('client_encoding') = 'UTF8'"

// settingsName is the prepared statement that fixes the settings for one transaction.
const settingsName = "exportd_settings"

// ownSettings are those that a session has by its role and database, in the order to set them. They stay; but a function may set them for good, and the next
// export is to have them as they were.
const ownSettings = "SELECT name, current_setting(name) FROM unnest(ARRAY['session_authorization', 'role', 'search_path']) AS own (name)"

// ownSession is what is kept of a session that is the connection's own.
type ownSession struct {
	settings string // for one transaction, with those of ownSettings
	prepared bool   // as settingsName
}

const ownSessionKey = "exportd_session"

// prepareSession makes the settings those of the session and prepares their statement, unless a pooler lends out another session for each transaction.
func prepareSession(ctx context.Context, c *pgconn.PgConn, s settings) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if lent, err := pooled(ctx, c); err != nil || lent {
		return err
	}
	results, err := c.Exec(ctx, ownSettings+"; "+s.forSession()).ReadAll()
	if err != nil {
		return err
	}
	all := append(settings{}, s...)
	for _, row := range results[0].Rows {
		all = append(all, [2]string{string(row[0]), string(row[1])})
	}
	own := &ownSession{settings: all.forTransaction(), prepared: true}
	if _, err := c.Prepare(ctx, settingsName, own.settings, nil); err != nil {
		return err
	}
	c.CustomData()[ownSessionKey] = own
	return nil
}

// sendSettings fixes the settings for the transaction that the pipeline begins.
func (s *Source) sendSettings(p *pgconn.Pipeline, c *pgconn.PgConn) {
	own, _ := c.CustomData()[ownSessionKey].(*ownSession)
	switch {
	case own == nil:
		p.SendQueryParams(s.settings, nil, nil, nil, nil)
	case own.prepared:
		p.SendQueryPrepared(settingsName, nil, nil, nil)
	default:
		p.SendQueryParams(own.settings, nil, nil, nil, nil)
	}
}

// forgetPrepared is for a session that has lost its statement (DEALLOCATE ALL in an export function).
func forgetPrepared(c *pgconn.PgConn) {
	if own, ok := c.CustomData()[ownSessionKey].(*ownSession); ok {
		own.prepared = false
	}
}
