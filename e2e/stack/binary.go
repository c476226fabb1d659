package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the program of the module around the working directory into dir and returns its path.
func Build(dir string, race bool) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "exportd")
	args := []string{"build", "-o", program}
	if race {
		program += "-race"
		args = []string{"build", "-race", "-o", program}
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build exportd: %w\n%s", err, out)
	}
	return program, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no go.mod around the working directory")
}
