package main

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"exportd/e2e/stack"
	"exportd/s3out"
	"exportd/s3out/locals3"
)

type options struct {
	race   bool
	settle time.Duration
	out    io.Writer
}

type result struct {
	breaches []string
	text     string
	dir      string // kept after breaches
}

// execute carries a plan out and checks what is left.
func execute(ctx context.Context, p plan, o options) (res result, err error) {
	os.Setenv("AWS_ACCESS_KEY_ID", locals3.AccessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", locals3.SecretKey)
	if res.dir, err = os.MkdirTemp("", "exportd-chaos-"); err != nil {
		return res, err
	}
	rep := newReport(o.out)
	w, err := newWorld(ctx, res.dir, p, o.race, rep)
	if err != nil {
		os.RemoveAll(res.dir)
		return res, err
	}
	defer func() {
		w.close()
		if err == nil && len(res.breaches) == 0 {
			os.RemoveAll(res.dir)
		}
	}()
	for _, name := range processes {
		if err := w.start(ctx, name); err != nil {
			return res, err
		}
	}
	rep.began = time.Now()
	if len(p.alone) > 0 {
		rep.line("without a broker: %s", strings.Join(p.alone, ", "))
	}
	stopProgress := w.progress(ctx)
	w.drive(ctx, p, o)
	stopProgress()
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	if err := w.check(ctx, p); err != nil {
		return res, err
	}
	if len(rep.found()) > 0 {
		if err := w.keepEvidence(ctx); err != nil {
			return res, err
		}
	}
	res.breaches, res.text = rep.found(), strings.Join(w.tell(ctx, outcomesSQL), "\n")+"\n"+rep.summary()
	return res, nil
}

// drive lets faults and clients loose, and returns when all jobs have ended after everything was healed.
func (w *world) drive(ctx context.Context, p plan, o options) {
	trouble, peace := context.WithTimeout(ctx, p.duration)
	defer peace()
	patience, giveUp := context.WithTimeout(ctx, p.duration+o.settle)
	defer giveUp()
	var done sync.WaitGroup
	done.Go(func() { w.clients(patience, p.orders, trouble) })
	done.Go(func() { w.changeSource(trouble) })
	w.inflict(trouble, p.faults)
	<-trouble.Done()
	if err := w.heal(ctx); err != nil {
		w.report.breach("heal: %v", err)
	}
	w.report.line("everything is healed; waiting for the jobs to end")
	done.Wait()
	if patience.Err() != nil && ctx.Err() == nil {
		for _, line := range w.tell(ctx, hangingSQL) {
			w.report.line("hangs: %s", line)
		}
	}
}

// changeSource changes the rows of the keys VER… all the time, so that the files of different claims differ.
func (w *world) changeSource(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.query(ctx, func(c conn) error { // a change less is no harm
			_, err := c.Exec(ctx, `update src_version set v = v + 1`)
			return err
		})
		pause(ctx, 300*time.Millisecond)
	}
}

// progress writes a line every ten seconds.
func (w *world) progress(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			pause(ctx, 10*time.Second)
			if ctx.Err() != nil {
				return
			}
			w.report.line("%d faults; %s", w.report.faults(), strings.Join(w.tell(ctx, progressSQL), " "))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// janitorBound is how long after its attempt an upload that nobody owns may stay.
const janitorBound = chunkTimeout + lease + (chunkTimeout+lease)/4 + 10*time.Second

// check looks at what is left: first with the processes running, which may still acknowledge and tidy up, then without.
func (w *world) check(ctx context.Context, p plan) error {
	w.report.line("checking")
	if err := w.awaitTidiness(ctx); err != nil {
		return err
	}
	var changed []string
	for _, o := range p.orders {
		for _, i := range o.request.Items {
			if changing(i.Key) {
				changed = append(changed, i.Key)
			}
		}
	}
	breaches, err := w.Breaches(ctx, stack.Expect{Changed: changed, Parked: -1, Unannounced: len(p.alone) > 0})
	if err != nil {
		return err
	}
	for _, b := range breaches {
		w.report.breach("%s", b)
	}
	if err := w.strangers(ctx, p.faults); err != nil {
		return err
	}
	var stops sync.WaitGroup
	for _, name := range processes {
		stops.Go(func() { w.stop(name) })
	}
	stops.Wait()
	for _, process := range w.Processes() {
		for _, sign := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(process.Log(), sign) {
				w.report.breach("%s: its log has %q", process.Name, sign)
			}
		}
	}
	return w.checkTransitions(ctx)
}

// awaitTidiness waits until no multipart upload is open and no probe object is left, or for as long as either may take.
func (w *world) awaitTidiness(ctx context.Context) error {
	store, err := s3out.Open(ctx, w.S3)
	if err != nil {
		return err
	}
	defer store.Close()
	bounded, cancel := context.WithTimeout(ctx, janitorBound)
	defer cancel()
	left := 0
	err = stack.Poll(bounded, time.Second, func() (bool, error) {
		left = 0
		for _, err := range store.ListUploads(bounded, "") {
			if err != nil {
				return false, nil
			}
			left++
		}
		for _, err := range store.ListObjects(bounded, w.S3.BasePath+"/_probe/") {
			if err != nil {
				return false, nil
			}
			left++
		}
		return left == 0, nil
	})
	if err != nil {
		w.report.line("after %s, %d uploads or probe objects are left", janitorBound, left)
	}
	return ctx.Err()
}
