package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve, to be called once, answers requests on l until ctx ends, then lets those in flight finish. It closes l and returns nil after an orderly end.
func (a *API) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: a.Timeouts.Header,
		// From the header's end to the answer's end; streams lift it. ReadTimeout would end streams, so guard bounds bodies instead.
		WriteTimeout:   a.Timeouts.Body + a.Timeouts.Submit + 30*time.Second,
		IdleTimeout:    a.Timeouts.Idle,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	close(a.stopping)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeouts.Shutdown)
	defer cancel()
	err := server.Shutdown(grace)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests in flight were cut off: %w", err), server.Close())
	}
	<-ended
	return err
}
