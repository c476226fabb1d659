package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// healthcheckCommand asks /healthz of the process beside it. In a container that holds nothing but exportd there is no other program to ask with.
type healthcheckCommand struct {
	Addr string `name:"http-addr" default:"127.0.0.1:8080" help:"Address that the api or consumer serves, host:port."`
}

func (c *healthcheckCommand) check(f *faults) { checkAddr(f, c.Addr) }

const healthcheckLimit = 5 * time.Second

func (c *healthcheckCommand) run(ctx context.Context, _ *process) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(c.Addr)+"/healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s answers %s: %s", req.URL, resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// reachable is where to find on this machine what listens at addr, which may stand for every address.
func reachable(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
