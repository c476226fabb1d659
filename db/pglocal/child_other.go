//go:build !linux

package pglocal

import (
	"os"
	"syscall"
)

// Elsewhere than on Linux a server outlives a parent that is killed, and folders of dead parents stay.

func childAttr(*osAccount) *syscall.SysProcAttr { return nil }

func lockOwner(path string) (*os.File, bool) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	return f, err == nil
}

func (a *osAccount) mayEnter(os.FileInfo) bool { return true }
