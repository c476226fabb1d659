package broker_test

import (
	"testing"

	"go.uber.org/goleak"

	"exportd/broker/brokertest"
	"exportd/broker/localmq"
)

func TestMain(m *testing.M) {
	// The watcher of the shared ActiveMQ lives as long as the test binary.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("exportd/broker/localmq.(*Server).Restart.func1"))
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
