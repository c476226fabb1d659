package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"exportd/broker"
	"exportd/broker/localmq"
	"exportd/db/pglocal"
	"exportd/e2e/stack"
	"exportd/s3out"
	"exportd/s3out/locals3"
)

// world is one installation with everything that can be done to it.
type world struct {
	*stack.World
	dir      string
	postgres *pglocal.Server
	activemq *localmq.Server
	s3       *locals3.Server
	turns    map[string]*sync.Mutex // held by whatever changes a process or a service
	slots    map[string]*slot
	proxies  map[string]*proxy // by way: "consumer-1/postgres", "clients/api"
	ordered  []string          // names of the orders that clients have submitted
	report   *report
}

// slot is a place where one process runs after the other.
type slot struct {
	name, command string
	settings      []string

	mu      sync.Mutex
	process *stack.Process
}

func (s *slot) current() *stack.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// newWorld starts the services, prepares them, and puts the proxies before them. Nothing of exportd runs yet.
func newWorld(ctx context.Context, dir string, p plan, race bool, rep *report) (w *world, err error) {
	w = &world{World: &stack.World{Settings: p.settings}, dir: dir, report: rep, turns: map[string]*sync.Mutex{}, slots: map[string]*slot{}, proxies: map[string]*proxy{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.Program, err = stack.Build(dir, race); err != nil {
		return w, err
	}
	if err := w.startServices(ctx); err != nil {
		return w, err
	}
	if err := stack.Prepare(ctx, w.Database); err != nil {
		return w, err
	}
	if err := w.watchTransitions(ctx); err != nil {
		return w, err
	}
	return w, w.makeSlots(p.alone)
}

func (w *world) startServices(ctx context.Context) (err error) {
	// No machine is switched off here, only processes are killed: what the kernel has is safe.
	if w.postgres, err = pglocal.Start(ctx, pglocal.Options{Settings: map[string]string{"fsync": "off"}}); err != nil {
		return err
	}
	w.Database = w.postgres.URL("postgres")
	if w.activemq, err = localmq.Start(ctx, localmq.Config{Dir: filepath.Join(w.dir, "activemq")}); err != nil {
		return err
	}
	w.Broker = broker.Config{URLs: []string{w.activemq.URL()}, User: "admin", Password: "admin", Log: discard}
	w.Work, w.Parking = "job.chunk.work", "job.chunk.parking"
	program, err := locals3.Find(ctx)
	if err != nil {
		return err
	}
	if w.s3, err = locals3.Start(ctx, program, filepath.Join(w.dir, "s3")); err != nil {
		return err
	}
	w.S3 = s3out.Config{Bucket: "exports", BasePath: "exports", Endpoint: w.s3.Endpoint(), Region: "us-east-1", CreateBucket: true, Log: discard}
	store, err := s3out.Open(ctx, w.S3)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Probe(ctx) // makes the bucket
}

// makeSlots gives every process its own way to every service. Those that work alone need none to the broker.
func (w *world) makeSlots(alone []string) error {
	for _, s := range services {
		w.turns[s] = new(sync.Mutex)
	}
	if err := w.addProxy("clients/api", "", newHTTPTap); err != nil {
		return err
	}
	for _, name := range processes {
		w.turns[name] = new(sync.Mutex)
		command, _, _ := strings.Cut(name, "-")
		s := &slot{name: name, command: command, settings: []string{"EXPORTD_BROKER_USER=" + map[string]string{"api": "api", "consumer": "worker"}[command]}}
		s.settings = append(s.settings, "EXPORTD_BROKER_PASSWORD="+strings.TrimPrefix(s.settings[0], "EXPORTD_BROKER_USER="))
		w.slots[name] = s
		for _, service := range []struct {
			name, variable, url string
			tap                 func(*proxy) tap
		}{
			{"postgres", "EXPORTD_DATABASE_URL", w.Database, newPostgresTap},
			{"source", "EXPORTD_SOURCE_URL", w.Database, newPostgresTap},
			{"broker", "EXPORTD_BROKER_URLS", w.activemq.URL(), newStompTap},
			{"s3", "EXPORTD_S3_ENDPOINT", w.s3.Endpoint(), newHTTPTap},
		} {
			u, err := url.Parse(service.url)
			if err != nil {
				return err
			}
			way := name + "/" + service.name
			if err := w.addProxy(way, u.Host, service.tap); err != nil {
				return err
			}
			u.Host = w.proxies[way].addr()
			if service.name == "broker" && slices.Contains(alone, name) {
				s.settings = append(s.settings, "EXPORTD_DISPATCH=database", "EXPORTD_BROKER_URLS=")
			} else if service.name != "source" || command == "consumer" {
				s.settings = append(s.settings, service.variable+"="+u.String())
			}
		}
	}
	return nil
}

func (w *world) addProxy(way, target string, t func(*proxy) tap) (err error) {
	w.proxies[way], err = newProxy(way, target, t, func(answer string) { w.report.dropped(way, answer) })
	return err
}

// start runs a process in its slot. It tries again: a start may meet anything.
func (w *world) start(ctx context.Context, name string) error {
	s := w.slots[name]
	var errs []error
	for range 3 {
		p, err := w.Start(ctx, s.command, s.settings...)
		if err == nil {
			s.mu.Lock()
			s.process = p
			s.mu.Unlock()
			if name == "api" {
				w.proxies["clients/api"].retarget(strings.TrimPrefix(p.URL, "http://"))
			}
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("start %s: %w", name, errors.Join(errs...))
}

// stop ends a process by SIGTERM and reports a breach unless it ends well and in time.
func (w *world) stop(name string) {
	p := w.slots[name].current()
	began := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		w.report.breach("%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout+stopSlack)
	defer cancel()
	code, err := p.Wait(ctx)
	switch {
	case err != nil:
		w.report.breach("%s (%s) still runs %s after SIGTERM", name, p.Name, time.Since(began).Round(time.Second))
		_ = p.Signal(syscall.SIGQUIT) // for the goroutines in its log
		time.Sleep(time.Second)
		_ = p.Kill()
	case code != 0 && !strings.Contains(p.Log(), "requests in flight were cut off"):
		w.report.breach("%s (%s) exits with %d after SIGTERM", name, p.Name, code)
	}
}

// stopSlack is for a busy machine.
const stopSlack = 4 * time.Second

// heal undoes what could be left of faults: they undo themselves, this is for those that were cut short.
func (w *world) heal(ctx context.Context) error {
	for name := range w.slots {
		if p := w.slots[name].current(); p != nil {
			_ = p.Signal(syscall.SIGCONT)
		}
	}
	return errors.Join(w.s3.Resume(), w.activemq.Resume(), w.postgres.Resume())
}

// close stops the services and removes what they kept.
func (w *world) close() {
	w.KillAll()
	for _, p := range w.proxies {
		p.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if w.postgres != nil {
		_ = w.postgres.Stop(ctx)
	}
	if w.activemq != nil {
		w.activemq.Kill()
	}
	if w.s3 != nil {
		_ = w.s3.Kill()
	}
}

// keepEvidence writes what every process said, and what the database has, into the folder of the run.
func (w *world) keepEvidence(ctx context.Context) error {
	for _, table := range []string{"chaos_audit", "job", "job_chunk", "chunk_attempt", "dispatch", "file_cache"} {
		rows := strings.Join(w.tell(ctx, "select t::text from "+table+" t"), "\n")
		if err := os.WriteFile(filepath.Join(w.dir, table+".txt"), []byte(rows), 0o600); err != nil {
			return err
		}
	}
	for _, p := range w.Processes() {
		if err := os.WriteFile(filepath.Join(w.dir, p.Name+".log"), []byte(p.Log()), 0o600); err != nil {
			return err
		}
	}
	return nil
}
