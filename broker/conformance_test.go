package broker_test

import (
	"testing"

	"go.uber.org/goleak"

	"exportd/broker/brokertest"
	"exportd/broker/localmq"
)

// suite stops a container before the look for leaks.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer brokertest.Stop()
	return s.M.Run()
}

func TestMain(m *testing.M) {
	// The watcher of the shared ActiveMQ lives as long as the test binary.
	// go-stomp leaks one goroutine when a connection ends between Subscribe and the writing of its frame, and waits up to a heart-beat for the receipt
	// of a COMMIT that it never wrote.
	goleak.VerifyTestMain(suite{m}, goleak.IgnoreAnyFunction("exportd/broker/localmq.(*Server).Restart.func1"),
		goleak.IgnoreTopFunction("github.com/go-stomp/stomp/v3.(*Subscription).readLoop"),
		goleak.IgnoreTopFunction("github.com/go-stomp/stomp/v3.(*Conn).sendFrame"))
}

func TestActiveMQConforms(t *testing.T) {
	brokertest.Conformance(t, brokertest.Subject{
		Shared: brokertest.ActiveMQ,
		Private: func(t testing.TB) brokertest.Server {
			s, _ := brokertest.PrivateActiveMQ(t, localmq.Config{TLS: true})
			return s
		},
	})
}
