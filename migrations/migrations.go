// Package migrations holds the schema: forward only, and safe while binaries of the version before still run.
package migrations

import "embed"

// FS holds the goose migrations.
//
//go:embed *.sql
var FS embed.FS
