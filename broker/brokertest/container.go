package brokertest

import (
	"context"
	"io/fs"

	"exportd/activemq"
	"exportd/containertest"
)

// Image is used where a container engine has it.
const Image = "apache/activemq-classic:5.19.2"

// container starts the image with our configuration.
func container(ctx context.Context) (url string, end func() error, err error) {
	xml, err := fs.ReadFile(activemq.Files, "activemq.xml")
	if err != nil {
		return "", nil, err
	}
	address, end, err := containertest.Start(ctx, containertest.Service{
		Image: Image,
		Env:   map[string]string{"AMQ_STOMP_BIND": "0.0.0.0"},
		Port:  "61613/tcp",
		Files: map[string][]byte{"/opt/apache-activemq/conf/activemq.xml": xml},
	})
	return "stomp://" + address, end, err
}
