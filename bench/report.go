package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// report is the tables, in Markdown.
func (b *bench) report() string {
	var s strings.Builder
	fmt.Fprintf(&s, "Measured on %s, PostgreSQL, versitygw, ActiveMQ and the programs all on it, %s; medians of %d rounds.\n",
		b.machine, time.Now().UTC().Format(time.DateOnly), b.rounds)
	fmt.Fprintf(&s, "Ratios are medians of the ratios within one round.\n")
	for _, t := range b.throughputs() {
		b.throughputTable(&s, t)
	}
	b.latencyTable(&s)
	b.pastTable(&s)
	b.memoryTable(&s)
	return s.String()
}

func (b *bench) throughputTable(s *strings.Builder, t throughput) {
	if len(b.of(t.name, limit)) == 0 {
		return
	}
	unit, scale := "chunks/s", 1.0
	if t.set == "HUGE" {
		unit, scale = "rows/s", float64(b.sizes.HugeRows)
	}
	fmt.Fprintf(s, "\n**%s** (%d a run)\n\n", t.name, t.chunks)
	fmt.Fprintf(s, "| | %s (min–max) | of the limit | of River, transactional | of River, asynchronous | CPU ms a chunk: program · api · PostgreSQL · S3 · broker | without broker, of the limit | peak MiB: program · api |\n", unit)
	s.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, variant := range t.variants {
		runs := b.of(t.name, variant)
		if len(runs) == 0 {
			continue
		}
		rates := each(runs, func(r result) float64 { return r.rate() * scale })
		cpu := func(name string) string {
			if _, ok := runs[0].CPU[name]; !ok {
				return "–"
			}
			return short(median(each(runs, func(r result) float64 { return r.cpu(name) })))
		}
		peak := func(name string) string {
			if _, ok := runs[0].Peak[name]; !ok {
				return "–"
			}
			return fmt.Sprintf("%.0f", slices.Max(each(runs, func(r result) float64 { return float64(r.Peak[name]) / (1 << 20) })))
		}
		program := programName
		if _, ok := runs[0].CPU["consumer"]; ok {
			program = "consumer"
		}
		fmt.Fprintf(s, "| %s | %s (%s–%s) | %s | %s | %s | %s · %s · %s · %s · %s | %s | %s · %s |\n", variant,
			short(median(rates)), short(slices.Min(rates)), short(slices.Max(rates)),
			b.ratio(t.name, variant, limit, result.rate), b.ratio(t.name, variant, peerTx, result.rate), b.ratio(t.name, variant, peerAsync, result.rate),
			cpu(program), cpu("api"), cpu("postgres"), cpu("s3"), cpu("activemq"), b.ratio(t.name, variant, limit, result.cpuWithoutBroker), peak(program), peak("api"))
	}
}

func (b *bench) latencyTable(s *strings.Builder) {
	var names [][2]string
	for _, r := range b.results {
		if n := [2]string{r.Workload, r.Variant}; r.Round < 0 && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return
	}
	s.WriteString("\n**Times**\n\n| | | median ms | min–max | n |\n|---|---|---|---|---|\n")
	for _, n := range names {
		runs := b.of(n[0], n[1])
		ms := each(runs, func(r result) float64 { return float64(r.Took.Microseconds()) / 1000 })
		what := n[0]
		if what == submitName {
			what = fmt.Sprintf("%s of %d chunks", submitName, runs[0].Chunks)
		}
		fmt.Fprintf(s, "| %s | %s | %s | %s–%s | %d |\n", what, n[1], short(median(ms)), short(slices.Min(ms)), short(slices.Max(ms)), len(ms))
	}
}

func (b *bench) of(workload, variant string) (runs []result) {
	for _, r := range b.results {
		if r.Workload == workload && r.Variant == variant {
			runs = append(runs, r)
		}
	}
	return runs
}

// ratio is the median over the rounds of a variant's figure divided by the other's in the same round.
func (b *bench) ratio(workload, variant, to string, figure func(result) float64) string {
	var ratios []float64
	for _, r := range b.of(workload, variant) {
		for _, other := range b.of(workload, to) {
			if other.Round == r.Round {
				ratios = append(ratios, figure(r)/figure(other))
			}
		}
	}
	if len(ratios) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", median(ratios))
}

func (r result) rate() float64 { return float64(r.Chunks) / r.Took.Seconds() }

// cpu is in milliseconds a chunk.
func (r result) cpu(name string) float64 {
	return float64(r.CPU[name].Microseconds()) / 1000 / float64(r.Chunks)
}

func (r result) cpuWithoutBroker() float64 {
	sum := 0.0
	for name := range r.CPU {
		if name != "activemq" {
			sum += r.cpu(name)
		}
	}
	return sum
}

func each(runs []result, figure func(result) float64) []float64 {
	list := make([]float64, len(runs))
	for i, r := range runs {
		list[i] = figure(r)
	}
	return list
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// short writes three significant digits.
func short(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

func writeBetweenMarkers(path, name, text string) error {
	beginMark, endMark := fmt.Sprintf("<!-- begin: written by %s -->", name), fmt.Sprintf("<!-- end: written by %s -->", name)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(b, []byte(beginMark))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return fmt.Errorf("%s lacks the lines %s and %s", path, beginMark, endMark)
	}
	return os.WriteFile(path, fmt.Appendf(nil, "%s%s\n\n%s\n%s%s", before, beginMark, text, endMark, after), 0o644)
}
