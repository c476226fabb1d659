package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"exportd/export"
)

// SourceConfig says where the rows come from.
type SourceConfig struct {
	URL      string
	Function string // name of the set-returning function, optionally schema-qualified
	Pool     int    // most connections; 0 leaves it to the URL
	// StatementTimeout ends a query on the server; 0 means none, whatever the role is set to.
	StatementTimeout time.Duration
	Log              *slog.Logger
}

// Source runs the export function and streams its rows as CSV. It needs no session state, so it works through a transaction-mode pooler: settings are local
// to the transaction. A session that is the connection's own is prepared for them, which saves a third of a small query's time. The query itself is planned each time: one
// key has ten rows, another ten million.
type Source struct {
	pool     *pgxpool.Pool
	settings string                  // the statement that fixes the session for one transaction
	formats  atomic.Pointer[[]int16] // of the columns, as the last query had them
	onlyText atomic.Bool             // whatever the columns are
	function string                  // quoted
	query    string
	log      *slog.Logger
}

const (
	// connectLimit bounds one connection attempt, and one probe.
	connectLimit = 10 * time.Second
	// cancelLimit bounds the end of an abandoned query and of its session; then its connection is cut.
	cancelLimit = 3 * time.Second
	// cancelAgain is how long a cancel request may take to end its query. One that comes before its query is forgotten by the server.
	cancelAgain = 250 * time.Millisecond
	// flushEvery is how long a row may wait in the buffer while others follow: whoever watches for a stall sees that bytes move.
	flushEvery = time.Second
)

// OpenSource makes the pool. It connects to nothing yet.
func OpenSource(ctx context.Context, cfg SourceConfig) (*Source, error) {
	function, err := functionName(cfg.Function)
	if err != nil {
		return nil, err
	}
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("source URL: %w", err)
	}
	if cfg.Pool > 0 {
		pc.MaxConns = int32(cfg.Pool)
	}
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = "exportd-source"
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectLimit
	}
	// A peer that vanished without a word is noticed within a minute.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 10 * time.Second, Count: 4}}
	pc.ConnConfig.DialFunc = dialer.DialContext

	settings := sourceSettings(cfg.StatementTimeout)
	pc.PrepareConn = alive
	if !strings.Contains(cfg.URL, "default_query_exec_mode") { // else sessions are not ours, or may not be
		pc.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return prepareSession(ctx, c.PgConn(), settings) }
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("source pool: %w", err)
	}
	s := &Source{pool: pool, settings: settings.forTransaction(), function: function, query: "SELECT * FROM " + function + "($1, $2)", log: cfg.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Export runs the function for (key, date) and writes its rows to w as CSV with a header line, byte for byte as COPY … (FORMAT csv, HEADER) would in a session with
// these settings. rows counts the data rows; it is valid only without an error.
//
// Without an error, the query ended well and w has everything. With one, w may have a part: it must not be taken for a file. An error
// of w ends the query and is returned as it is; the end of ctx is returned with its cause; all else is a *[export.Failure] where the class is known.
//
// The end of ctx ends the query on the server even while w blocks, but Export returns only when w does. w must not keep the bytes it is given.
func (s *Source) Export(ctx context.Context, key string, date export.Date, w io.Writer) (rows int64, err error) {
	out := newCSVWriter(w)
	defer out.release()
	var formats []int16
	if known := s.formats.Load(); known != nil {
		formats = *known
	}
	rows, err = s.stream(ctx, key, date, formats, out)
	if needsText(err) && !out.started && ctx.Err() == nil {
		export.LogOf(ctx, s.log).Info("export query again", "key", key, "date", date, "error", err)
		out.buf, out.plain = out.buf[:0], nil
		rows, err = s.stream(ctx, key, date, nil, out)
	}
	if err == nil {
		// The last bytes of a file go out only after the server said that all is well.
		out.flush()
	}
	switch {
	case out.err != nil:
		return rows, out.err
	case err == nil:
		return rows, nil
	case ctx.Err() != nil:
		return rows, contextError(ctx)
	default:
		return rows, atRow(sourceFailure(err), rows)
	}
}

// needsText says whether the query may go well when it is sent again, with nothing taken for known.
func needsText(err error) bool {
	code := sqlState(err)
	return errors.Is(err, errColumnsChanged) || errors.Is(err, errSettingsChanged) ||
		code == "0A000" || // "cached plan must not change result type": a column was added between parsing and running
		code == noStatement ||
		code == "XX000" || // "cache lookup failed for function": it was replaced between parsing and running
		code == "08P01" // "bind message has 2 result formats but query has 3 columns"
}

// noStatement: a prepared statement does not exist.
const noStatement = "26000"

// stream runs the query once. The settings and the query travel together, in one round trip; up to the Sync they are one transaction, which the server
// ends by itself, well or not, so that nothing is left to roll back.
func (s *Source) stream(ctx context.Context, key string, date export.Date, formats []int16, out *csvWriter) (rows int64, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	server := conn.Conn().PgConn()
	queryCtx, stop := context.WithCancel(ctx)
	defer stop()
	defer cutWhenDone(queryCtx, server)()

	// pgx itself would notice the end of a context only while it reads, not while w blocks.
	p := server.StartPipeline(context.Background())
	s.sendSettings(p, server)
	p.SendQueryParams(s.query, [][]byte{[]byte(key), []byte(date.ISO())}, []uint32{pgtype.TextOID, pgtype.DateOID}, nil, formats)
	p.SendQueryParams(settingsKept, nil, nil, nil, nil)
	p.SendPipelineSync()
	if err = p.Flush(); err == nil {
		rows, err = s.readRows(p, out, stop)
	}
	if err == nil {
		err = s.checkSettings(p, formats)
	}
	if err == nil {
		_, err = p.GetResults() // the end of the transaction
	}
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if sqlState(err) == noStatement {
		forgetPrepared(server)
	}
	return rows, err
}

// readRows writes the rows of the pipeline's second statement. It calls stop when they are not
// to be read to their end.
func (s *Source) readRows(p *pgconn.Pipeline, out *csvWriter, stop func()) (rows int64, err error) {
	var result any
	for range 2 { // asking for the second result reads the first to its end
		if result, err = p.GetResults(); err != nil {
			return 0, err
		}
	}
	rr, ok := result.(*pgconn.ResultReader)
	if !ok {
		return 0, fmt.Errorf("the server answered the query with %T", result)
	}
	s.learn(rr.FieldDescriptions())
	texts, err := newValueTexts(rr.FieldDescriptions())
	if err != nil {
		stop()
		return 0, err
	}
	out.row(columnNames(rr.FieldDescriptions()))
	out.plain = plainColumns(rr.FieldDescriptions())

	var due atomic.Bool
	timer := time.AfterFunc(flushEvery, func() { due.Store(true) })
	defer timer.Stop()
	for rr.NextRow() {
		values := rr.Values()
		if err := texts.replace(values); err != nil {
			stop()
			return rows, err
		}
		out.row(values)
		rows++
		if due.Load() {
			out.flush()
			due.Store(false)
			timer.Reset(flushEvery)
		}
		if out.err != nil {
			stop()
			break
		}
	}
	tag, err := rr.Close()
	if err != nil {
		return rows, err
	}
	if tag.RowsAffected() != rows {
		return rows, fmt.Errorf("the server counts %d rows, %d arrived", tag.RowsAffected(), rows)
	}
	return rows, nil
}

func columnNames(fields []pgconn.FieldDescription) [][]byte {
	names := make([][]byte, len(fields))
	for i, f := range fields {
		names[i] = []byte(f.Name)
	}
	return names
}

// cutWhenDone ends the query on the server when ctx ends, by cancel requests; where they do not help, the connection is cut: a backend that waits for its rows
// to be taken does not listen to them. The returned function, called when nobody reads any more, ends the watch. A connection whose query was cancelled
// is not used again: the request might hit the next query. And its place in the pool is free only when its session has ended, so
// that the server has no more of them than the pool, unless it had to be cut.
func cutWhenDone(ctx context.Context, server *pgconn.PgConn) (end func()) {
	unread, cut := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(cut)
		limited, cancel := context.WithTimeout(context.Background(), cancelLimit)
		defer cancel()
		for server.CancelRequest(limited) == nil {
			select {
			case <-unread:
				endSession(limited, server)
				return
			case <-time.After(cancelAgain):
			case <-limited.Done():
			}
		}
		_ = server.Conn().Close()
	})
	return func() {
		if !unwatch() {
			close(unread)
			<-cut
			_ = server.Close(context.Background()) // tells the pool not to keep it
		}
	}
}

// endSession takes leave and waits until the server has closed the connection, which its session does last of all.
func endSession(limited context.Context, server *pgconn.PgConn) {
	if server.IsClosed() {
		return
	}
	deadline, _ := limited.Deadline()
	_ = server.Conn().SetDeadline(deadline)
	server.Frontend().Send(&pgproto3.Terminate{})
	if server.Frontend().Flush() == nil {
		_, _ = io.Copy(io.Discard, server.Conn())
	}
}

// contextError is the end of ctx with its cause, so that errors.Is finds both.
func contextError(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return context.Cause(ctx)
}

// atRow says how far the query came.
func atRow(err error, rows int64) error {
	var f *export.Failure
	if rows == 0 || !errors.As(err, &f) {
		return err
	}
	located := *f
	located.Err = fmt.Errorf("after %d rows: %w", rows, f.Err)
	return &located
}
