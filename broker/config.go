package broker

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"
)

// Config says which brokers to use and how. All URLs are one broker to exportd: the members of a failover pair.
type Config struct {
	URLs           []string // stomp://host:61613, stomp+ssl://host:61614; tried in turn
	User, Password string
	CAFile         string        // PEM; trusted for stomp+ssl instead of the system's authorities
	HeartBeat      time.Duration // 0: 10 s when consuming, 30 s when publishing
	Log            *slog.Logger  // nil: the default logger
}

// Validate says in plain words everything that is wrong with the configuration. It asks no broker.
func (c Config) Validate() []string {
	var faults []string
	if len(c.URLs) == 0 {
		faults = append(faults, "no broker URL is given; write stomp://host:61613 or stomp+ssl://host:61614")
	}
	secure := false
	for _, raw := range c.URLs {
		a, err := parseURL(raw)
		if err != nil {
			faults = append(faults, err.Error())
		}
		secure = secure || a.secure
	}
	if c.CAFile != "" {
		if !secure && len(c.URLs) > 0 {
			faults = append(faults, "a CA file is given, but no broker URL is stomp+ssl://")
		}
		if _, err := c.authorities(); err != nil {
			faults = append(faults, err.Error())
		}
	}
	if c.User == "" && c.Password != "" {
		faults = append(faults, "a broker password is given without a user")
	}
	return faults
}

// address is one parsed URL.
type address struct {
	host, port string
	secure     bool
}

func (a address) hostPort() string { return net.JoinHostPort(a.host, a.port) }

func (a address) String() string {
	if a.secure {
		return "stomp+ssl://" + a.hostPort()
	}
	return "stomp://" + a.hostPort()
}

// parseURL's errors never repeat user information: it may be a password.
func parseURL(raw string) (address, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return address{}, fmt.Errorf("a broker URL cannot be read; write stomp://host:61613 or stomp+ssl://host:61614")
	}
	if u.User != nil {
		return address{}, fmt.Errorf("broker URL for %s: user and password do not belong into the URL", u.Host)
	}
	a := address{host: u.Hostname(), secure: u.Scheme == "stomp+ssl"}
	switch {
	case u.Scheme != "stomp" && u.Scheme != "stomp+ssl":
		return address{}, fmt.Errorf("broker URL %q: the scheme must be stomp or stomp+ssl", raw)
	case a.host == "":
		return address{}, fmt.Errorf("broker URL %q has no host", raw)
	case u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
		return address{}, fmt.Errorf("broker URL %q: nothing may follow the port", raw)
	}
	a.port = cmp.Or(u.Port(), map[bool]string{false: "61613", true: "61614"}[a.secure])
	if n, err := strconv.Atoi(a.port); err != nil || n < 1 || n > 65535 {
		return address{}, fmt.Errorf("broker URL %q: the port must be between 1 and 65535", raw)
	}
	return a, nil
}

func (c Config) authorities() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil // the system's
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("broker CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("broker CA file %s holds no PEM certificate", c.CAFile)
	}
	return pool, nil
}

func (c Config) tls(host string) (*tls.Config, error) {
	pool, err := c.authorities()
	if err != nil {
		return nil, err
	}
	return &tls.Config{ServerName: host, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func (c Config) log() *slog.Logger {
	if c.Log == nil {
		return slog.Default()
	}
	return c.Log
}
