package api

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"
)

// Limits of what clients hold open, and of how many clients are remembered.
const (
	mostStreams       = 5000 // of all clients
	mostClientStreams = 1000
	mostClients       = 10_000
)

// limiter bounds what a client may ask for. A client is a token, or an address where there are no tokens.
type limiter struct {
	rate    rate.Limit // requests a second; 0: no limit
	burst   int        // requests at once
	perOne  int        // answers held open for a client
	overall int        // and for all clients

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	swept   time.Time
	streams map[string]int // answers held open, of those who have some
	open    int            // the sum of them
}

func newLimiter(c Config) *limiter {
	return &limiter{
		rate: rate.Limit(c.RateLimit), burst: int(max(1, math.Ceil(c.RateLimit))), perOne: cmp.Or(c.Streams.Client, mostClientStreams), overall: cmp.Or(c.Streams.All, mostStreams),
		buckets: map[string]*rate.Limiter{}, streams: map[string]int{},
	}
}

// take counts a request and says how long the client should have waited with it; 0 means that it may go on. A client that was idle may send a second's
// worth of requests at once.
func (l *limiter) take(client string, now time.Time) (wait time.Duration) {
	if l.rate == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket := l.buckets[client]
	if bucket == nil {
		if len(l.buckets) >= mostClients {
			if l.sweep(now); len(l.buckets) >= mostClients {
				client = "" // all further clients share one
			}
		}
		if bucket = l.buckets[client]; bucket == nil {
			bucket = rate.NewLimiter(l.rate, l.burst)
			l.buckets[client] = bucket
		}
	}
	turn := bucket.ReserveN(now, 1)
	if wait = turn.DelayFrom(now); wait > 0 {
		turn.CancelAt(now)
	}
	return wait
}

// sweep forgets clients that are as good as new. It looks at all of them, so not more than once a second.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for client, bucket := range l.buckets {
		if bucket.TokensAt(now) >= float64(bucket.Burst()) {
			delete(l.buckets, client)
		}
	}
}

// hold lets a client keep an answer open until release is called; release is nil when err says that it may not.
func (l *limiter) hold(client string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.streams[client] >= l.perOne:
		return nil, limited(kindTooMany, fmt.Sprintf("%d answers are held open for this client, which is the most: close some first", l.perOne), 5)
	case l.open >= l.overall:
		return nil, limited(kindUnavailable, "too many clients are watching jobs; ask for the job now and then instead, or try again later", 10)
	}
	l.streams[client]++
	l.open++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.streams[client]--; l.streams[client] == 0 {
			delete(l.streams, client)
		}
	}), nil
}

func (l *limiter) held() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.open)
}

func limited(k kind, detail string, seconds int) *problem {
	p := newProblem(k, detail)
	p.header = http.Header{"Retry-After": {strconv.Itoa(seconds)}}
	return p
}

// limit refuses a request that comes too soon after others of its client, and says so by false.
func (a *API) limit(c *gin.Context, client string) bool {
	requestOf(c.Request.Context()).client = client
	wait := a.limits.take(client, time.Now())
	if wait == 0 {
		return true
	}
	seconds := int(math.Ceil(min(wait, time.Hour).Seconds()))
	a.fail(c, limited(kindTooMany, fmt.Sprintf("%g requests a second are allowed; wait for %d s", a.RateLimit, seconds), seconds))
	return false
}

// address is who sent the request, as far as the connection tells. An IPv6 client can choose among the addresses of its network, so that counts as one.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		network, _ := ip.Prefix(64) // of an IPv6 address it always exists
		return network.String()
	}
	return ip.String()
}
