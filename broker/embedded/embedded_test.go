package embedded_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exportd/broker/brokertest"
	"exportd/broker/embedded"
)

func TestMain(m *testing.M) {
	// go-stomp leaks one goroutine when a connection ends between Subscribe and the writing of its frame, and waits up to a heart-beat for the receipt
	// of a COMMIT that it never wrote.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/go-stomp/stomp/v3.(*Subscription).readLoop"),
		goleak.IgnoreTopFunction("github.com/go-stomp/stomp/v3.(*Conn).sendFrame"))
}

func listen(t testing.TB, opts embedded.Options) *embedded.Broker {
	t.Helper()
	b, err := embedded.Listen("127.0.0.1:0", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestEmbeddedBrokerConforms(t *testing.T) {
	opts := embedded.Options{User: "admin", Password: `p:a\s s=ü`}
	server := func(t testing.TB) brokertest.Server {
		b := listen(t, opts)
		return brokertest.Server{Name: "embedded", URLs: []string{b.URL()}, User: opts.User, Password: opts.Password, Private: controls{b}}
	}
	brokertest.Conformance(t, brokertest.Subject{
		Shared: server,
		Private: func(t testing.TB) brokertest.Server {
			s := server(t)
			withTLS := opts
			withTLS.TLS, s.CAFile = certificate(t)
			s.TLSURL = listen(t, withTLS).URL()
			return s
		},
	})
}

type controls struct{ b *embedded.Broker }

func (c controls) Kill()                         { c.b.Close() }
func (c controls) Restart(context.Context) error { return c.b.Reopen() }

// certificate for 127.0.0.1, signed by itself, and the file to trust it by.
func certificate(t testing.TB) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, file
}
