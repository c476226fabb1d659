package export

import (
	"fmt"
	"time"
)

// Date is a calendar day without a time zone, held as the number yyyymmdd, so that dates compare as integers.
type Date int32

// ParseDate reads yyyyMMdd. It accepts only days that exist, in the years 1900 to 9999.
func ParseDate(s string) (Date, error) {
	if len(s) != 8 {
		return 0, fmt.Errorf("%q is not a date of the form yyyyMMdd", s)
	}
	n := int32(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%q is not a date of the form yyyyMMdd", s)
		}
		n = n*10 + int32(s[i]-'0')
	}
	d := Date(n)
	if d.year() < 1900 {
		return 0, fmt.Errorf("%q is before the year 1900", s)
	}
	if DateOf(d.Time()) != d {
		return 0, fmt.Errorf("%q is not a day of the calendar", s)
	}
	return d, nil
}

// DateOf is the UTC day of t.
func DateOf(t time.Time) Date {
	y, m, d := t.UTC().Date()
	return Date(y*10000 + int(m)*100 + d)
}

func (d Date) year() int { return int(d) / 10000 }

// Time is the day's midnight in UTC.
func (d Date) Time() time.Time {
	return time.Date(d.year(), time.Month(int(d)/100%100), int(d)%100, 0, 0, 0, 0, time.UTC)
}

// AddDays moves d by n days, n may be negative.
func (d Date) AddDays(n int) Date { return DateOf(d.Time().AddDate(0, 0, n)) }

// String is yyyyMMdd, the form of requests, messages and file names.
func (d Date) String() string { return fmt.Sprintf("%08d", int32(d)) }

// ISO is yyyy-MM-dd, the form of SQL and of messages to people.
func (d Date) ISO() string {
	return fmt.Sprintf("%04d-%02d-%02d", d.year(), int(d)/100%100, int(d)%100)
}

// MarshalText makes a Date a JSON string yyyyMMdd.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDate.
func (d *Date) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDate(string(b))
	return err
}
