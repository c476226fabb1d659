package consumer

import "context"

func (s *Sweeper) EndExpired(ctx context.Context) error { return s.endExpired(ctx) }
