package localmq

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

const storePassword = "changeit" // keytool insists on one; the file is private to its folder

// makeCertificate writes broker.p12 and ca.pem. keytool comes with java; Go's library cannot write PKCS #12.
func (s *Server) makeCertificate(ctx context.Context) error {
	store := []string{"-alias", "broker", "-keystore", s.path("conf", "broker.p12"), "-storetype", "PKCS12", "-storepass", storePassword}
	for _, args := range [][]string{
		{"-genkeypair", "-keyalg", "EC", "-validity", "3650", "-dname", "CN=localhost", "-ext", "san=dns:localhost,ip:127.0.0.1", "-ext", "bc:c=ca:true"},
		{"-exportcert", "-rfc", "-file", s.path("conf", "ca.pem")},
	} {
		if out, err := exec.CommandContext(ctx, "keytool", append(args, store...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("keytool: %w: %s", err, bytes.TrimSpace(out))
		}
	}
	return nil
}

func (s *Server) withTLS(xml []byte) []byte {
	context := fmt.Sprintf(`<sslContext><sslContext keyStore="file:%s" keyStorePassword="%s" keyStoreType="PKCS12"/></sslContext>`,
		s.path("conf", "broker.p12"), storePassword)
	connector := fmt.Sprintf(`<transportConnector name="stomp+ssl" uri="stomp+ssl://127.0.0.1:%s?transport.enabledProtocols=TLSv1.2,TLSv1.3&amp;transport.tcpNoDelay=true"/>`,
		strconv.Itoa(s.tlsPort))
	xml = bytes.Replace(xml, []byte("<systemUsage>"), []byte(context+"\n    <systemUsage>"), 1)
	return bytes.Replace(xml, []byte("</transportConnectors>"), []byte(connector+"\n    </transportConnectors>"), 1)
}
