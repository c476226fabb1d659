package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"exportd/db"
)

type migrateCommands struct {
	Up     migrateCommand       `cmd:"" default:"withargs" help:"Apply what is missing; the default."`
	Status migrateStatusCommand `cmd:"" help:"Show which migrations are applied; exit 1 if any is missing."`
}

type migrateCommand struct {
	Database databaseConfig `embed:""`
}

func (c *migrateCommand) check(f *faults) { c.Database.check(f) }

func (c *migrateCommand) run(ctx context.Context, p *process) error {
	before, err := db.Migrations(ctx, string(c.Database.URL))
	if err != nil {
		return fmt.Errorf("migrate %s: %w", c.Database.URL.redacted(), err)
	}
	if err := db.Migrate(ctx, string(c.Database.URL)); err != nil {
		return fmt.Errorf("migrate %s: %w", c.Database.URL.redacted(), err)
	}
	applied := 0
	for _, m := range before {
		if !m.Applied {
			applied++
			fmt.Fprintf(p.stdout, "applied %s\n", m.Name)
		}
	}
	if applied == 0 {
		fmt.Fprintf(p.stdout, "nothing to do: all %d migrations are applied\n", len(before))
	}
	return nil
}

type migrateStatusCommand struct {
	Database databaseConfig `embed:""`
}

func (c *migrateStatusCommand) check(f *faults) { c.Database.check(f) }

func (c *migrateStatusCommand) run(ctx context.Context, p *process) error {
	list, err := db.Migrations(ctx, string(c.Database.URL))
	if err != nil {
		return fmt.Errorf("look at the migrations of %s: %w", c.Database.URL.redacted(), err)
	}
	missing := 0
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, m := range list {
		state := "missing"
		if m.Applied {
			state = m.AppliedAt.UTC().Format(time.RFC3339)
		} else {
			missing++
		}
		fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, m.Name, state)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if missing > 0 {
		fmt.Fprintf(p.stdout, "%d missing; run exportd migrate\n", missing)
		return errSilent
	}
	return nil
}
