package e2e

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"exportd/e2e/stack"
	"exportd/export"
	"exportd/s3out"
)

var noReuse = new(bool)

// version changes what VER gives.
func (w *world) version(n int) { w.exec("update src_version set v = $1", n) }

// object is the plain content of a file of a long past day, "" when there is none.
func (w *world) object(key string) string {
	w.t.Helper()
	body, _, err := w.bucket().Get(w.t.Context(), export.ObjectKey(w.S3.BasePath, key, 20200131, export.None))
	if err != nil {
		return ""
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func TestAFileIsReusedWhileItIsTheRecordedOne(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	ver := stack.Submission{Items: items("VER")}
	key := export.ObjectKey(w.S3.BasePath, "VER", 20200131, export.None)
	content := func(n string) string {
		return "n,name,note,amount,day,at,ratio,span,raw\n" + n + ",VER,,,2020-01-31,,,,\n"
	}
	expect := func(what string, s stack.Submission, reused int, n string) {
		t.Helper()
		job := w.completed(s)
		if got := w.object("VER"); job.FilesReused != reused || job.FilesGenerated != 1-reused || got != content(n) {
			t.Errorf("%s: %d reused, %d generated, the file is %q", what, job.FilesReused, job.FilesGenerated, got)
		}
	}
	expect("first", ver, 0, "1")
	w.version(2)
	expect("again", ver, 1, "1")
	expect("reuse not wanted", stack.Submission{Items: items("VER"), Reuse: noReuse}, 0, "2")
	w.version(3)
	if err := w.bucket().Delete(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	expect("deleted behind the row", ver, 0, "3")
	w.version(4)
	if err := w.bucket().Delete(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	foreign := strings.Repeat("x", len(content("3")))
	if _, err := w.bucket().PutSmall(t.Context(), key, "text/plain", []byte(foreign), nil, s3out.Condition{}); err != nil {
		t.Fatal(err)
	}
	expect("replaced by foreign bytes of the same length", ver, 0, "4")
	expect("again", ver, 1, "4")
	w.checkInvariants()
}

func TestFilesOfRecentDaysAreAlwaysMadeAnew(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	today := export.DateOf(time.Now())
	recent := stack.Submission{Items: []stack.Item{{Key: "VER", EffectiveDates: []string{today.AddDays(-6).String(), today.String(), today.AddDays(40).String()}}}}
	w.completed(recent)
	w.version(2)
	if job := w.completed(recent); job.FilesGenerated != 3 {
		t.Errorf("got %+v", job)
	}
	w.checkInvariants() // the files hold the 2
}

func TestTwoJobsForTheSameFilesAtOnceBothEndWithTheFilesThatAreThere(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	w.startConsumer()
	w.startConsumer()
	ver := []stack.Item{{Key: "ROWS_500", EffectiveDates: days(20)}, {Key: "VER", EffectiveDates: []string{"20200131"}}}
	w.completed(stack.Submission{Items: ver, Reuse: noReuse})

	// Once there is a file, a reader always finds a whole one.
	ctx, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		bucket := w.bucket()
		for ctx.Err() == nil {
			body, _, err := bucket.Get(ctx, export.ObjectKey(w.S3.BasePath, "VER", 20200131, export.None))
			if err == nil {
				var b []byte
				b, err = io.ReadAll(body)
				err = errors.Join(err, body.Close())
				if s := string(b); err == nil && (!strings.HasPrefix(s, "n,name") || !strings.HasSuffix(s, ",VER,,,2020-01-31,,,,\n")) {
					t.Errorf("a reader got %q", s)
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("a reader got %v", err)
			}
		}
	})
	for round := range 3 {
		w.version(round + 2)
		var both sync.WaitGroup
		var jobs [2]stack.Job
		for i := range jobs {
			both.Go(func() {
				job, err := w.client.Submit(ctx, stack.Submission{Items: ver, Reuse: noReuse})
				if err != nil {
					t.Error(err)
				}
				jobs[i] = job
			})
		}
		both.Wait()
		for _, job := range jobs {
			w.ended(job, "COMPLETED")
		}
	}
	stop()
	reader.Wait()
	if n := w.number(`select count(*) from job_chunk where attempts <> 1`); n > 0 {
		t.Errorf("%d chunks needed more than one attempt", n)
	}
	w.checkInvariants()
}

// days are n dates long past.
func days(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = export.Date(20200131).AddDays(-i).String()
	}
	return list
}
