package dbtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Image is used when a container engine has it; it is never pulled.
const Image = "postgres:18"

// startContainer starts the test binary's server in a container that ends by itself after an hour, should this process be killed.
func startContainer(ctx context.Context) (admin string, end func(context.Context) error, err error) {
	// The reaper is one more image, which may be missing and would be pulled.
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return "", nil, err
	}
	engine, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return "", nil, err
	}
	defer engine.Close()
	if _, err := engine.ImageInspect(ctx, Image); err != nil {
		return "", nil, err
	}
	const port = "5432/tcp"
	command := []string{"-h", "0.0.0.0"}
	for name, value := range settings {
		command = append(command, "-c", name+"="+value)
	}
	c, err := testcontainers.Run(ctx, Image,
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": "exportd"}),
		testcontainers.WithEntrypoint("timeout", "-k", "10", "3600", "docker-entrypoint.sh", "postgres"),
		testcontainers.WithCmd(command...),
		testcontainers.WithExposedPorts(port),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) { h.AutoRemove = true }),
		// The entrypoint starts the server twice: first to initialise, then for good, and only then on the network.
		testcontainers.WithWaitStrategyAndDeadline(time.Minute, wait.ForLog("ready to accept connections").WithOccurrence(2), wait.ForListeningPort(port)),
	)
	if c != nil {
		end = func(ctx context.Context) error { return c.Terminate(ctx) }
	}
	if err == nil {
		admin, err = containerURL(ctx, c, port)
	}
	if err != nil && end != nil {
		_ = end(context.Background()) // the first error counts
	}
	return admin, end, err
}

func containerURL(ctx context.Context, c *testcontainers.DockerContainer, port string) (string, error) {
	host, err := c.Host(ctx)
	if err != nil {
		return "", err
	}
	mapped, err := c.MappedPort(ctx, port)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("postgres://postgres:exportd@%s:%s/postgres?sslmode=disable", host, mapped.Port()), nil
}
