package dbtest

import (
	"context"

	"exportd/containertest"
)

// Image is used where a container engine has it.
const Image = "postgres:18"

// startContainer starts the test binary's server in a container.
func startContainer(ctx context.Context) (admin string, end func() error, err error) {
	command := []string{"docker-entrypoint.sh", "postgres"}
	for name, value := range settings {
		command = append(command, "-c", name+"="+value)
	}
	address, end, err := containertest.Start(ctx, containertest.Service{
		Image:   Image,
		Command: command,
		Env:     map[string]string{"POSTGRES_PASSWORD": "exportd"},
		Port:    "5432/tcp",
		Log:     `(?s)ready to accept connections.*ready to accept connections`, // it is started twice: to initialise, then for good
	})
	return "postgres://postgres:exportd@" + address + "/postgres?sslmode=disable", end, err
}
