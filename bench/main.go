// Bench measures exportd beside its physical limit and a peer, in one go, on the same PostgreSQL, S3 and ActiveMQ. The limit is the same query
// straight to the same S3, with neither queue nor claims; the peer is River, doing the same exports in its jobs. It is a module of its own, so that
// the peer's dependencies stay out of exportd's.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	root       string
	rounds     int
	sizes      sizes
	only       *regexp.Regexp // workloads
	variants   *regexp.Regexp
	out, json  string
	statements bool
}

// sizes are how much of each kind of work a round does.
type sizes struct{ Big, Tiny, HugeRows, Submitted, Lone, Loaded, PastJobs, Many, ListedJobs, Listed int }

var (
	quick = sizes{Big: 100, Tiny: 2000, HugeRows: 1_000_000, Submitted: 10_000, Lone: 20, Loaded: 200, PastJobs: 10_000, Many: 20_000, ListedJobs: 50_000, Listed: 50}
	full  = sizes{Big: 400, Tiny: 10_000, HugeRows: 1_000_000, Submitted: 10_000, Lone: 30, Loaded: 200, PastJobs: 100_000, Many: 200_000, ListedJobs: 50_000, Listed: 50}
)

func run(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		return runChild(ctx)
	}
	o := options{}
	whole := flag.Bool("full", false, "full sizes and five rounds: about twenty minutes; otherwise small sizes and three rounds, about six")
	only := flag.String("only", "", "run the workloads whose name matches this expression")
	variants := flag.String("variants", "", "run the variants whose name matches this expression")
	flag.StringVar(&o.root, "root", "..", "the checkout of exportd")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds, each variant once in every round")
	flag.StringVar(&o.out, "out", "", "write the tables into this Markdown file, between its markers")
	flag.StringVar(&o.json, "json", "", "write every single run to this file")
	flag.BoolVar(&o.statements, "statements", false, "print what each run asked of PostgreSQL (slows it down a little)")
	flag.IntVar(&o.sizes.Big, "big", 0, "chunks of 10 000 rows a run")
	flag.IntVar(&o.sizes.Tiny, "tiny", 0, "chunks of 10 rows a run")
	flag.IntVar(&o.sizes.PastJobs, "past", 0, "finished jobs, of 100 chunks each, in the full tables")
	flag.IntVar(&o.sizes.Many, "many", 0, "chunks over which the memory is watched")
	flag.IntVar(&o.sizes.ListedJobs, "jobs", 0, "jobs in the full database of the lists, of 40 chunks each")
	flag.Parse()
	given := o.sizes
	o.sizes, o.rounds = choose(*whole, o.rounds)
	if given.Big > 0 {
		o.sizes.Big = given.Big
	}
	if given.Tiny > 0 {
		o.sizes.Tiny = given.Tiny
	}
	if given.PastJobs > 0 {
		o.sizes.PastJobs = given.PastJobs
	}
	if given.Many > 0 {
		o.sizes.Many = given.Many
	}
	if given.ListedJobs > 0 {
		o.sizes.ListedJobs = given.ListedJobs
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	if o.variants, err = regexp.Compile(*variants); err != nil {
		return err
	}
	for _, path := range []*string{&o.out, &o.json} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return err
			}
		}
	}
	// The launchers look for their programs around the working directory.
	if err := os.Chdir(o.root); err != nil {
		return err
	}
	return measure(ctx, o)
}

func choose(whole bool, rounds int) (sizes, int) {
	switch {
	case whole && rounds == 0:
		return full, 5
	case whole:
		return full, rounds
	case rounds == 0:
		return quick, 3
	default:
		return quick, rounds
	}
}

func measure(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "exportd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{options: o, dir: dir, machine: describeMachine()}
	defer b.close()
	if err := b.startServices(ctx); err != nil {
		return err
	}
	if err := b.loadData(ctx); err != nil {
		return err
	}
	if b.variants.MatchString(exportdBroker) {
		if err := b.warmBroker(ctx); err != nil {
			return err
		}
	}
	if err := b.runAll(ctx); err != nil {
		return err
	}
	var listed []timing
	if b.only.MatchString(listsName) {
		if listed, err = b.measureLists(ctx); err != nil {
			return fmt.Errorf("%s: %w", listsName, err)
		}
	}
	if o.json != "" {
		lines, err := json.MarshalIndent(b.results, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, lines, 0o644); err != nil {
			return err
		}
	}
	if len(b.results) > 0 {
		if err := o.show("make bench", b.report()); err != nil {
			return err
		}
	}
	if listed != nil {
		return o.show("make bench, lists", b.listsReport(listed))
	}
	return nil
}

// show prints a report, and writes it into the file of reports between the markers of that name.
func (o options) show(name, report string) error {
	fmt.Print("\n", report)
	if o.out == "" {
		return nil
	}
	return writeBetweenMarkers(o.out, name, report)
}
