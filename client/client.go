// Package client calls exportd's HTTP API: for the commands of people, and for the console.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrUnreachable is of calls that got no answer of an api that works: no connection, a broken answer, 5xx, or 429.
	ErrUnreachable = errors.New("the API cannot be reached")
	ErrUnknown     = errors.New("unknown job")
)

const maxAnswer = 64 << 20

// The API itself gives up an order after half a minute.
const (
	questionLimit = 30 * time.Second
	orderLimit    = 90 * time.Second
)

// Client names an API. The zero Patience gives up at the first lost answer.
type Client struct {
	URL, Token string
	Transport  http.RoundTripper // nil: the network
	Every      time.Duration     // between two looks of Watch
	Patience   time.Duration     // that Watch has with an API that is away
	Quiet      time.Duration     // after which a stream that says nothing is taken for broken; 0: 45 s, three signs of life
	Away       func(error)       // told, when set, of each call of Watch that failed and is tried again
}

// Problem is a refusal of the API: RFC 9457.
type Problem struct {
	Type, Title, Detail, RequestID string
	Status                         int // of HTTP
	Errors                         []struct{ Pointer, Header, Parameter, Detail string }
}

// Error gives each fault a line of its own.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", p.Title, p.Detail)
	for _, e := range p.Errors {
		b.WriteString("\n  ")
		if at := e.Pointer + e.Header + e.Parameter; at != "" {
			b.WriteString(at + ": ")
		}
		b.WriteString(e.Detail)
	}
	return b.String()
}

// Raw is an answer as it came, on one line, for machines.
type Raw = json.RawMessage

// call sends body as JSON, if there is one, and reads the answer into answer. The errors are ErrUnreachable, ErrUnknown, a *Problem, or say themselves what to do.
func (c Client) call(ctx context.Context, method, path string, query url.Values, body, answer any) (Raw, error) {
	raw, _, err := c.exchange(ctx, method, path, query, nil, body, answer)
	return raw, err
}

// exchange is call with headers.
func (c Client) exchange(ctx context.Context, method, path string, query url.Values, header http.Header, body, answer any) (Raw, http.Header, error) {
	limit := questionLimit
	if method != http.MethodGet {
		limit = orderLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := c.send(ctx, method, path, query, header, body)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: its answer broke off: %w", ErrUnreachable, err)
	}
	if err := c.refusal(resp, text); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, nil, c.stranger()
	}
	return bytes.TrimSpace(text), resp.Header, nil
}

// send waits when the API asks for it, for as long as ctx allows.
func (c Client) send(ctx context.Context, method, path string, query url.Values, header http.Header, body any) (*http.Response, error) {
	for {
		req, err := c.request(ctx, method, path, query, body)
		if err != nil {
			return nil, err
		}
		maps.Copy(req.Header, header)
		resp, err := c.http().Do(req)
		if err != nil {
			return nil, unreachable(err)
		}
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		deadline, _ := ctx.Deadline()
		wait := time.Duration(max(1, seconds)) * time.Second
		if resp.StatusCode != http.StatusTooManyRequests || err != nil || time.Until(deadline) < wait {
			return resp, nil
		}
		resp.Body.Close()
		select {
		case <-ctx.Done():
			return nil, unreachable(ctx.Err())
		case <-time.After(wait):
		}
	}
}

// unreachable leaves out what net/http repeats of the request.
func unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func (c Client) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case Raw: // as somebody wrote it, faults and all
		content = bytes.NewReader(b)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	target := strings.TrimRight(c.URL, "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return req, nil
}

func (c Client) http() *http.Client { return &http.Client{Transport: c.Transport} }

// refusal is the error of an answer that is none of success.
func (c Client) refusal(resp *http.Response, body []byte) error {
	problem := &Problem{}
	isProblem := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") && json.Unmarshal(body, problem) == nil
	switch status := resp.StatusCode; {
	case status >= 200 && status < 300:
		return nil
	case status >= 500 && isProblem:
		return fmt.Errorf("%w: %w", ErrUnreachable, &unwell{resp.Status, problem.Detail})
	case status >= 500 || status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: it answered %s", ErrUnreachable, resp.Status)
	case status == http.StatusUnauthorized:
		return errors.New("the API wants a valid bearer token: set EXPORTD_TOKEN")
	case !isProblem:
		return c.stranger()
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrUnknown, problem.Detail)
	}
	return problem
}

// unwell is exportd's own word that it cannot work just now.
type unwell struct{ status, detail string }

func (e *unwell) Error() string { return "it answered " + e.status + ": " + e.detail }

func (c Client) stranger() error {
	address := c.URL
	if u, err := url.Parse(address); err == nil {
		address = u.Redacted()
	}
	return fmt.Errorf("%s does not answer as exportd does: check EXPORTD_URL", address)
}

// values are the parameters that are not empty.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" && pairs[i+1] != "0" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}
