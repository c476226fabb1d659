package broker

import (
	"context"
	"fmt"

	"github.com/go-stomp/stomp/v3"

	"exportd/export"
)

// Access is what a process must be able to do with a queue.
type Access struct {
	Queue         string
	Send, Receive bool
}

// Check tries, without changing anything, whether a broker answers, takes the login and grants the access. It returns what is wrong in plain words.
func Check(ctx context.Context, cfg Config, wanted ...Access) []string {
	if faults := cfg.Validate(); len(faults) > 0 {
		return faults
	}
	ctx, cancel := context.WithTimeout(ctx, 3*inspectTimeout)
	defer cancel()
	c, err := inspector(cfg).dial(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	c.kill()
	var faults []string
	for _, a := range wanted {
		if a.Send {
			if err := trySend(ctx, cfg, a.Queue); err != nil {
				faults = append(faults, fmt.Sprintf("user %q cannot send to queue %s: %v", cfg.User, a.Queue, err))
			}
		}
		if a.Receive {
			if _, err := Browse(ctx, cfg, a.Queue, 1); err != nil {
				faults = append(faults, fmt.Sprintf("user %q cannot receive from queue %s: %v", cfg.User, a.Queue, err))
			}
		}
	}
	return faults
}

// trySend sends within a transaction that it aborts: the broker checks rights at the SEND.
func trySend(ctx context.Context, cfg Config, queue string) error {
	c, err := inspector(cfg).dial(ctx)
	if err != nil {
		return err
	}
	defer c.kill()
	return c.within(ctx, func() error {
		tx, err := c.BeginWithError()
		if err != nil {
			return err
		}
		probe := export.Message{Body: []byte("exportd doctor")}
		if err := tx.Send("/queue/"+queue, "text/plain", probe.Body, fill(probe), stomp.SendOpt.Receipt); err != nil {
			return err
		}
		return tx.AbortWithReceipt()
	})
}
