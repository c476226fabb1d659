package main

import (
	"context"
	"os"

	"exportd/demo"
)

type demoCommand struct {
	Serve bool   `flagonly:"" help:"Keep it running until Ctrl-C."`
	Dir   string `flagonly:"" placeholder:"DIR" help:"Keep the files there; by default everything is removed at the end."`
}

func (c *demoCommand) check(*faults) {}

func (c *demoCommand) run(ctx context.Context, p *process) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	return demo.Run(ctx, demo.Options{
		Executable: executable, Environ: p.environ, Dir: c.Dir, Serve: c.Serve, Out: p.stdout, Terminal: isTerminal(p.stdout),
	})
}
