package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"exportd/db/pglocal"
)

// startPostgres gives the URL of an empty database on a server of our own. Where no PostgreSQL is installed it is installed, by the means that
// the machine offers.
func startPostgres(ctx context.Context, say func(string, ...any), dir string) (url string, stop func(), err error) {
	server, err := pglocal.Start(ctx, pglocal.Options{Settings: fast})
	if errors.Is(err, pglocal.ErrNotInstalled) {
		switch _, noApt := exec.LookPath("apt-get"); {
		case os.Geteuid() == 0 && noApt == nil:
			if err := installPostgres(ctx, say); err != nil {
				return "", nil, err
			}
			server, err = pglocal.Start(ctx, pglocal.Options{Settings: fast})
		case os.Geteuid() != 0:
			return embeddedPostgres(say, dir)
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return server.URL("postgres"), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = server.Stop(ctx) // it is killed then, and its folder is temporary
	}, nil
}

// fast trades what a throw-away database does not need, surviving a crash of the machine, for time.
var fast = map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}

func installPostgres(ctx context.Context, say func(string, ...any)) error {
	say("PostgreSQL is not installed here; installing it: apt-get install postgresql")
	// Without this the package starts a server of its own.
	if err := os.MkdirAll("/etc/postgresql-common", 0o755); err != nil {
		return err
	}
	conf, err := os.OpenFile("/etc/postgresql-common/createcluster.conf", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = io.WriteString(conf, "create_main_cluster = false\n")
		err = errors.Join(err, conf.Close())
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", "postgresql"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func embeddedPostgres(say func(string, ...any), dir string) (url string, stop func(), err error) {
	say("PostgreSQL is not installed here; fetching its programs, once (they are kept in the cache of your home folder)")
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	config := embeddedpostgres.DefaultConfig().Version(embeddedpostgres.V17).Port(port).StartParameters(fast).
		RuntimePath(filepath.Join(dir, "postgres")).Logger(io.Discard)
	server := embeddedpostgres.NewDatabase(config)
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("PostgreSQL is not installed and cannot be fetched; install it (apt-get install postgresql, brew install postgresql) and try again: %w", err)
	}
	return config.GetConnectionURL() + "?sslmode=disable", func() { _ = server.Stop() }, nil // its folder is removed with the demo's
}
