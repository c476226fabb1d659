package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"exportd/client"
)

// exitCode ends a client command that has itself said why.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

const (
	exitJobFailed    exitCode = 3
	exitJobCancelled exitCode = 4
	exitUnknownJob   exitCode = 5
	exitUnreachable  exitCode = 6
	exitInterrupted  exitCode = 130
)

type clientConfig struct {
	URL   string `name:"url" default:"http://127.0.0.1:8080" help:"Address of the API."`
	Token secret `name:"token" file:"" help:"Bearer token for it."`
}

func (c clientConfig) check(f *faults) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		f.add("url", "is not the address of an API; give one such as http://127.0.0.1:8080")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		f.add("url", "has a user, a query or a fragment; give the address alone, such as http://127.0.0.1:8080, and the token as EXPORTD_TOKEN")
	}
	if !fitsHeader(strings.TrimSpace(string(c.Token))) {
		f.add("token", "has characters that no token has")
	}
}

// fitsHeader says whether s can be sent in a header as it is.
func fitsHeader(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func (c clientConfig) client() client.Client {
	return client.Client{URL: c.URL, Token: strings.TrimSpace(string(c.Token)), Every: time.Second, Patience: 2 * time.Minute}
}

// clientEnd says why a call failed and gives the exit code of it. Of what was interrupted, goesOn says how it stands.
func clientEnd(ctx context.Context, p *process, goesOn string, err error) error {
	code, advice := exitCode(exitFailed), ""
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		if goesOn != "" {
			goesOn = "; " + goesOn
		}
		fmt.Fprintf(p.stderr, "exportd: interrupted%s\n", goesOn)
		return exitInterrupted
	case errors.As(err, &code):
		return err // said already
	case errors.Is(err, client.ErrUnknown):
		code, advice = exitUnknownJob, "; check the id, and that EXPORTD_TOKEN is of its tenant"
	case errors.Is(err, client.ErrUnreachable):
		code, advice = exitUnreachable, "; check EXPORTD_URL and that exportd api runs"
	}
	fmt.Fprintf(p.stderr, "exportd: %s%s\n", lines(err.Error()), advice)
	return code
}

// lines is text of several lines in which nothing but the ends of lines moves the cursor.
func lines(s string) string {
	list := strings.Split(s, "\n")
	for i, line := range list {
		list[i] = printable(line)
	}
	return strings.Join(list, "\n")
}

// worse is the error of several orders: the first that is not nil.
func worse(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// choice is one of the words of its flag's tag choices. It may be typed otherwise: fail-fast is FAIL_FAST.
type choice string

const pageSize = 200

// pages asks for pages until there are limit entries, and says whether there would be more. A page may be empty and yet have a next one.
func pages[T any](limit int, page func(limit int, cursor string) (entries []T, next string, err error)) (all []T, more bool, err error) {
	seen := cursors{}
	for cursor := ""; ; {
		entries, next, err := page(min(pageSize, limit-len(all)), cursor)
		if err != nil {
			return all, false, err
		}
		all = append(all, entries...)
		if next == "" || len(all) >= limit {
			return all, next != "", nil
		}
		if err := seen.add(next); err != nil {
			return all, false, err
		}
		cursor = next
	}
}

// cursors are those that a list has given.
type cursors map[string]bool

func (c cursors) add(next string) error {
	if c[next] {
		return errors.New("the API's list goes round in circles: it gave the same cursor twice")
	}
	c[next] = true
	return nil
}

func checkLimit(f *faults, limit int) {
	if limit < 1 {
		f.add("limit", "is %d; it must be 1 or more", limit)
	}
}

// sayMore is for whoever takes the first entries for all of them.
func sayMore(p *process, more bool, shown int) {
	if more {
		fmt.Fprintf(p.stderr, "exportd: these are the first %d, there are more; raise --limit to see them\n", shown)
	}
}

// period is --since, --from and --to: when jobs were created, or something was done.
type period struct {
	Since string `flagonly:"" placeholder:"24h" help:"What is not older: 90m, 24h, 7d. A job's time is that of its creation."`
	From  string `flagonly:"" placeholder:"DAY" help:"From then on: a UTC day such as 2026-01-31, or a time such as 2026-01-31T10:00:00Z."`
	To    string `flagonly:"" placeholder:"DAY" help:"Until then; a day is included."`
}

func (c *period) check(f *faults) {
	checkTime(f, "from", c.From)
	checkTime(f, "to", c.To)
	if c.Since == "" {
		return
	}
	if c.From != "" {
		f.add("since", "and --from are both given; keep one")
	}
	ago, err := parseSince(c.Since)
	if err != nil {
		f.add("since", "%v", err)
	}
	c.From = time.Now().Add(-ago).UTC().Format(time.RFC3339)
}

// checkTime takes what the API takes.
func checkTime(f *faults, flag, s string) {
	if s == "" {
		return
	}
	for _, layout := range []string{time.DateOnly, "20060102", time.RFC3339} {
		if _, err := time.Parse(layout, s); err == nil {
			return
		}
	}
	f.add(flag, "is %q; give a UTC day such as 2026-01-31, or a time such as 2026-01-31T10:00:00Z", s)
}

func parseSince(s string) (time.Duration, error) {
	wrong := fmt.Errorf("is %q, which is not a time span such as 90m, 24h or 7d", s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, wrong
	}
	return d, nil
}
