package main

import (
	"errors"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// secret is text that is never printed: not by fmt, not in logs, not in JSON.
type secret string

func (s secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}
func (s secret) GoString() string             { return s.String() }
func (s secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
func (s secret) LogValue() slog.Value         { return slog.StringValue(s.String()) }

// redacted is a database URL fit for people: without its password, whether that is in the login or among the parameters.
func (s secret) redacted() string {
	u, err := url.Parse(string(s))
	if err != nil || u.Host == "" && u.Path == "" {
		return s.String()
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Set(name, "xxxxx")
		}
	}
	u.RawQuery = query.Encode()
	return u.Redacted()
}

// size is a number of bytes, read from 8MiB, 8MB, 8388608.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

func (s *size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/unit.bytes {
			return errors.New("not a size")
		}
		*s = size(n * unit.bytes)
		return nil
	}
	return errors.New("not a size")
}

func (s size) String() string {
	for _, unit := range []int{2, 1, 0} {
		if u := sizeUnits[unit]; s > 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
