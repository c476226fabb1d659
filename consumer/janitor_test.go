package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"exportd/consumer"
)

// litter is what a janitor sees: uploads with their ages, and which of them are in use.
type litter struct {
	ages   map[consumer.OpenUpload]time.Duration
	used   []string
	stuck  string // cannot be aborted
	probes time.Duration
}

func (l *litter) OldUploads(_ context.Context, prefix string, age time.Duration) (old []consumer.OpenUpload, err error) {
	for u, a := range l.ages {
		if strings.HasPrefix(u.Key, prefix) && a >= age {
			old = append(old, u)
		}
	}
	return old, nil
}

func (l *litter) UploadsInUse(_ context.Context, ids []string) (used []string, err error) {
	for _, id := range ids {
		if slices.Contains(l.used, id) {
			used = append(used, id)
		}
	}
	return used, nil
}

func (l *litter) AbortUpload(_ context.Context, key, id string) error {
	if id == l.stuck {
		return errors.New("not now")
	}
	delete(l.ages, consumer.OpenUpload{Key: key, ID: id})
	return nil
}

func (l *litter) RemoveOldProbes(_ context.Context, age time.Duration) error {
	l.probes = age
	return nil
}

func TestTheJanitorAbortsWhatNoClaimCanStillOwn(t *testing.T) {
	upload := func(key string) consumer.OpenUpload { return consumer.OpenUpload{Key: key, ID: "id of " + key} }
	young, taken, stuck, foreign := upload("exports/young"), upload("exports/taken"), upload("exports/stuck"), upload("exports2/foreign")
	l := &litter{ages: map[consumer.OpenUpload]time.Duration{
		upload("exports/old"): time.Hour, upload("exports/_manifests/old"): 31 * time.Minute, young: 30 * time.Minute, taken: time.Hour, stuck: time.Hour, foreign: time.Hour,
	}, used: []string{taken.ID}, stuck: stuck.ID}
	j := &consumer.Janitor{Store: l, Bucket: l, BasePath: "/exports/", ChunkTimeout: 30 * time.Minute, Lease: time.Minute, Log: slog.New(slog.DiscardHandler)}
	if err := j.Tidy(t.Context()); err == nil {
		t.Error("nothing is said of the upload that could not be aborted")
	}
	for _, u := range []consumer.OpenUpload{young, taken, stuck, foreign} {
		if _, ok := l.ages[u]; !ok {
			t.Errorf("%s was aborted", u.Key)
		}
		delete(l.ages, u)
	}
	if len(l.ages) > 0 {
		t.Errorf("still there: %v", l.ages)
	}
	if l.probes != 31*time.Minute {
		t.Errorf("probes are removed after %s", l.probes)
	}
}
