package pglocal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNotInstalled is returned by Start when this machine has no PostgreSQL server programs.
var ErrNotInstalled = errors.New("no PostgreSQL server programs (initdb, postgres) on this machine; apt-get install postgresql, or put them in PATH")

// installed are the places where packages put the server programs, which are usually not in PATH.
var installed = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
}

// programs finds the folder that holds initdb and postgres: that of PATH first, else the newest installed version.
func programs() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if dir := filepath.Dir(p); executable(filepath.Join(dir, "postgres")) {
			return filepath.Abs(dir)
		}
	}
	best, bestVersion := "", -1
	for _, pattern := range installed {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			if !executable(filepath.Join(dir, "initdb")) || !executable(filepath.Join(dir, "postgres")) {
				continue
			}
			if v := lastNumber(dir); v > bestVersion {
				best, bestVersion = dir, v
			}
		}
	}
	if best == "" {
		return "", ErrNotInstalled
	}
	return best, nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// lastNumber is the major version in a path such as /usr/lib/postgresql/15/bin, 0 when there is none.
func lastNumber(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[len(digits)-1]) // digits only; too many are no version
	return n
}

// account is the operating system user that runs the server; nil means the current one. PostgreSQL refuses to run as root.
func account() (*osAccount, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &osAccount{name, uint32(uid), uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL does not run as root and this machine has neither a user postgres nor a user nobody")
}

type osAccount struct {
	name     string
	uid, gid uint32
}

// own gives a file or folder to the account.
func (a *osAccount) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// checkReach says whether the account can enter dir, which exists or not, through all of its parents.
func (a *osAccount) checkReach(dir string) error {
	if a == nil {
		return nil
	}
	for p := filepath.Dir(dir); ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && !a.mayEnter(info) {
			return fmt.Errorf("the user %s, who runs PostgreSQL because root must not, cannot enter %s: choose another folder or allow it (chmod o+x)", a.name, p)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}
