package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/schollz/progressbar/v3"
)

const pollEvery = 100 * time.Millisecond

// watch follows the job to its end, kills a consumer half-way and starts another in its place.
func (d *demo) watch(ctx context.Context, j job) (job, error) {
	progress := d.newProgress(j.Total)
	killed := false
	for {
		var err error
		if j, err = d.client.job(ctx, j.JobID); err != nil {
			return j, err
		}
		progress.show(j)
		if j.ended() {
			progress.finish()
			return j, nil
		}
		if !killed && 2*j.Done >= j.Total {
			killed = true
			progress.pause()
			if err := d.killOne(ctx, j); err != nil {
				return j, err
			}
		}
		select {
		case <-ctx.Done():
			return j, context.Cause(ctx)
		case <-d.api.done:
			return j, fmt.Errorf("exportd api ended: %w", d.api.ending())
		case <-time.After(pollEvery):
		}
	}
}

// killOne kills the second consumer as a crash of its machine would, and puts another in its place.
func (d *demo) killOne(ctx context.Context, j job) error {
	victim := d.consumers[1]
	pid := victim.cmd.Process.Pid
	if err := victim.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", victim.name, err)
	}
	held, err := d.heldBy(ctx, pid)
	if err != nil {
		return err
	}
	d.say("kill -9 of consumer 2 (pid %d) at %d of %d chunks; it had %d in hand", pid, j.Done, j.Total, held)
	d.say("they run again when its claims end, after %s; messages that it was about to publish are due again after 15s", lease)
	next, err := d.startChild("consumer 2", "consumer")
	if err != nil {
		return err
	}
	d.consumers[1] = next
	d.say("consumer 2 started again (pid %d)", next.cmd.Process.Pid)
	return nil
}

// heldBy counts the chunks that a process holds claims on. Workers are named host/pid/start.
func (d *demo) heldBy(ctx context.Context, pid int) (n int, err error) {
	conn, err := pgx.Connect(ctx, d.databaseURL)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "select count(*) from job_chunk where status = 'RUNNING' and split_part(lock_owner, '/', 2) = $1::text", fmt.Sprint(pid)).Scan(&n)
	return n, err
}

// progress draws a bar on a terminal, and elsewhere a line for every tenth of the way.
type progress struct {
	*demo
	total  int
	bar    *progressbar.ProgressBar
	tenths int
}

func (d *demo) newProgress(total int) *progress {
	p := &progress{demo: d, total: total}
	if d.Terminal {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(d.Out), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetWidth(40), progressbar.OptionClearOnFinish())
	}
	return p
}

func (p *progress) show(j job) {
	if p.bar != nil {
		_ = p.bar.Set(j.Done) // it only draws
		return
	}
	if tenths := 10 * j.Done / p.total; tenths > p.tenths {
		p.tenths = tenths
		p.say("%4d of %d chunks done", j.Done, j.Total)
	}
}

// pause makes room for lines of text.
func (p *progress) pause() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
