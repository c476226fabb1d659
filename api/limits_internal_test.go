package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestAClientHasItsRequestsASecond(t *testing.T) {
	t.Parallel()
	l := newLimiter(Config{RateLimit: 2.5})
	now := time.Unix(1_700_000_000, 0)
	for range 3 { // the burst of an idle client
		if wait := l.take("a", now); wait != 0 {
			t.Fatalf("wait %v", wait)
		}
	}
	for range 5 { // refusals cost nothing more
		if wait := l.take("a", now); wait != 400*time.Millisecond {
			t.Errorf("wait %v", wait)
		}
	}
	if wait := l.take("b", now); wait != 0 {
		t.Errorf("another client waits %v", wait)
	}
	if wait := l.take("a", now.Add(400*time.Millisecond)); wait != 0 {
		t.Errorf("after the wait: %v", wait)
	}
	served := 0
	for ms := range 10_000 {
		if l.take("a", now.Add(time.Second+time.Duration(ms)*time.Millisecond)) == 0 {
			served++
		}
	}
	if served < 25 || served > 29 {
		t.Errorf("%d requests in 10 s", served)
	}
}

func TestClientsWithoutEndAreNotRememberedWithoutEnd(t *testing.T) {
	t.Parallel()
	l := newLimiter(Config{RateLimit: 1})
	now := time.Unix(1_700_000_000, 0)
	served := 0
	for n := range 5 * mostClients {
		if l.take(fmt.Sprint(n), now) == 0 {
			served++
		}
	}
	if len(l.buckets) > mostClients+1 || served > mostClients+1 {
		t.Errorf("%d clients are remembered, %d were served", len(l.buckets), served)
	}
	later := now.Add(2 * time.Second) // all are as good as new
	if wait := l.take("new", later); wait != 0 || len(l.buckets) > 1 {
		t.Errorf("wait %v, %d clients", wait, len(l.buckets))
	}
}

func TestHeldAnswersAreCountedPerClientAndInAll(t *testing.T) {
	t.Parallel()
	l := newLimiter(Config{Streams: Streams{Client: 2, All: 3}})
	hold := func(client string, status int) func() {
		t.Helper()
		release, err := l.hold(client)
		if p, _ := err.(*problem); (err == nil) != (status == 0) || err != nil && (p.Status != status || p.header.Get("Retry-After") == "") {
			t.Errorf("%s: %v, want %d", client, err, status)
		}
		return release
	}
	first := hold("a", 0)
	hold("a", 0)
	hold("a", http.StatusTooManyRequests)
	hold("b", 0)
	hold("b", http.StatusServiceUnavailable)
	first()
	first() // again is nothing
	hold("b", 0)
	hold("b", http.StatusTooManyRequests)
	hold("a", http.StatusServiceUnavailable)
}

func TestAnAddressIsWhoCanChangeIt(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[2001:db8:1:2::9]:81": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80": "fe80::/64", "": "", "@": "@",
	} {
		if got := address(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%q: got %q, want %q", remote, got, want)
		}
	}
}
