package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"exportd/export"
)

// Dates and timestamps come in PostgreSQL's binary format, and their text is made here: it costs the server a tenth of all that it does for a row with one of each, and us a quarter of
// that. Numbers gain nothing, and texts cost the server more in binary.
//
// Which columns these are is known from the answer to an earlier query; the first one is answered in text. A function that has got other columns since is asked again, and one that sets the
// time zone or the date style itself, which its texts are to follow, is asked for text from then on.

// binaryValue is a type whose text is made here.
type binaryValue struct {
	size       int // in bytes, of every value
	appendText func(dst, value []byte) []byte
}

// binaryValues by the OID of the type; domains come as the type that they are over.
var binaryValues = map[uint32]binaryValue{
	pgtype.DateOID: {4, func(dst, v []byte) []byte { return appendDate(dst, int32(binary.BigEndian.Uint32(v))) }},
	pgtype.TimestampOID: {8, func(dst, v []byte) []byte {
		return appendTimestamp(dst, int64(binary.BigEndian.Uint64(v)), "")
	}},
	pgtype.TimestamptzOID: {8, func(dst, v []byte) []byte {
		return appendTimestamp(dst, int64(binary.BigEndian.Uint64(v)), "+00") // the time zone is UTC, see sourceSettings
	}},
}

// plainTypes are those whose texts are letters, digits and a few signs, and never empty. The scan for what needs quotes is a fifth of the work on a row.
var plainTypes = []uint32{
	pgtype.BoolOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID, pgtype.UUIDOID,
	pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID,
}

func plainColumns(fields []pgconn.FieldDescription) []bool {
	plain := make([]bool, len(fields))
	for i, f := range fields {
		plain[i] = slices.Contains(plainTypes, f.DataTypeOID)
	}
	return plain
}

// formatsFor are the format codes to ask for when the columns are these; nil, all in text, if none gains.
func formatsFor(fields []pgconn.FieldDescription) []int16 {
	formats, any := make([]int16, len(fields)), false
	for i, f := range fields {
		if _, ok := binaryValues[f.DataTypeOID]; ok {
			formats[i], any = pgtype.BinaryFormatCode, true
		}
	}
	if !any {
		return nil
	}
	return formats
}

// errColumnsChanged: the formats asked for were those of other columns.
var errColumnsChanged = errors.New("the columns of the export function are not what they were at the last query")

// errSettingsChanged: the binary values were to be written as the export function has set, not as we do.
var errSettingsChanged = &export.Failure{Class: export.Transient, Code: "SOURCE_SETTINGS_CHANGED",
	Err: fmt.Errorf("the export function has set timezone or datestyle; its dates and timestamps are asked for in text from now on: %w", export.ErrOnceMore)}

// errEncodingChanged: the texts came in the encoding that the export function has set, and a file has one.
var errEncodingChanged = &export.Failure{Class: export.Permanent, Code: "SOURCE_ENCODING_CHANGED", Err: errors.New("the export function has set client_encoding; it must leave it as it is")}

// valueTexts replaces the binary values of a row by their texts.
type valueTexts struct {
	columns []int
	types   []binaryValue
	text    []byte // room for all of one row
}

// longestValue has the text of any value: -infinity, 294276-12-31 23:59:59.999999+00, 4714-11-24 00:00:00.000001+00 BC.
const longestValue = 40

func newValueTexts(fields []pgconn.FieldDescription) (*valueTexts, error) {
	t := &valueTexts{}
	for i, f := range fields {
		if f.Format != pgtype.BinaryFormatCode {
			continue
		}
		b, ok := binaryValues[f.DataTypeOID]
		if !ok {
			return nil, errColumnsChanged
		}
		t.columns, t.types = append(t.columns, i), append(t.types, b)
	}
	t.text = make([]byte, 0, longestValue*len(t.columns))
	return t, nil
}

// replace is to be called for one row after the other; the texts are good until the next.
func (t *valueTexts) replace(row [][]byte) error {
	t.text = t.text[:0]
	for n, i := range t.columns {
		if row[i] == nil {
			continue
		}
		if len(row[i]) != t.types[n].size {
			return errors.New("the server sent a date or timestamp of another size than it has")
		}
		from := len(t.text)
		t.text = t.types[n].appendText(t.text, row[i])
		row[i] = t.text[from:]
	}
	return nil
}

// learn keeps the formats for the next query.
func (s *Source) learn(fields []pgconn.FieldDescription) {
	var formats []int16
	if !s.onlyText.Load() {
		formats = formatsFor(fields)
	}
	if known := s.formats.Load(); known == nil || !slices.Equal(*known, formats) {
		s.formats.Store(&formats)
	}
}

// checkSettings reads the answer to settingsKept, after the rows that came in these formats.
func (s *Source) checkSettings(p *pgconn.Pipeline, formats []int16) error {
	result, err := p.GetResults()
	if err != nil {
		return err
	}
	rr, ok := result.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("the server answered the question for its settings with %T", result)
	}
	var dates, encoding bool
	for rr.NextRow() {
		v := rr.Values()
		dates, encoding = string(v[0]) == "t", string(v[1]) == "t"
	}
	_, err = rr.Close()
	switch {
	case err != nil:
		return err
	case !encoding:
		return errEncodingChanged
	case dates:
		return nil
	}
	s.onlyText.Store(true)
	s.formats.Store(new([]int16))
	if formats != nil {
		return errSettingsChanged
	}
	return nil
}

// The texts are those of DateStyle ISO (PostgreSQL, src/backend/utils/adt/datetime.c, EncodeDateOnly and EncodeDateTime).

// appendDate takes days since 2000-01-01, in the Gregorian calendar also before there was one.
func appendDate(dst []byte, days int32) []byte {
	switch days {
	case math.MaxInt32:
		return append(dst, "infinity"...)
	case math.MinInt32:
		return append(dst, "-infinity"...)
	}
	dst, bc := appendDay(dst, int64(days))
	return append(dst, bc...)
}

const dayMicros = 24 * 60 * 60 * 1_000_000

// appendTimestamp takes microseconds since 2000-01-01 00:00.
func appendTimestamp(dst []byte, micros int64, zone string) []byte {
	switch micros {
	case math.MaxInt64:
		return append(dst, "infinity"...)
	case math.MinInt64:
		return append(dst, "-infinity"...)
	}
	days, rest := micros/dayMicros, micros%dayMicros
	if rest < 0 {
		days, rest = days-1, rest+dayMicros
	}
	dst, bc := appendDay(dst, days)
	seconds, fraction := uint(rest/1_000_000), uint(rest%1_000_000)
	dst = appendTwo(append(dst, ' '), seconds/3600)
	dst = appendTwo(append(dst, ':'), seconds/60%60)
	dst = appendTwo(append(dst, ':'), seconds%60)
	if fraction != 0 {
		dst = appendTwo(append(dst, '.'), fraction/10_000)
		dst = appendTwo(dst, fraction/100%100)
		dst = appendTwo(dst, fraction%100)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	dst = append(dst, zone...)
	return append(dst, bc...)
}

// appendDay appends year, month and day; bc is what the whole text has to end with.
func appendDay(dst []byte, days int64) (text []byte, bc string) {
	// Years begin in March, so that the leap day is their last: of 400 years, day 0 is the first of March of a year that 400 divides.
	const cycle, epoch = 146_097, 730_425 // days: of 400 years; from 0000-03-01 to 2000-01-01
	days += epoch
	cycles := days / cycle
	d := days % cycle
	if d < 0 {
		cycles, d = cycles-1, d+cycle
	}
	years := (d - d/1460 + d/36_524 - d/146_096) / 365
	d -= 365*years + years/4 - years/100
	month := (5*d + 2) / 153 // from March
	d -= (153*month + 2) / 5
	year := 400*cycles + years
	if month += 3; month > 12 {
		year, month = year+1, month-12
	}
	if year <= 0 {
		year, bc = 1-year, " BC"
	}
	dst = appendYear(dst, uint(year))
	dst = appendTwo(append(dst, '-'), uint(month))
	return appendTwo(append(dst, '-'), uint(d+1)), bc
}

// appendYear uses four digits at least.
func appendYear(dst []byte, year uint) []byte {
	if year > 9999 {
		dst = strconv.AppendUint(dst, uint64(year/10_000), 10)
	}
	return appendTwo(appendTwo(dst, year/100%100), year%100)
}

func appendTwo(dst []byte, n uint) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }
