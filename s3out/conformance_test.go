package s3out_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"context"

	"github.com/google/go-cmp/cmp"

	"exportd/export"
	"exportd/s3out"
)

func TestAnUploadOfAnySizeAppearsWholeAtCommit(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		part := s.PartSize()
		for name, size := range map[string]int{"empty": 0, "one byte": 1, "one block": 64 << 10, "exactly one part": part,
			"one byte more than a part": part + 1, "exactly two parts": 2 * part, "many parts": 4*part + 12345} {
			t.Run(name, func(t *testing.T) {
				key, data := "exports/"+strings.ReplaceAll(name, " ", "-")+".csv", content(size)
				u := start(t, s, s3out.UploadOptions{Key: key, ContentType: "text/csv; charset=utf-8", Metadata: map[string]string{"claim": "c1"}}, data)
				n, sha := finish(t, u)
				want := sha256.Sum256(data)
				if n != int64(size) || sha != hex.EncodeToString(want[:]) {
					t.Fatalf("Finish = %d, %s; want %d, %x", n, sha, size, want)
				}
				if _, found := head(t, s, key); found {
					t.Fatal("the object is visible before Commit")
				}
				etag, err := u.Commit(t.Context(), s3out.Condition{}, map[string]string{"rows": "7"})
				if err != nil {
					t.Fatal(err)
				}
				abort(t, u) // nothing after a Commit
				info, found := head(t, s, key)
				meta := map[string]string{"claim": "c1"}
				if size <= part {
					meta["rows"] = "7"
				}
				wanted := s3out.ObjectInfo{Key: key, Size: int64(size), ETag: etag, ContentType: "text/csv; charset=utf-8", Metadata: meta, LastModified: info.LastModified}
				if diff := cmp.Diff(wanted, info); !found || diff != "" {
					t.Error(diff)
				}
				if d := time.Since(info.LastModified); d < -time.Minute || d > time.Hour {
					t.Errorf("LastModified is %v ago", d)
				}
				if u.Moved() != int64(size) {
					t.Errorf("Moved() = %d, want %d", u.Moved(), size)
				}
				wantContents(t, s, key, data)
			})
		}
	})
}

func TestTheLastStepObeysItsCondition(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		for name, size := range map[string]int{"single": 1000, "multipart": s.PartSize() + 1000} {
			t.Run(name, func(t *testing.T) {
				key := "exports/" + name
				refused := func(u *s3out.Upload, c s3out.Condition) {
					t.Helper()
					_, err := u.Commit(t.Context(), c, nil)
					var p interface{ Precondition() bool }
					if !errors.Is(err, s3out.ErrPrecondition) || !errors.As(err, &p) || !p.Precondition() {
						t.Fatalf("Commit(%+v) = %v, want ErrPrecondition", c, err)
					}
				}
				first, second, third := content(size), content(size+1), content(size+2)

				u := start(t, s, s3out.UploadOptions{Key: key}, first)
				finish(t, u)
				refused(u, s3out.Condition{IfMatch: `"0123456789abcdef0123456789abcdef"`}) // there is none
				old := commit(t, u, s3out.Condition{})
				wantContents(t, s, key, first)

				u = start(t, s, s3out.UploadOptions{Key: key}, second)
				finish(t, u)
				refused(u, s3out.Condition{}) // there is one
				wantUnchanged(t, s, key, old)
				etag := commit(t, u, s3out.Condition{IfMatch: old})
				wantContents(t, s, key, second)

				u = start(t, s, s3out.UploadOptions{Key: key}, third)
				finish(t, u)
				refused(u, s3out.Condition{IfMatch: old}) // it is another by now
				abort(t, u)
				wantUnchanged(t, s, key, etag)
				wantContents(t, s, key, second)
			})
		}
	})
}

func wantUnchanged(t *testing.T, s *s3out.Store, key, etag string) {
	t.Helper()
	if info, found := head(t, s, key); !found || info.ETag != etag {
		t.Errorf("the object was changed: found %v, ETag %s, want %s", found, info.ETag, etag)
	}
}

func TestAnAbortedUploadLeavesNothing(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		for name, stop := range map[string]func(*s3out.Upload){
			"at once":           func(*s3out.Upload) {},
			"in the first part": func(u *s3out.Upload) { u.Write(content(100)) },
			"with a part in flight": func(u *s3out.Upload) {
				u.Write(content(2*s.PartSize() + 1))
			},
			"finished":            func(u *s3out.Upload) { u.Write(content(100)); finish(t, u) },
			"finished, multipart": func(u *s3out.Upload) { u.Write(content(2*s.PartSize() + 1)); finish(t, u) },
		} {
			t.Run(name, func(t *testing.T) {
				u := s.NewUpload(t.Context(), s3out.UploadOptions{Key: "exports/aborted"})
				stop(u)
				abort(t, u)
				abort(t, u)
				if _, err := u.Write([]byte("x")); err == nil {
					t.Error("an aborted upload takes bytes")
				}
				if _, err := u.Commit(t.Context(), s3out.Condition{}, nil); err == nil {
					t.Error("an aborted upload can be committed")
				}
				if found := keys(t, s, "exports/aborted"); len(found) > 0 {
					t.Errorf("objects: %v", found)
				}
				wantNoUploads(t, s)
			})
		}
	})
}

func TestAnEndedContextStopsAnUploadAndAbortStillCleansUp(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		ctx, cancel := context.WithCancelCause(t.Context())
		u := s.NewUpload(ctx, s3out.UploadOptions{Key: "exports/stopped"})
		if _, err := u.Write(content(s.PartSize() + 1)); err != nil {
			t.Fatal(err)
		}
		cancel(export.ErrEnding)
		var err error
		for range 3 { // the part on its way may still arrive
			_, err = u.Write(content(s.PartSize()))
		}
		if !errors.Is(err, context.Canceled) || !errors.Is(err, export.ErrEnding) {
			t.Errorf("Write = %v, want the context's error and its cause", err)
		}
		if err := u.Abort(ctx); err != nil {
			t.Error(err)
		}
		wantNoUploads(t, s)
	})
}

func TestCreatedIsToldTheUploadBeforeItsFirstPart(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		var told []string
		u := start(t, s, s3out.UploadOptions{Key: "exports/told", Created: func(_ context.Context, id string) error {
			told = append(told, id)
			for open, err := range s.ListUploads(t.Context(), "exports/told") {
				if err != nil || open.UploadID != id {
					t.Errorf("open upload %+v, %v; told %s", open, err, id)
				}
			}
			return nil
		}}, content(3*s.PartSize()))
		finish(t, u)
		commit(t, u, s3out.Condition{})
		if len(told) != 1 {
			t.Errorf("Created was called %d times", len(told))
		}

		mine := errors.New("no longer mine")
		u = s.NewUpload(t.Context(), s3out.UploadOptions{Key: "exports/refused", Created: func(context.Context, string) error { return mine }})
		if _, err := u.Write(content(2 * s.PartSize())); !errors.Is(err, mine) {
			t.Errorf("Write = %v, want Created's error", err)
		}
		if _, _, err := u.Finish(t.Context()); !errors.Is(err, mine) {
			t.Errorf("Finish = %v, want Created's error", err)
		}
		abort(t, u)
		wantNoUploads(t, s)
	})
}

// H5-56.
func TestEveryKeyIsAnObjectOfItsOwnAndItsLinkReturnsItsBytes(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		date, err := export.ParseDate("20250131")
		if err != nil {
			t.Fatal(err)
		}
		var written []string
		for _, key := range []string{"A+B", "A B", "A%2BB", "A%20B", "A%252BB", "A#B", "A?B", "A&B=C", "A;B", "~A", "价格", "A/B", "../A", "./A", "A//B", ".", "..",
			"a", "A", "A_B", "A-B", "A.B", `A"B`, `A\B`, strings.Repeat("x", 128), strings.Repeat("é", 33)} {
			object := export.ObjectKey("exports", key, date, export.None)
			upload(t, s, object, []byte(key), s3out.Condition{})
			written = append(written, object)
		}
		for _, object := range written {
			url, _, err := s.Presign(t.Context(), object, "name.csv", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			got, header := get(t, url)
			if want := read(t, s, object); got != string(want) || !strings.Contains(header.Get("Content-Disposition"), "name.csv") {
				t.Errorf("the link to %s returns %q with %v, want %q", object, got, header, want)
			}
		}
		slices.Sort(written)
		listed := keys(t, s, "exports/2025/01/31/")
		slices.Sort(listed)
		if diff := cmp.Diff(written, listed); diff != "" {
			t.Error(diff)
		}
	})
}

func get(t *testing.T, url string) (string, http.Header) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("HTTP %d, %v: %s", resp.StatusCode, err, b)
	}
	return string(b), resp.Header
}

func TestMetadataOfAnyTextComesBack(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		want := map[string]string{"chunk": "key=A/B:date=20250101", "percent": "100%25", "utf8": "价格 é", "spaces": " x y ", "empty": "", "newline": "a\nb"}
		if _, err := s.PutSmall(t.Context(), "exports/meta", "text/plain", []byte("x"), want, s3out.Condition{}); err != nil {
			t.Fatal(err)
		}
		info, _ := head(t, s, "exports/meta")
		delete(want, "empty") // some stores leave empty values away
		delete(info.Metadata, "empty")
		if diff := cmp.Diff(want, info.Metadata); diff != "" {
			t.Error(diff)
		}
	})
}

func TestDeleteRefusesAnotherVersion(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		const key = "exports/deleted"
		etag := upload(t, s, key, []byte("1"), s3out.Condition{})
		if err := s.Delete(t.Context(), key, `"0123456789abcdef0123456789abcdef"`); !errors.Is(err, s3out.ErrPrecondition) {
			t.Errorf("Delete = %v, want ErrPrecondition", err)
		}
		wantUnchanged(t, s, key, etag)
		for range 2 { // the second finds nothing
			if err := s.Delete(t.Context(), key, etag); err != nil {
				t.Error(err)
			}
		}
		if _, found := head(t, s, key); found {
			t.Error("the object is still there")
		}
		if err := s.Delete(t.Context(), key, ""); err != nil {
			t.Error(err)
		}
	})
}

func TestAnAbsentObjectIsAbsent(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info, found := head(t, s, "exports/none"); found {
			t.Errorf("found %+v", info)
		}
		_, _, err := s.Get(t.Context(), "exports/none")
		if f := export.FailureOf(err); err == nil || f.Code != "S3_NO_SUCH_KEY" || f.Class != export.Permanent {
			t.Errorf("Get = %v", err)
		}
		if err := s.AbortUpload(t.Context(), "exports/none", "none"); err != nil {
			t.Errorf("aborting an upload that is gone: %v", err)
		}
	})
}

func TestListingsGoOverManyPages(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		if testing.Short() {
			t.Skip("a thousand objects")
		}
		const n = 1005
		for i := range n {
			if _, err := s.PutSmall(t.Context(), "exports/many/"+string(rune('a'+i%26))+strings.Repeat("x", i/26), "", nil, nil, s3out.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		listed := keys(t, s, "exports/many/")
		slices.Sort(listed)
		if listed = slices.Compact(listed); len(listed) != n {
			t.Errorf("%d objects listed, want %d", len(listed), n)
		}
	})
}

func TestTheSelfTestLeavesNothing(t *testing.T) {
	everyStore(t, func(t *testing.T, s *s3out.Store) {
		caps, err := s.SelfTest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conditional := !strings.Contains(t.Name(), "unconditional")
		want := s3out.Capabilities{ConditionalPut: conditional, ConditionalComplete: conditional, ConditionalDelete: conditional, Checksums: true}
		if caps != want {
			t.Errorf("%+v, want %+v", caps, want)
		}
		if found := keys(t, s, ""); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
		wantNoUploads(t, s)
	})
}
