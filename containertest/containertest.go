// Package containertest runs the services that tests need in containers, through testcontainers. Nothing is ever pulled.
//
// A container lives as long as the connection to its standard input, so it ends with the test binary, however that ends, and the engine removes it then.
// The library's reaper, one more image to be there, is not needed.
package containertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// ErrNone is what Start returns where no engine answers or the image is not there, and programs of this machine will do.
var ErrNone = errors.New("no container engine with the image")

// Required says whether EXPORTD_TEST_REQUIRE names containers: programs of this machine will not do.
func Required() bool {
	return slices.Contains(strings.Split(os.Getenv("EXPORTD_TEST_REQUIRE"), ","), "containers")
}

// Service is what to run.
type Service struct {
	Image   string
	Command []string // instead of the image's own
	Env     map[string]string
	Files   map[string][]byte // by their path in the container
	Port    string            // that it serves: "5432/tcp"
	// It is ready when the port is open and, where these are given, when it has written Log, a regular expression, and answers Path by HTTP.
	Log, Path string
}

const (
	lookLimit  = 5 * time.Second
	startLimit = 90 * time.Second
)

// lifeline runs the service as its arguments say, until that ends or standard input does.
const lifeline = `trap 'exit 1' INT TERM; { "$@"; kill $$; } & read -r end`

// Start returns when the service is ready, with the address that its port is published at, host:port, and with what ends it.
func Start(ctx context.Context, s Service) (address string, end func() error, err error) {
	engine, own, err := look(ctx, s.Image)
	if err != nil {
		if Required() {
			return "", nil, fmt.Errorf("EXPORTD_TEST_REQUIRE asks for containers: %v", err)
		}
		return "", nil, fmt.Errorf("%w %s: %v", ErrNone, s.Image, err)
	}
	defer engine.Close()
	if s.Command == nil {
		s.Command = own
	}
	ready := []wait.Strategy{wait.ForListeningPort(s.Port)}
	if s.Log != "" {
		ready = append(ready, wait.ForLog(s.Log).AsRegexp())
	}
	if s.Path != "" {
		ready = append(ready, wait.ForHTTP(s.Path).WithPort(s.Port))
	}
	var files []testcontainers.ContainerFile
	for path, content := range s.Files {
		files = append(files, testcontainers.ContainerFile{ContainerFilePath: path, Reader: bytes.NewReader(content), FileMode: 0o644})
	}
	var held client.HijackedResponse
	hold := func(ctx context.Context, c testcontainers.Container) error {
		attached, err := engine.ContainerAttach(ctx, c.GetContainerID(), client.ContainerAttachOptions{Stream: true, Stdin: true})
		held = attached.HijackedResponse
		return err
	}
	c, err := testcontainers.Run(ctx, s.Image,
		testcontainers.WithEntrypoint("sh", "-c", lifeline, "sh"),
		testcontainers.WithCmd(s.Command...),
		testcontainers.WithEnv(s.Env),
		testcontainers.WithFiles(files...),
		testcontainers.WithExposedPorts(s.Port),
		testcontainers.WithConfigModifier(func(c *container.Config) { c.AttachStdin, c.OpenStdin, c.StdinOnce = true, true, true }),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) { h.AutoRemove = true }),
		testcontainers.WithAdditionalLifecycleHooks(testcontainers.ContainerLifecycleHooks{PreStarts: []testcontainers.ContainerHook{hold}}),
		testcontainers.WithWaitStrategyAndDeadline(startLimit, ready...),
	)
	end = func() error {
		err := testcontainers.TerminateContainer(c)
		if held.Conn != nil {
			held.Close()
		}
		return err
	}
	if err == nil {
		address, err = c.PortEndpoint(ctx, s.Port, "")
	}
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("a container of %s: %w", s.Image, err), end())
	}
	return address, end, nil
}

// look finds the engine that has the image, and the image's own command.
func look(ctx context.Context, image string) (engine *testcontainers.DockerClient, command []string, err error) {
	defer func() {
		if missing := recover(); missing != nil { // what the library does when it finds no engine at all
			engine, err = nil, fmt.Errorf("%v", missing)
		}
	}()
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if engine, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return nil, nil, err
	}
	found, err := engine.ImageInspect(ctx, image)
	if err != nil {
		engine.Close()
		return nil, nil, err
	}
	if _, set := os.LookupEnv(hostOverride); !set && besideUs(ctx, engine) {
		if err := os.Setenv(hostOverride, "localhost"); err != nil {
			engine.Close()
			return nil, nil, err
		}
	}
	if c := found.Config; c != nil {
		command = slices.Concat(c.Entrypoint, c.Cmd)
	}
	return engine, command, nil
}

// hostOverride is the library's variable for the host that ports are published at. From within a container the library takes the gateway for it.
const hostOverride = "TESTCONTAINERS_HOST_OVERRIDE"

// besideUs says whether the engine shares our network, as one does that was started within the container that we are in.
func besideUs(ctx context.Context, engine *testcontainers.DockerClient) bool {
	bridge, err := engine.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if err != nil {
		return false
	}
	_, err = net.InterfaceByName(bridge.Network.Options["com.docker.network.bridge.name"])
	return err == nil
}
