package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"exportd/export"
)

const (
	connectTimeout = 5 * time.Second
	headerTimeout  = 10 * time.Second
	maxHeader      = 64 << 10
	// politeRead is how much of an answer is taken off the line, so that its sender is not cut off in the middle of a few words. It is not looked at.
	politeRead = 16 << 10
)

// answer is what came of a call.
type answer struct {
	taken      bool
	gone       bool // the receiver wants no more
	reason     string
	retryAfter time.Duration // that the receiver asked for; 0: none
}

// newClient makes the client of all calls. No connection is kept: none can break between two calls, and each is made to an address that was checked.
func newClient(allowPrivate bool) *http.Client {
	dialer := &net.Dialer{Timeout: connectTimeout}
	if !allowPrivate {
		dialer.Control = onlyPublic
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTimeout, ResponseHeaderTimeout: headerTimeout,
			MaxResponseHeaderBytes: maxHeader, DisableKeepAlives: true, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call tells the receiver of the event.
func (d *Deliverer) call(ctx context.Context, e export.Webhook) answer {
	if err := CheckURL(e.URL, d.cfg.AllowPrivate); err != nil { // the setting may have changed since the job was taken
		return answer{reason: "the URL " + err.Error()}
	}
	body, err := d.cfg.Body(e.Job)
	if err != nil {
		return answer{reason: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return answer{reason: err.Error()}
	}
	now := time.Now()
	req.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"exportd/" + cmp.Or(d.cfg.Version, "unknown")},
		"Webhook-Id": {e.EventID}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {d.cfg.Secrets.Sign(e.EventID, now, body)},
	}
	resp, err := d.client.Do(req)
	if err != nil {
		if in, ok := errors.AsType[*url.Error](err); ok {
			err = in.Err // the rest is the URL, which may hold a key
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", d.cfg.Timeout)
		}
		return answer{reason: export.ErrorText(err.Error())}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols { // such a body is the connection itself, and knows of no timeout
		_, _ = io.CopyN(io.Discard, resp.Body, politeRead) // what counts has come already
	}
	return answer{
		taken: resp.StatusCode/100 == 2, gone: resp.StatusCode == http.StatusGone, reason: "the receiver answered " + strconv.Itoa(resp.StatusCode),
		retryAfter: retryAfter(resp.Header.Get("Retry-After"), now),
	}
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(min(max(seconds, 0), 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
