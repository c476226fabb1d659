package webhook

import (
	"context"
	"time"

	"exportd/export"
)

// store is what deliveries ask of the truth database. Every call is repeatable.
type store interface {
	// LeaseWebhooks takes up to limit due events, at most one of each host and none of the busy hosts, for longer than a call and its record take.
	LeaseWebhooks(ctx context.Context, busy []string, limit int) ([]export.Webhook, error)
	// PutOffWebhook has the event tried again after the delay; export.ErrStale when somebody else tries it already.
	PutOffWebhook(ctx context.Context, e export.Webhook, delay time.Duration, reason string) error
	// DropWebhook removes an event that is not told; export.ErrStale as above.
	DropWebhook(ctx context.Context, e export.Webhook) error
	// DeleteOutbox removes events that were told, whoever else tries.
	DeleteOutbox(ctx context.Context, ids []int64) error
}
