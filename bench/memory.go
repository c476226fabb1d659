package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Whether the processes grow with what they have done.
const memoryName = "memory over many chunks"

// memory has one api and one consumer work on job after job, and notes their peaks tenth by tenth. Of ten jobs one makes its files anew, the others find them.
func (b *bench) memory(ctx context.Context) error {
	const tenths, jobSize, jobs = 10, 10_000, 10
	if err := b.settle(ctx); err != nil {
		return err
	}
	in, err := b.startExportd(ctx, exportdDB, fmt.Sprintf("bench/%d", len(b.results)), mostConcurrency)
	if err != nil {
		return err
	}
	defer in.stop()
	chunks := refs("TINY", 0, min(jobSize, b.sizes.Many/tenths))
	for tenth := range tenths {
		r := result{Workload: memoryName, Variant: fmt.Sprintf("%d/%d", tenth+1, tenths), Load: load()}
		if err := b.watch(&r, in.own(), func() (took time.Duration, err error) {
			for n := 0; r.Chunks < b.sizes.Many/tenths; n++ {
				t, err := in.job(ctx, chunks, n%jobs != 0)
				if err != nil {
					return 0, err
				}
				took, r.Chunks = took+t, r.Chunks+len(chunks)
			}
			return took, nil
		}); err != nil {
			return err
		}
		b.results = append(b.results, r)
		fmt.Println(r)
	}
	return nil
}

func (b *bench) memoryTable(s *strings.Builder) {
	var runs []result
	for _, r := range b.results {
		if r.Workload == memoryName {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		return
	}
	fmt.Fprintf(s, "\n**Memory over %d chunks** (10-row chunks, concurrency %d, from the database; one job of ten makes its files anew, the others find them)\n\n", len(runs)*runs[0].Chunks, mostConcurrency)
	s.WriteString("| part | chunks/s | peak MiB: consumer · api |\n|---|---|---|\n")
	for _, r := range runs {
		fmt.Fprintf(s, "| %s | %s | %d · %d |\n", r.Variant, short(r.rate()), r.Peak["consumer"]>>20, r.Peak["api"]>>20)
	}
}
