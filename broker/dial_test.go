package broker_test

import (
	"context"
	"net"
	"testing"
	"time"

	"exportd/broker"
	"exportd/broker/brokertest"
	"exportd/broker/embedded"
)

// A broker that accepts and says nothing, first of a list, must not use up the time of a short check.
func TestASilentAddressLeavesTimeForTheNext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	b, err := embedded.Listen("127.0.0.1:0", embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	cfg := broker.Config{URLs: []string{"stomp://" + silent.Addr().String(), b.URL()}, Log: brokertest.Log(t)}
	if faults := broker.Check(ctx, cfg); len(faults) > 0 {
		t.Fatal(faults)
	}
}
