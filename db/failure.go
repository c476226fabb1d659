package db

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"exportd/export"
)

// Codes of failures of the source that have no SQLSTATE.
const (
	codeConnect        = "SQL_CONNECT"         // no connection could be made
	codeConnectionLost = "SQL_CONNECTION_LOST" // it broke while the query ran
)

const dependencySource = "source"

// sourceClasses says what an error of the source means for the chunk, by SQLSTATE or by its first two characters; the longer match counts, and
// what is not here is transient (PostgreSQL, appendix A, error codes).
var sourceClasses = map[string]export.Class{
	// The same rows and the same function fail again.
	"0A":    export.Permanent, // feature not supported
	"21":    export.Permanent, // cardinality violation: a subquery with more than one row
	"22":    export.Permanent, // data exception: division by zero, out of range, invalid text, untranslatable character
	"25006": export.Permanent, // read-only transaction: the function writes
	"2F":    export.Permanent, // SQL routine exception: the function writes though it is not VOLATILE
	"3F":    export.Permanent, // invalid schema name
	"42":    export.Permanent, // syntax or access rule: no such function or column, no right, wrong types
	"54":    export.Permanent, // program limit exceeded: a value over 1 GB, too many columns

	// Nobody gets an answer; a probe confirms it.
	"08":    export.Outage, // connection exception
	"28":    export.Outage, // invalid authorization: no chunk can run, and none is at fault
	"3D":    export.Outage, // invalid catalog name: no such database
	"53000": export.Outage, // insufficient resources
	"53100": export.Outage, // disk full
	"53300": export.Outage, // too many connections
	"57P01": export.Outage, // admin shutdown, or a terminated backend
	"57P02": export.Outage, // crash shutdown
	"57P03": export.Outage, // cannot connect now: starting up, shutting down
	"57P04": export.Outage, // database dropped

	// Worth another attempt, by name because a longer prefix or the reader may expect otherwise.
	"40":    export.Transient, // serialization failure, deadlock, standby conflict
	"42P05": export.Transient, // duplicate or lost prepared statement: a pooler's doing
	"53200": export.Transient, // out of memory: perhaps because of this very query
	"53400": export.Transient, // configuration limit: its temporary files, for instance
	"55P03": export.Transient, // lock not available
	"57014": export.Transient, // cancelled: statement_timeout, or an administrator
	"P0001": export.Transient, // RAISE EXCEPTION: only its author knows; one that can never succeed should raise class 22
}

// sourceFailure turns an error of the source into a Failure in plain words. Anything that is neither the server's answer nor a broken connection stays
// as it is: unknown, thus transient.
func sourceFailure(err error) error {
	var fromServer *pgconn.PgError
	var connecting *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fromServer):
		return &export.Failure{
			Class: sqlStateClass(fromServer.Code), Code: "SQL_" + fromServer.Code, Dependency: dependencySource, Err: errors.New(plainPgError(fromServer)),
		}
	case errors.As(err, &connecting):
		return outageOf(codeConnect, "no connection to the source database", err)
	case connectionBroke(err):
		return outageOf(codeConnectionLost, "the connection to the source database broke", err)
	default:
		return err
	}
}

func outageOf(code, what string, err error) error {
	return &export.Failure{Class: export.Outage, Code: code, Dependency: dependencySource, Err: fmt.Errorf("%s: %w", what, err)}
}

func sqlStateClass(code string) export.Class {
	if class, ok := sourceClasses[code]; ok {
		return class
	}
	return sourceClasses[code[:min(2, len(code))]]
}

func connectionBroke(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}

// plainPgError is everything that the server said and that helps whoever reads the dead letter.
func plainPgError(e *pgconn.PgError) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (SQLSTATE %s)", e.Message, e.Code)
	for _, more := range []struct{ name, text string }{{"detail", e.Detail}, {"hint", e.Hint}, {"where", e.Where}} {
		if more.text != "" {
			fmt.Fprintf(&b, "; %s: %s", more.name, strings.ReplaceAll(more.text, "\n", ", "))
		}
	}
	return b.String()
}
