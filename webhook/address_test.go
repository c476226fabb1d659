package webhook_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"exportd/export"
	"exportd/webhook"
)

func TestOnlyPublicAddressesAreCalled(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192",
		"192.0.2.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"168.63.129.16", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b:1::1", "100::1", "fe80::1", "fe80::1%eth0",
		"fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "5f00::1",
	} {
		if webhook.Public(netip.MustParseAddr(a)) {
			t.Errorf("%s would be called", a)
		}
	}
	for _, a := range []string{"8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.0.1.1", "2606:4700::1111", "2a00:1450::1", "2001:4860::8888"} {
		if !webhook.Public(netip.MustParseAddr(a)) {
			t.Errorf("%s would not be called", a)
		}
	}
}

func TestAURLThatCannotBeCalledIsKnownBefore(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://receiver.example/x?y": "", "https://8.8.8.8:8443/": "", "http://receiver.example/": "https", "https://127.0.0.1/": "not public", "https://[::1]:443/": "not public",
		"https://[::ffff:10.0.0.1]/": "not public", "https://u:p@receiver.example/": "user name", "https://%zz": "not a URL", "ftp://x/": "https",
	} {
		err := webhook.CheckURL(url, false)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"http://127.0.0.1:1/", "https://10.0.0.1/"} {
		if err := webhook.CheckURL(url, true); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestAPrivateAddressIsRefusedBeforeItIsConnectedTo(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{}, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connected <- struct{}{}
			conn.Close()
		}
	}()
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	// A name that resolves to a private address is all that a rebinding server can offer; the others were stored under other settings.
	l := newLedger(export.Webhook{URL: "https://localhost:" + port}, export.Webhook{URL: "https://127.0.0.1:" + port}, export.Webhook{URL: "http://localhost.:" + port})
	l.hold = true
	w := deliver(t, l, private(false))
	l.until(t, "all are refused", func() bool { return len(l.reasons) == 3 })
	w.stop()
	if reason := l.reasons["evt_1"][0]; !strings.Contains(reason, "not a public address") || !strings.Contains(reason, "EXPORTD_WEBHOOK_ALLOW_PRIVATE") {
		t.Errorf("by name: %s", reason)
	}
	if len(connected) > 0 {
		t.Errorf("%d connections were made", len(connected))
	}
	if n := w.Failed.Load(); n != 3 {
		t.Errorf("%d failures are counted", n)
	}
}

func private(allowed bool) func(*webhook.Config) {
	return func(c *webhook.Config) { c.AllowPrivate = allowed }
}
