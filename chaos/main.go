// Chaos runs a whole installation of exportd, does to it what networks, machines and people do to systems, and checks that nothing was lost, nothing
// doubled, nothing stuck. Faults and load are a pure function of the seed.
//
//	make chaos SEED=7 DURATION=10m
//
// Everything runs as in production: the built program, PostgreSQL, ActiveMQ, an S3 server, processes that are killed. Each process reaches each service
// through a proxy of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	seed := flags.Uint64("seed", uint64(time.Now().Unix()), "what faults and load are drawn from")
	duration := flags.Duration("duration", 90*time.Second, "how long faults are injected")
	race := flags.Bool("race", false, "build exportd with the race detector")
	settle := flags.Duration("settle", 3*time.Minute, "how long jobs may take to end once everything is healed")
	if flags.Parse(args) != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := newPlan(*seed, *duration)
	fmt.Printf("chaos: seed %d for %s: %d faults, %d jobs; settings %v\n", p.seed, p.duration, len(p.faults), len(p.orders), p.settings)
	result, err := execute(ctx, p, options{race: *race, settle: *settle, out: os.Stdout})
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	fmt.Print(result.text)
	if len(result.breaches) > 0 {
		fmt.Printf("chaos: %d breaches. Replay: make chaos SEED=%d DURATION=%s; logs and tables are in %s\n", len(result.breaches), p.seed, p.duration, result.dir)
		return 1
	}
	fmt.Printf("chaos: nothing lost, nothing doubled, nothing stuck (seed %d)\n", p.seed)
	return 0
}
