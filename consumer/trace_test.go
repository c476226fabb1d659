package consumer

import (
	"context"
	"testing"

	"exportd/export"
)

func TestWithoutTracesAnAttemptAllocatesNothingForThem(t *testing.T) {
	c, claim, ctx := &Consumer{}, &export.Claim{}, context.Background()
	if n := testing.AllocsPerRun(100, func() {
		attempt, end := c.traceAttempt(ctx, claim, "")
		_, endStep := c.step(attempt, "query")
		endStep(nil)
		end(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnAttemptIsBelowItsMessageOnlyWithinTheTraceOfItsJob(t *testing.T) {
	t.Parallel()
	const (
		job     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		message = "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-01"
		foreign = "00-0000000000000000000000000000000a-0000000000000001-01"
	)
	for _, want := range []struct{ job, message, parent string }{{job, message, message}, {job, foreign, job}, {job, "x", job}, {job, "", job}, {"", foreign, ""}} {
		var got string
		c := &Consumer{Config: Config{Trace: func(ctx context.Context, s export.Span) (context.Context, string, export.EndSpan) {
			got = s.Parent
			return ctx, "", noTrace
		}}}
		c.traceAttempt(t.Context(), &export.Claim{Job: export.ClaimJob{Traceparent: want.job}}, want.message)
		if got != want.parent {
			t.Errorf("%+v: got %q", want, got)
		}
	}
}
