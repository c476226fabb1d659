package s3test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"exportd/s3out/locals3"
)

// Image is used if it is on this machine; tests pull nothing.
const Image = "ghcr.io/versity/versitygw:" + locals3.Version

const port = "7070/tcp"

var errNoEngine = errors.New("no container engine with the image " + Image)

// container starts the image, or returns errNoEngine.
func container(ctx context.Context) (endpoint string, stop func(), err error) {
	if !haveImage(ctx) {
		return "", nil, errNoEngine
	}
	c, err := testcontainers.Run(ctx, Image,
		testcontainers.WithExposedPorts(port),
		testcontainers.WithEnv(map[string]string{"ROOT_ACCESS_KEY": locals3.AccessKey, "ROOT_SECRET_KEY": locals3.SecretKey}),
		testcontainers.WithEntrypoint("sh", "-c"),
		testcontainers.WithCmd("mkdir -p /tmp/data /tmp/sidecar && exec versitygw --port :7070 --keep-alive --quiet --health /healthz posix --sidecar /tmp/sidecar /tmp/data"),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/healthz").WithPort(port).WithStartupTimeout(30*time.Second)))
	if err != nil {
		return "", nil, fmt.Errorf("starting a container of %s: %w", Image, err)
	}
	endpoint, err = c.PortEndpoint(ctx, port, "http")
	if err != nil {
		return "", nil, errors.Join(err, testcontainers.TerminateContainer(c))
	}
	return endpoint, func() { _ = testcontainers.TerminateContainer(c) }, nil
}

// haveImage also switches the library's reaper off, whose own image would have to be pulled.
func haveImage(ctx context.Context) (ok bool) {
	defer func() {
		if recover() != nil { // what the library does when it finds no engine at all
			ok = false
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return false
	}
	defer client.Close()
	if _, err := client.ImageInspect(ctx, Image); err != nil {
		return false
	}
	return os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true") == nil
}
