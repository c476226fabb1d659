package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is all that a run does to the system, in order of time. It is a pure function of seed and duration; how the processes take it is not.
type plan struct {
	seed     uint64
	duration time.Duration
	faults   []fault
	orders   []order
	settings []string // of the processes
	alone    []string // processes that have no broker: EXPORTD_DISPATCH=database
}

var (
	processes = []string{"api", "consumer-1", "consumer-2", "consumer-3"}
	services  = []string{"postgres", "source", "broker", "s3"} // source is Postgres too, on connections of its own
)

// fault is one thing that goes wrong.
type fault struct {
	at     time.Duration
	kind   kind
	target string        // a process, a service, or process/service for what happens on the way between the two
	lasts  time.Duration // until it is healed; 0 for what is over at once
	share  share         // of the connections
	answer string        // which one is dropped
	size   int           // how many messages, sessions
	seed   uint64        // of what it draws while it happens
}

type kind string

const (
	kill      kind = "kill -9"        // process or service, started again
	terminate kind = "SIGTERM"        // likewise
	freeze    kind = "SIGSTOP"        // process or service, continued
	cut       kind = "cut"            // connections are reset
	stallUp   kind = "stall requests" // nothing is passed on towards the service, later all of it
	stallDown kind = "stall answers"  // nothing from it
	halfOpen  kind = "half-open"      // connections swallow everything and never end
	slow      kind = "slow"           // every packet is late
	refuse    kind = "refuse"         // no new connection, the old ones are cut
	dropped   kind = "drop answer"    // one answer is swallowed, then its connection is cut
	sessions  kind = "end sessions"   // pg_terminate_backend
	purge     kind = "purge"          // the work queue
	duplicate kind = "duplicate"      // its messages
	misplace  kind = "move to parking"
	copyToDLQ kind = "copy to ActiveMQ.DLQ"
	garbage   kind = "garbage" // messages that are no chunk of ours
)

type share string

const (
	one    share = "one connection"
	all    share = "all connections"
	andNew share = "all connections and new ones"
)

func (f fault) String() string {
	s := fmt.Sprintf("%s: %s", f.kind, f.target)
	if f.answer != "" {
		s += ", to " + f.answer
	}
	if f.share != "" {
		s += ", " + string(f.share)
	}
	if f.size > 0 {
		s += fmt.Sprintf(", %d", f.size)
	}
	if f.lasts > 0 {
		s += ", for " + f.lasts.String()
	}
	return s
}

// shape says how a kind of fault is drawn.
type shape struct {
	weight  int
	kind    kind
	targets []string
	lasts   [2]time.Duration
	shares  []share
	size    int
}

// ways are the connections between processes and services.
func ways(services ...string) (names []string) {
	for _, p := range processes {
		for _, s := range services {
			if p != "api" || s != "source" {
				names = append(names, p+"/"+s)
			}
		}
	}
	return names
}

// answersOf are what can be dropped on the way from a service. Those of the truth database are named for the statement.
var answersOf = map[string][]string{
	"postgres": {"turn", "turn", "turn", "turn", "turn", "claim", "done", "announce", "announce", "release", "renew", "commit", "commit", "confirm", "lease", "pin", "end", "upload", "outbox"},
	"source":   {"export"},
	"broker":   {"receipt"},
	"s3":       {"put", "put", "put", "complete", "complete", "complete", "create", "create", "part", "abort"},
}

func shapes() []shape {
	seconds := func(from, to float64) [2]time.Duration {
		return [2]time.Duration{time.Duration(from * float64(time.Second)), time.Duration(to * float64(time.Second))}
	}
	everyShare := []share{one, one, all, andNew}
	everyWay := ways(services...)
	return []shape{
		{weight: 10, kind: kill, targets: processes, lasts: seconds(0.1, 8)},
		{weight: 5, kind: terminate, targets: processes, lasts: seconds(0.1, 3)},
		{weight: 6, kind: freeze, targets: processes[1:], lasts: seconds(6, 13)}, // longer than a lease
		{weight: 2, kind: freeze, targets: processes, lasts: seconds(0.5, 5)},
		{weight: 3, kind: kill, targets: []string{"postgres", "broker", "s3"}, lasts: seconds(0.1, 8)},
		{weight: 2, kind: terminate, targets: []string{"postgres", "broker", "s3"}, lasts: seconds(0.1, 3)},
		{weight: 3, kind: freeze, targets: []string{"postgres", "broker", "s3"}, lasts: seconds(2, 12)},
		{weight: 7, kind: cut, targets: append(everyWay, "all/postgres", "all/broker", "all/s3"), shares: []share{one, all}},
		{weight: 4, kind: stallUp, targets: everyWay, lasts: seconds(1, 12), shares: everyShare},
		{weight: 4, kind: stallDown, targets: everyWay, lasts: seconds(1, 12), shares: everyShare},
		{weight: 4, kind: halfOpen, targets: everyWay, lasts: seconds(4, 25), shares: everyShare},
		{weight: 2, kind: slow, targets: everyWay, lasts: seconds(2, 8), shares: []share{andNew}},
		{weight: 3, kind: refuse, targets: append(everyWay, "all/postgres", "all/s3", "all/broker"), lasts: seconds(0.5, 9)},
		{weight: 22, kind: dropped, targets: append([]string{"all/postgres", "all/postgres", "all/postgres", "all/s3", "all/s3", "all/broker", "all/source"}, everyWay...), lasts: seconds(20, 20)},
		{weight: 4, kind: dropped, targets: []string{"clients/api"}, lasts: seconds(15, 15)},
		{weight: 2, kind: cut, targets: []string{"clients/api"}, shares: []share{all}},
		{weight: 3, kind: sessions, targets: []string{"postgres"}, size: 20},
		{weight: 3, kind: purge, targets: []string{"work queue"}},
		{weight: 3, kind: duplicate, targets: []string{"work queue"}, size: 60},
		{weight: 3, kind: misplace, targets: []string{"work queue"}, size: 20},
		{weight: 1, kind: copyToDLQ, targets: []string{"work queue"}, size: 20},
		{weight: 2, kind: garbage, targets: []string{"work queue"}, size: 5},
	}
}

// newPlan draws the plan of a seed.
func newPlan(seed uint64, duration time.Duration) plan {
	p := plan{seed: seed, duration: duration}
	r := rand.New(rand.NewPCG(seed, 1))
	p.settings = []string{
		// How much a lost worker, a lost message, a retry costs is to fit into a short run. Attempts are plenty: only what fails by design may use them up.
		fmt.Sprintf("EXPORTD_LEASE=%s", lease), "EXPORTD_SWEEP_INTERVAL=500ms", "EXPORTD_RETRY_BASE=200ms", "EXPORTD_RETRY_MAX=1s", "EXPORTD_REPUBLISH_AFTER=5s",
		fmt.Sprintf("EXPORTD_MAX_ATTEMPTS=%d", maxAttempts), fmt.Sprintf("EXPORTD_CHUNK_TIMEOUT=%s", chunkTimeout), "EXPORTD_STALL_TIMEOUT=8s",
		fmt.Sprintf("EXPORTD_DRAIN_TIMEOUT=%s", drainTimeout), "EXPORTD_PART_SIZE=5MiB", "EXPORTD_LOG_LEVEL=info",
		fmt.Sprintf("EXPORTD_CONCURRENCY=%d", 2+r.IntN(7)),
		"EXPORTD_BROKER_FALLBACK=" + []string{"0", "3s", "15s"}[r.IntN(3)],
		"EXPORTD_BACKLOG=" + []string{"0", "0", "12"}[r.IntN(3)],
	}
	p.faults = drawFaults(r, duration)
	// In some runs there is no broker, in others one consumer does without while the rest of the fleet has it.
	switch dispatch := rand.New(rand.NewPCG(seed, 3)); dispatch.IntN(4) {
	case 0:
		p.alone = processes
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return f.target == "work queue" || strings.HasSuffix(f.target, "broker") })
	case 1:
		p.alone = []string{processes[1+dispatch.IntN(len(processes)-1)]}
	}
	p.orders = drawOrders(rand.New(rand.NewPCG(seed, 2)), duration)
	return p
}

const (
	lease        = 5 * time.Second
	maxAttempts  = 20
	chunkTimeout = 30 * time.Second
	drainTimeout = 10 * time.Second
)

// drawFaults draws faults less than a second apart. A target that is in trouble is left alone until it is healed: what a fault then means is clear.
func drawFaults(r *rand.Rand, duration time.Duration) (faults []fault) {
	kinds := shapes()
	total := 0
	for _, s := range kinds {
		total += s.weight
	}
	busy := map[string]time.Duration{}
	// The first seconds are for the start, the last for faults to show.
	for at := 2 * time.Second; at < duration; at += 100*time.Millisecond + time.Duration(r.ExpFloat64()*float64(700*time.Millisecond)) {
		n := r.IntN(total)
		i := 0
		for ; n >= kinds[i].weight; i++ {
			n -= kinds[i].weight
		}
		f := kinds[i].draw(r)
		f.at = at.Truncate(time.Millisecond)
		if until, ok := busy[f.target]; f.kind != dropped && ok && at < until {
			continue
		}
		if f.kind != dropped {
			busy[f.target] = at + f.lasts + 3*time.Second
		}
		faults = append(faults, f)
	}
	return faults
}

func (s shape) draw(r *rand.Rand) fault {
	f := fault{kind: s.kind, target: s.targets[r.IntN(len(s.targets))], seed: r.Uint64()}
	if spread := s.lasts[1] - s.lasts[0]; s.lasts[1] > 0 {
		f.lasts = (s.lasts[0] + time.Duration(r.Int64N(int64(spread)+1))).Truncate(time.Millisecond)
	}
	if len(s.shares) > 0 {
		f.share = s.shares[r.IntN(len(s.shares))]
	}
	if s.size > 0 {
		f.size = 1 + r.IntN(s.size)
	}
	if s.kind == dropped {
		_, service := split(f.target)
		if answers := answersOf[service]; len(answers) > 0 {
			f.answer = answers[r.IntN(len(answers))]
		} else {
			f.answer = "submit"
		}
	}
	return f
}
