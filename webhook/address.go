package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"syscall"
)

// errPrivate refuses an address that is not one of the public internet.
var errPrivate = errors.New("not a public address; EXPORTD_WEBHOOK_ALLOW_PRIVATE=true would allow it")

// special are blocks within the unicast space that lead to this machine, to its network, to another address inside them, or nowhere (the IANA
// special-purpose address registries).
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	"168.63.129.16/32", // the platform's own address in every Azure network
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

// globalIPv6 is all that is assigned; the ways from IPv6 into IPv4 (mapped, NAT64) lie outside.
var globalIPv6 = netip.MustParsePrefix("2000::/3")

func prefixes(list ...string) (parsed []netip.Prefix) {
	for _, s := range list {
		parsed = append(parsed, netip.MustParsePrefix(s))
	}
	return parsed
}

// public says whether the address is one that anybody on the internet could reach.
func public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" || a.Is6() && !globalIPv6.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// onlyPublic is for net.Dialer.Control, which sees each address after the name was resolved and before it is connected to.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !public(at.Addr()) {
		return fmt.Errorf("%s is %w", at.Addr(), errPrivate)
	}
	return nil
}

// CheckURL says why a callback URL cannot be called, as far as that is known without looking its name up.
func CheckURL(raw string, allowPrivate bool) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.User != nil:
		return errors.New("must not hold a user name or password")
	case allowPrivate:
		return nil
	case u.Scheme != "https":
		return errors.New("must begin with https://")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !public(a) {
		return errors.New("names an address that is not public, which this server does not call")
	}
	return nil
}
