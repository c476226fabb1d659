package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/export"
)

// The variants.
const (
	limit         = "limit"
	exportdDB     = "exportd, database"
	exportdBroker = "exportd, ActiveMQ"
	peerTx        = "River, transactional"
	peerAsync     = "River, asynchronous"
)

// throughput is a workload of many chunks that every variant does.
type throughput struct {
	name        string
	warmSet     string // worked on before the clock starts; may be set, whose first chunks it then takes
	set         string
	chunks      int
	concurrency int
	cooldown    time.Duration // River's between fetches: short enough not to be its limit
	variants    []string
}

func (t throughput) warmUp() []export.Ref { return refs(t.warmSet, 0, warm(t.concurrency)) }

func (t throughput) work() []export.Ref {
	first := 0
	if t.set == t.warmSet {
		first = warm(t.concurrency)
	}
	return refs(t.set, first, first+t.chunks)
}

// result is one run of one variant.
type result struct {
	Workload, Variant string
	Round, Chunks     int
	Took              time.Duration
	Load              string // of the machine before the run
	usage
}

func (b *bench) throughputs() []throughput {
	all := []string{limit, exportdDB, peerTx, exportdBroker, peerAsync}
	own := []string{limit, exportdDB, exportdBroker}
	return []throughput{
		{"10000-row chunks, concurrency 8", "BIG", "BIG", b.sizes.Big, 8, 5 * time.Millisecond, all},
		{"10000-row chunks, concurrency 16", "BIG", "BIG", b.sizes.Big, 16, 5 * time.Millisecond, all},
		{"10-row chunks, concurrency 16", "TINY", "TINY", b.sizes.Tiny, 16, time.Millisecond, all},
		{"10-row chunks, concurrency 64", "TINY", "TINY", b.sizes.Tiny, mostConcurrency, time.Millisecond, all},
		{fmt.Sprintf("one chunk of %d rows", b.sizes.HugeRows), "TINY", "HUGE", 1, 1, time.Millisecond, own},
	}
}

// wanted says whether a selected workload needs the set.
func (b *bench) wanted(s set) bool {
	for _, t := range b.throughputs() {
		if t.set == s.name && b.only.MatchString(t.name) {
			return true
		}
	}
	return s.name == "TINY" || s.name == "BIG" && b.only.MatchString(loadedName)
}

// runAll takes the rounds in turn, forth and back, so that a drift of the machine meets all variants alike.
func (b *bench) runAll(ctx context.Context) error {
	for _, t := range b.throughputs() {
		if !b.only.MatchString(t.name) {
			continue
		}
		sum := ""
		for round := range b.rounds {
			for i := range t.variants {
				if round%2 == 1 {
					i = len(t.variants) - 1 - i
				}
				if !b.variants.MatchString(t.variants[i]) {
					continue
				}
				r, err := b.once(ctx, t, t.variants[i])
				if err != nil {
					return fmt.Errorf("%s, %s: %w", t.name, t.variants[i], err)
				}
				files, err := b.filesSum()
				if err != nil {
					return err
				}
				if sum = cmp.Or(sum, files); files != sum {
					return fmt.Errorf("%s: the files of %s are others than those of the variant before", t.name, t.variants[i])
				}
				r.Round = round
				b.results = append(b.results, r)
				fmt.Println(r)
			}
		}
	}
	for _, w := range []struct {
		name string
		run  func(context.Context) error
	}{{submitName, b.submissions}, {loadedName, b.loaded}, {loneName, b.lone}, {pastName, b.past}, {memoryName, b.memory}} {
		if b.only.MatchString(w.name) {
			if err := w.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

func (r result) String() string {
	s := fmt.Sprintf("%-34s %-21s %9.1f chunks/s  load %s  CPU ms/chunk:", r.Workload, r.Variant, float64(r.Chunks)/r.Took.Seconds(), r.Load)
	for _, name := range []string{programName, "consumer", "api", "postgres", "s3", "activemq"} {
		if cpu, ok := r.CPU[name]; ok {
			s += fmt.Sprintf(" %s %.3f", name, float64(cpu.Microseconds())/1000/float64(r.Chunks))
		}
	}
	for _, name := range []string{programName, "consumer", "api"} {
		if peak, ok := r.Peak[name]; ok {
			s += fmt.Sprintf(" %s %d MiB", name, peak>>20)
		}
	}
	return s
}

const programName = "program" // of the limit and the peer

// once is one run of one variant.
func (b *bench) once(ctx context.Context, t throughput, variant string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r := result{Workload: t.name, Variant: variant, Chunks: t.chunks}
	if err := b.settle(ctx); err != nil {
		return r, err
	}
	r.Load = load()
	basePath := fmt.Sprintf("bench/%d", len(b.results))
	once := b.onceChild
	if variant == exportdDB || variant == exportdBroker {
		once = b.onceExportd
	}
	err := once(ctx, t, &r, basePath)
	return r, err
}

func (b *bench) onceExportd(ctx context.Context, t throughput, r *result, basePath string) error {
	in, err := b.startExportd(ctx, r.Variant, basePath, t.concurrency)
	if err != nil {
		return err
	}
	defer in.stop()
	if _, err := in.work(ctx, t.warmUp()); err != nil {
		return err
	}
	return b.watch(r, in.own(), func() (time.Duration, error) {
		return in.work(ctx, t.work())
	})
}

func (b *bench) onceChild(ctx context.Context, t throughput, r *result, basePath string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := b.start(programName, self, nil, childCommand)
	if err != nil {
		return err
	}
	defer p.stop()
	order, err := json.Marshal(task{r.Variant, b.database, b.s3.Endpoint(), basePath, t.concurrency, t.cooldown, t.warmUp(), t.work()})
	if err != nil {
		return err
	}
	if _, err := p.stdin.Write(append(order, '\n')); err != nil {
		return err
	}
	if _, err := p.line(ctx); err != nil {
		return err
	}
	return b.watch(r, []*process{p}, func() (time.Duration, error) {
		if _, err := p.stdin.Write([]byte("go\n")); err != nil {
			return 0, err
		}
		line, err := p.line(ctx)
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(line, 10, 64)
		return time.Duration(ns), err
	})
}

// watch notes what do takes of all processes.
func (b *bench) watch(r *result, own []*process, do func() (time.Duration, error)) error {
	pids := b.watched(own)
	if err := forgetPeaks(pids); err != nil {
		return err
	}
	if b.statements {
		b.conn.Exec(context.Background(), "select pg_stat_statements_reset()")
	}
	before, err := used(pids)
	if err != nil {
		return err
	}
	if r.Took, err = do(); err != nil {
		return err
	}
	after, err := used(pids)
	if err != nil {
		return err
	}
	r.usage = after.since(before)
	if b.statements {
		return b.printStatements()
	}
	return nil
}

// printStatements shows what the run asked most of PostgreSQL. On a loaded machine the shortest time of a statement says more than its mean.
func (b *bench) printStatements() error {
	rows, err := b.conn.Query(context.Background(), `
		select format('%7s calls %8s rows %7s plans (ms: shortest %s, all %s), run (ms: shortest %s, all %s)  %s', calls, rows, plans,
			round(min_plan_time::numeric, 3), round(total_plan_time::numeric), round(min_exec_time::numeric, 3), round(total_exec_time::numeric),
			left(regexp_replace(query, '\s+', ' ', 'g'), 110))
		from pg_stat_statements order by total_exec_time + total_plan_time desc limit 25`)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, l := range lines {
		fmt.Println("    " + l)
	}
	return err
}
