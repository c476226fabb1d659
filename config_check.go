package main

import (
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"exportd/api"
	"exportd/webhook"
)

const (
	minLease    = 3 * time.Second // renewed every second: what a pause of the garbage collector or of a machine needs
	minPartSize = 5 << 20         // S3's own lower limit
	maxPartSize = 1 << 30
	maxWorkers  = 1000
)

func (c *databaseConfig) check(f *faults) {
	if c.URL == "" {
		f.add("database-url", "is not set; give the database of the jobs as postgres://user:password@host:5432/database")
		return
	}
	checkDatabaseURL(f, "database-url", c.URL)
}

// checkPool refuses a pool that its users could exhaust while they wait for each other: group commit, renewals, the sweeper and the relay
// each take a connection of their own.
func (c *databaseConfig) checkPool(f *faults, concurrency int) {
	const least = 4
	if c.Pool == 0 {
		c.Pool = 6 + concurrency/4
	} else if c.Pool < least {
		f.add("db-pool", "is %d; the parts of a process that use the database side by side need at least %d", c.Pool, least)
	}
}

func (c *sourceConfig) check(f *faults, truth secret, concurrency int) {
	if c.URL == "" {
		c.URL = truth
	} else {
		checkDatabaseURL(f, "source-url", c.URL)
	}
	if c.Pool == 0 {
		c.Pool = concurrency + 1
	} else if c.Pool < concurrency {
		f.add("source-pool", "is %d, below the %d chunks at a time of EXPORTD_CONCURRENCY; chunks would wait for a connection while their claims run: raise it or lower the concurrency", c.Pool, concurrency)
	}
	c.functionConfig.check(f)
}

func (c *functionConfig) check(f *faults) {
	if !functionName.MatchString(c.Function) {
		f.add("export-function", "is %q; give the name of a function, or schema.name, without its parameters", c.Function)
	}
}

var functionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$`)

// checkDatabaseURL never shows the URL, nor the parser's error, which quotes from it: a password with an unescaped / turns up there.
func checkDatabaseURL(f *faults, flag string, value secret) {
	u, err := url.Parse(string(value))
	switch {
	case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql":
		f.add(flag, "is not of the form postgres://user:password@host:5432/database; in the password write / @ : # ? %% as %%2F %%40 %%3A %%23 %%3F %%25")
	case strings.Trim(u.Path, "/") == "" && u.Query().Get("dbname") == "":
		f.add(flag, "(%s) names no database; end it with /database", value.redacted())
	}
}

func (c *brokerConfig) check(f *faults) {
	if c.Dispatch != "broker" && c.Dispatch != "database" {
		f.add("dispatch", "is %q; it must be broker or database", c.Dispatch)
		return
	}
	atLeast(f, "republish-after", c.Again, time.Second)
	if c.Backlog < 0 {
		f.add("backlog", "is %d; give a number above 0, or leave it out", c.Backlog)
	}
	if !c.used() {
		return
	}
	if len(c.URLs) == 0 {
		f.add("broker-urls", "is not set; give the broker as stomp://host:61613, or set EXPORTD_DISPATCH=database to work without one")
	}
	c.brokerLogin.check(f)
	checkQueue(f, "work-queue", c.Work)
	if c.Work == c.Parking {
		f.add("parking-queue", "is the same as EXPORTD_WORK_QUEUE; dead letters would be taken for work")
	}
}

func checkQueue(f *faults, flag, queue string) {
	if queue == "" || strings.ContainsAny(queue, "/*>,? \t\r\n") {
		f.add(flag, "is %q; give the plain name of a queue, without /queue/ and wildcards", queue)
	}
}

func (c *brokerLogin) check(f *faults) {
	secure := false
	for _, raw := range c.URLs {
		u, err := url.Parse(strings.TrimSpace(raw))
		switch {
		case err != nil || u.Scheme != "stomp" && u.Scheme != "stomp+ssl" || u.Hostname() == "":
			f.add("broker-urls", "has an address that is not of the form stomp://host:61613 or stomp+ssl://host:61614")
		case u.User != nil:
			f.add("broker-urls", "holds a login; give it as EXPORTD_BROKER_USER and EXPORTD_BROKER_PASSWORD")
		case u.Port() == "":
			f.add("broker-urls", "has no port in %s; ActiveMQ's usual ones are 61613 for stomp and 61614 for stomp+ssl", u)
		case strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			f.add("broker-urls", "has something after host and port in %s://%s; leave it out", u.Scheme, u.Host)
		}
		secure = secure || err == nil && u.Scheme == "stomp+ssl"
	}
	if c.Password != "" && c.User == "" {
		f.add("broker-user", "is not set although there is a password; set both or none")
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		switch {
		case err != nil:
			f.add("broker-ca-file", "cannot be read: %v", err)
		case !x509.NewCertPool().AppendCertsFromPEM(pem):
			f.add("broker-ca-file", "%s holds no PEM certificate", c.CAFile)
		case !secure:
			f.add("broker-ca-file", "has no use: no address in EXPORTD_BROKER_URLS starts with stomp+ssl://")
		}
	}
	checkQueue(f, "parking-queue", c.Parking)
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// maxBasePath leaves room for date folders, key and extension within S3's 1024 bytes.
const maxBasePath = 512

func (c *s3Config) check(f *faults) {
	switch {
	case c.Bucket == "":
		f.add("s3-bucket", "is not set; give the bucket that the files go to")
	case !bucketName.MatchString(c.Bucket):
		f.add("s3-bucket", "is %q; a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens", c.Bucket)
	}
	c.BasePath = strings.Trim(c.BasePath, "/")
	if c.BasePath == "" || len(c.BasePath) > maxBasePath || !basePath.MatchString("/"+c.BasePath) || strings.Contains("/"+c.BasePath+"/", "/../") || strings.Contains("/"+c.BasePath+"/", "/./") {
		f.add("s3-base-path", "is %q; give one or more names of letters, digits, . _ - = with / between them, at most %d bytes", c.BasePath, maxBasePath)
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			f.add("s3-endpoint", "is not of the form http://host:port or https://host:port")
		case u.User != nil:
			f.add("s3-endpoint", "holds a login; give it as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
		}
	}
	if c.PathStyle != "" && c.PathStyle != "true" && c.PathStyle != "false" {
		f.add("s3-path-style", "is %q, which is neither true nor false", c.PathStyle)
	}
	if c.PartSize < minPartSize || c.PartSize > maxPartSize {
		f.add("part-size", "is %s; it must be from 5MiB (S3's limit) to 1GiB", c.PartSize)
	}
}

var basePath = regexp.MustCompile(`^(/[A-Za-z0-9._=-]+)+$`)

func (c *workConfig) check(f *faults) {
	if c.Concurrency < 1 || c.Concurrency > maxWorkers {
		f.add("concurrency", "is %d; it must be from 1 to %d", c.Concurrency, maxWorkers)
	}
	atLeast(f, "chunk-timeout", c.ChunkTimeout, time.Second)
	atLeast(f, "stall-timeout", c.StallTimeout, time.Second)
	atLeast(f, "broker-fallback", c.Fallback, 0)
	if c.ReuseWindow < 0 {
		f.add("reuse-window-days", "is %d; it must be 0 or more", c.ReuseWindow)
	}
}

func (c *stopConfig) check(f *faults) { atLeast(f, "drain-timeout", c.Drain, 0) }

func (c *leaseConfig) check(f *faults) {
	atLeast(f, "lease", c.Lease, minLease)
	if c.MaxAttempts < 1 || c.MaxAttempts > 1000 {
		f.add("max-attempts", "is %d; it must be from 1 to 1000", c.MaxAttempts)
	}
	atLeast(f, "retry-base", c.RetryBase, time.Millisecond)
	if c.RetryMax < c.RetryBase {
		f.add("retry-max", "is %s, below EXPORTD_RETRY_BASE (%s); it is the upper limit of the delays", c.RetryMax, c.RetryBase)
	}
	atLeast(f, "sweep-interval", c.Sweep, 100*time.Millisecond)
	atLeast(f, "retention", c.Retention, 0)
}

func atLeast(f *faults, flag string, value, least time.Duration) {
	if value < least {
		f.add(flag, "is %s; it must be at least %s", value, least)
	}
}

func (c *httpConfig) check(f *faults) {
	checkAddr(f, c.Addr)
	if c.Auth != "" && c.Auth != "none" {
		f.add("auth", "is %q; it must be none or left out", c.Auth)
	}
	switch {
	case c.Tokens != "" && c.Auth == "none":
		f.add("auth", "is none although there is EXPORTD_TOKENS_FILE; keep one of them")
	case c.anybody() && !loopback(c.Addr):
		f.add("http-addr", "is %q, which others can reach, and nobody would be asked who they are; set EXPORTD_TOKENS_FILE, or EXPORTD_AUTH=none if that is meant", c.Addr)
	}
	c.readTokens(f)
	if c.MaxChunks < 1 || c.MaxChunks > 1_000_000 {
		f.add("max-chunks", "is %d; it must be from 1 to 1000000", c.MaxChunks)
	}
	if c.MaxBody < 1<<10 || c.MaxBody > 1<<30 {
		f.add("max-body", "is %s; it must be from 1KiB to 1GiB", c.MaxBody)
	}
	if !(c.RateLimit >= 0 && c.RateLimit <= 1_000_000) {
		f.add("rate-limit", "is %g; give requests a second, such as 50 or 0.5, or leave it out", c.RateLimit)
	}
}

// anybody says whether only what reaches the address decides who may call.
func (c *httpConfig) anybody() bool { return c.Tokens == "" && c.Auth == "" }

func (c *httpConfig) readTokens(f *faults) {
	if c.Tokens == "" {
		return
	}
	file, err := os.Open(c.Tokens)
	if err != nil {
		f.add("tokens-file", "cannot be read: %v", err)
		return
	}
	defer file.Close()
	if c.tokens, err = api.ParseTokens(file); err != nil {
		f.add("tokens-file", "%s: %s", c.Tokens, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (c *webhookConfig) check(f *faults) {
	if c.Secret == "" {
		return
	}
	var err error
	if c.secrets, err = webhook.ParseSecrets(string(c.Secret)); err != nil {
		f.add("webhook-secret", "cannot be used: %v; make one with: echo whsec_$(openssl rand -base64 32)", err)
	}
}

func (c *consumerHTTPConfig) check(f *faults) {
	if c.Addr != "" {
		checkAddr(f, c.Addr)
	}
}

func checkAddr(f *faults, addr string) {
	_, port, err := net.SplitHostPort(addr)
	if n, convErr := strconv.Atoi(port); err != nil || convErr != nil || n < 0 || n > 65535 {
		f.add("http-addr", "is %q; give host:port, such as 127.0.0.1:8080 or :8080", addr)
	}
}

// loopback says whether only this machine can reach addr; of a name other than localhost that is not known.
func loopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *logConfig) check(f *faults) {
	if c.Format != "" && c.Format != "json" && c.Format != "text" {
		f.add("log-format", "is %q; it must be json or text", c.Format)
	}
	switch c.Level {
	case "debug", "info", "warn", "error":
	default:
		f.add("log-level", "is %q; it must be debug, info, warn or error", c.Level)
	}
}
