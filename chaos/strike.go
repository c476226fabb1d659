package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"exportd/e2e/stack"
)

// inflict carries out the faults of a plan, each at its time, and returns when all are healed. After ctx nothing new is begun and everything is healed
// at once.
func (w *world) inflict(ctx context.Context, faults []fault) {
	var open sync.WaitGroup
	for _, f := range faults {
		if !w.report.sleepUntil(ctx, f.at) {
			break
		}
		open.Go(func() {
			if err := w.strike(ctx, f); err != nil {
				w.report.line("not inflicted: %s: %v", f, err)
				return
			}
			if f.kind != dropped { // an answer counts when it has been dropped
				w.report.inflicted(f)
			}
		})
	}
	open.Wait()
}

func (w *world) strike(ctx context.Context, f fault) error {
	r := rand.New(rand.NewPCG(f.seed, 0))
	if way, service := split(f.target); service != "" {
		return w.strikeWay(ctx, r, f, way, service)
	}
	if f.target == "work queue" {
		return w.strikeQueue(ctx, f)
	}
	turn := w.turns[f.target]
	turn.Lock()
	defer turn.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.report.line("%s", f)
	if s := w.slots[f.target]; s != nil {
		return w.strikeProcess(ctx, f, s)
	}
	return w.strikeService(ctx, f)
}

// split takes a way apart: the process and the service. What is no way has no service.
func split(target string) (process, service string) {
	process, service, _ = strings.Cut(target, "/")
	return process, service
}

func (w *world) strikeProcess(ctx context.Context, f fault, s *slot) error {
	p := s.current()
	switch f.kind {
	case freeze:
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, f.lasts)
		return p.Signal(syscall.SIGCONT)
	case kill:
		if err := p.Kill(); err != nil {
			return err
		}
	default:
		w.stop(s.name)
	}
	pause(ctx, f.lasts)
	return w.start(context.WithoutCancel(ctx), s.name)
}

// service is what can be done to each of them. stop may be nil: then restart stops it first.
type service struct {
	pause, resume, kill, stop func() error
	restart                   func(context.Context) error
}

func (w *world) service(ctx context.Context, name string) service {
	switch name {
	case "postgres":
		return service{w.postgres.Pause, w.postgres.Resume, w.postgres.Kill, nil, w.postgres.Restart}
	case "broker":
		return service{w.activemq.Pause, w.activemq.Resume, func() error { w.activemq.Kill(); return nil }, func() error { return w.activemq.Halt(ctx) }, w.activemq.Restart}
	default:
		return service{w.s3.Pause, w.s3.Resume, w.s3.Kill, w.s3.Stop, w.s3.Restart}
	}
}

func (w *world) strikeService(ctx context.Context, f fault) error {
	healing := context.WithoutCancel(ctx)
	s := w.service(healing, f.target)
	end := s.stop
	switch f.kind {
	case sessions:
		return w.query(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `select pg_terminate_backend(pid) from (select pid from pg_stat_activity where application_name like 'exportd%' order by random() limit $1) v`, f.size)
			return err
		})
	case freeze:
		if err := s.pause(); err != nil {
			return err
		}
		pause(ctx, f.lasts)
		return s.resume()
	case kill:
		end = s.kill
	}
	if end != nil {
		if err := end(); err != nil {
			return err
		}
		pause(ctx, f.lasts)
	}
	return s.restart(healing)
}

func (w *world) strikeWay(ctx context.Context, r *rand.Rand, f fault, process, service string) error {
	var at []*proxy
	for way, p := range w.proxies {
		if from, to := split(way); to == service && (from == process || process == "all") {
			at = append(at, p)
		}
	}
	if f.kind == dropped {
		bounded, cancel := context.WithTimeout(ctx, f.lasts)
		defer cancel()
		for _, p := range at {
			p.arm(bounded, f.answer)
		}
		<-bounded.Done()
		return nil
	}
	w.report.line("%s", f)
	var heals []func()
	for _, p := range at {
		switch f.kind {
		case cut:
			p.cut(r, f.share)
		case refuse:
			heals = append(heals, p.refuse())
		default:
			heals = append(heals, p.ail(r, f.share, ailmentOf(f, r)))
		}
	}
	if f.lasts > 0 {
		pause(ctx, f.lasts)
	}
	for _, heal := range heals {
		heal()
	}
	return nil
}

func ailmentOf(f fault, r *rand.Rand) ailment {
	switch f.kind {
	case stallUp:
		return ailment{stalled: [2]bool{true, false}}
	case stallDown:
		return ailment{stalled: [2]bool{false, true}}
	case halfOpen:
		return ailment{deaf: true}
	default:
		return ailment{delay: time.Duration(20+r.IntN(130)) * time.Millisecond}
	}
}

// query runs do on a connection that nothing is done to but ends of the server; those are waited out for a while.
func (w *world) query(ctx context.Context, do func(*pgx.Conn) error) error {
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var last error
	err := stack.Poll(bounded, 200*time.Millisecond, func() (bool, error) {
		conn, err := pgx.Connect(bounded, w.Database)
		if err == nil {
			err = do(conn)
			conn.Close(context.WithoutCancel(bounded))
		}
		last = err
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// pause ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
