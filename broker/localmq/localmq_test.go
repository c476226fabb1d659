package localmq_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"exportd/broker/localmq"
)

func TestBrokerIsKilledRestartedOnItsPortAndStopped(t *testing.T) {
	if err := localmq.Missing(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := localmq.Start(ctx, localmq.Config{TLS: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(ctx)

	pem, err := os.ReadFile(s.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("the CA file holds no certificate")
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.TLSURL(), "stomp+ssl://"), &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()

	url := s.URL()
	s.Kill()
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		c.Close()
		t.Fatal("a killed broker accepts connections")
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if s.URL() != url {
		t.Fatalf("came back at %s, was at %s", s.URL(), url)
	}
}
