package brokertest

import (
	"bytes"
	"context"
	"io/fs"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"exportd/activemq"
)

const (
	image = "apache/activemq-classic:6.1.7"
	// removes the container when the test binary is gone; testcontainers starts it and would pull it
	reaperImage = "testcontainers/ryuk:0.14.0"
)

// container starts the image with our configuration. ok is false when no engine answers or an image is not there: nothing is ever pulled.
func container(ctx context.Context) (url string, ok bool, err error) {
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return "", false, nil // no engine: the next choice
	}
	defer provider.Close()
	for _, name := range []string{image, reaperImage} {
		if _, err := provider.Client().ImageInspect(ctx, name); err != nil {
			return "", false, nil
		}
	}
	xml, err := fs.ReadFile(activemq.Files, "activemq.xml")
	if err != nil {
		return "", true, err
	}
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts("61613/tcp"),
		testcontainers.WithEnv(map[string]string{"AMQ_STOMP_BIND": "0.0.0.0"}),
		testcontainers.WithFiles(testcontainers.ContainerFile{
			Reader: bytes.NewReader(xml), ContainerFilePath: "/opt/apache-activemq/conf/activemq.xml", FileMode: 0o644,
		}),
		testcontainers.WithWaitStrategyAndDeadline(90*time.Second, wait.ForListeningPort("61613/tcp")),
	)
	if err != nil {
		return "", true, err
	}
	url, err = c.PortEndpoint(ctx, "61613/tcp", "stomp")
	return url, true, err
}
