package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"exportd/broker/localmq"
	"exportd/db/pglocal"
	"exportd/s3out/locals3"
)

// TestChaosBriefly is half a minute of `make chaos`.
func TestChaosBriefly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	missing := func(err error) {
		t.Helper()
		if strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "activemq") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if err := localmq.Missing(); err != nil {
		missing(err)
	}
	if _, err := locals3.Find(t.Context()); err != nil {
		missing(err)
	}
	p := newPlan(7, 25*time.Second)
	var said strings.Builder
	res, err := execute(t.Context(), p, options{settle: 2 * time.Minute, out: &said})
	switch {
	case errors.Is(err, pglocal.ErrNotInstalled):
		missing(err)
	case err != nil:
		t.Fatalf("%v\n%s", err, said.String())
	}
	t.Logf("%s", res.text)
	if len(res.breaches) > 0 {
		t.Errorf("%s\nlogs and tables are in %s", said.String(), res.dir)
	}
}
