package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAReadingIsSharedAndCostsNoMoreThanItsPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		r := &reading[int]{log: slog.New(slog.DiscardHandler), read: func(context.Context) (int, error) {
			reads++
			time.Sleep(time.Second)
			return reads, nil
		}}
		defer r.close()
		for range 3 { // the first reading takes longer than a scrape waits
			if _, at, _ := r.get(); !at.IsZero() {
				t.Error("an answer before there is one")
			}
		}
		time.Sleep(time.Second)
		for began := time.Now(); time.Since(began) < 19*time.Second; time.Sleep(time.Second) {
			if v, at, _ := r.get(); v != 1 || at.IsZero() {
				t.Fatalf("got %d of %s", v, at)
			}
		}
		if reads != 1 {
			t.Errorf("read %d times, although that takes a second each", reads)
		}
		time.Sleep(3 * time.Second)
		r.get()
		time.Sleep(3 * time.Second)
		if v, _, _ := r.get(); v != 2 || reads != 2 {
			t.Errorf("got %d after %d", v, reads)
		}
	})
}

func TestAReadingThatFailsIsForgottenAfterAMinuteAndLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var away error
		r := &reading[int]{name: "it", log: slog.New(slog.NewTextHandler(&log, nil)), read: func(context.Context) (int, error) { return 7, away }}
		defer r.close()
		if v, at, failures := r.get(); v != 7 || at.IsZero() || failures != 0 {
			t.Errorf("got %d of %s, %d failures", v, at, failures)
		}
		away = errors.New("away")
		for range 50 {
			time.Sleep(time.Second)
			if v, at, _ := r.get(); v != 7 || at.IsZero() {
				t.Fatalf("got %d of %s", v, at)
			}
		}
		time.Sleep(15 * time.Second)
		if v, at, failures := r.get(); v != 0 || !at.IsZero() || failures < 4 {
			t.Errorf("got %d of %s, %d failures", v, at, failures)
		}
		if n := strings.Count(log.String(), "not known"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		away = nil
		time.Sleep(10 * time.Second)
		if v, _, _ := r.get(); v != 7 {
			t.Errorf("got %d", v)
		}
	})
}

func TestAClosedReadingHasEndedAndIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		r := &reading[int]{log: slog.New(slog.DiscardHandler), read: func(ctx context.Context) (int, error) {
			reads++
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		began := time.Now()
		r.get()
		if took := time.Since(began); took > time.Second {
			t.Errorf("a scrape waited %s", took)
		}
		r.close()
		time.Sleep(time.Hour)
		r.get()
		if reads != 1 || time.Since(began) > time.Hour+time.Second {
			t.Errorf("%d readings, %s", reads, time.Since(began))
		}
	})
}
