package s3test

import (
	"context"

	"exportd/containertest"
	"exportd/s3out/locals3"
)

// Image is used where a container engine has it.
const Image = "ghcr.io/versity/versitygw:" + locals3.Version

// container starts the test binary's S3 in a container.
func container(ctx context.Context) (endpoint string, end func() error, err error) {
	address, end, err := containertest.Start(ctx, containertest.Service{
		Image:   Image,
		Command: []string{"sh", "-c", "mkdir -p /tmp/data /tmp/sidecar && exec versitygw --port :7070 --keep-alive --quiet --health /healthz posix --sidecar /tmp/sidecar /tmp/data"},
		Env:     map[string]string{"ROOT_ACCESS_KEY": locals3.AccessKey, "ROOT_SECRET_KEY": locals3.SecretKey},
		Port:    "7070/tcp",
		Path:    "/healthz",
	})
	return "http://" + address, end, err
}
