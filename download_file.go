package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"exportd/client"
)

// fetcher brings files of a job into a folder.
type fetcher struct {
	api   client.Client
	jobID string
	into  *folder
	http  *http.Client
	pause time.Duration // before the second try; doubled for each further one
	tell  func(n int64) // of bytes that are there, or, negative, are not any more
}

const (
	fileTries = 5
	fileQuiet = time.Minute // without a byte: the connection is given up
	partial   = ".part"
)

func newFileClient(parallel int) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = parallel
	t.ResponseHeaderTimeout = fileQuiet
	t.DisableCompression = true // the bytes as they lie in the bucket
	return &http.Client{Transport: t}
}

// permanent is an error that another try does not mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// fetch has the chunk's file lie in the folder under name, whole and with the right sha256, or not at all. Kept: it was there already.
func (f *fetcher) fetch(ctx context.Context, ch client.Chunk, name string) (kept bool, fetched int64, err error) {
	switch ok, err := f.isThere(ctx, ch, name); {
	case err != nil:
		return false, 0, err
	case ok:
		f.tell(ch.ByteCount)
		return true, 0, nil
	}
	t := &transfer{fetcher: f, Chunk: ch, name: name}
	furthest, pause := int64(0), f.pause
	for try := 1; ; try++ {
		err := t.try(ctx)
		if err == nil {
			return false, t.fetched, nil
		}
		f.tell(-t.have)
		if t.have > furthest { // it moves
			furthest, try, pause = t.have, 1, f.pause
		}
		final := permanent{}
		if try >= fileTries || errors.As(err, &final) || ctx.Err() != nil {
			return false, t.fetched, err
		}
		select {
		case <-ctx.Done():
			return false, t.fetched, ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, 10*time.Second)
		}
	}
}

// isThere says whether the file lies in the folder as it should be.
func (f *fetcher) isThere(ctx context.Context, ch client.Chunk, name string) (bool, error) {
	info, err := f.into.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is there and is no plain file; move it away", f.into.path(name))
	case info.Size() != ch.ByteCount:
		return false, nil
	}
	file, err := f.into.Open(name)
	if err != nil {
		return false, err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, heedful{ctx, file}); err != nil {
		return false, err
	}
	return hexOf(sum) == ch.Checksum, nil
}

// heedful reads until ctx ends: a large file takes a while.
type heedful struct {
	ctx context.Context
	io.Reader
}

func (r heedful) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(b)
}

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// transfer is the file of one chunk on its way.
type transfer struct {
	*fetcher
	client.Chunk
	name      string
	part      *os.File
	sum       hash.Hash // of what the part holds
	have      int64     // bytes in it
	continued bool      // some of them are of an earlier try
	fetched   int64     // in all tries
}

// try goes on where the part that is there ends. A new address for each try: the last one may have run out.
func (t *transfer) try(ctx context.Context) (err error) {
	t.have = 0
	address, _, err := t.api.FileURL(ctx, t.jobID, t.ChunkKey)
	if err != nil {
		if !errors.Is(err, client.ErrUnreachable) {
			err = permanent{err}
		}
		return err
	}
	if t.part, err = t.into.OpenFile(t.name+partial, os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return permanent{err}
	}
	defer t.part.Close()
	if info, err := t.part.Stat(); err != nil || !info.Mode().IsRegular() {
		return permanent{cmp.Or(err, fmt.Errorf("%s is there and is no plain file; move it away", t.into.path(t.name+partial)))}
	}
	t.sum = sha256.New()
	if t.have, err = io.Copy(t.sum, heedful{ctx, t.part}); err != nil {
		return permanent{err}
	}
	t.tell(t.have)
	t.continued = t.have > 0
	if t.have < t.ByteCount || t.have == 0 {
		if err := t.receive(ctx, address); err != nil {
			return err
		}
	}
	if t.have != t.ByteCount || hexOf(t.sum) != t.Checksum {
		return t.spoilt()
	}
	if err := t.part.Close(); err != nil {
		return permanent{err}
	}
	if err := t.into.Rename(t.name+partial, t.name); err != nil {
		return permanent{err}
	}
	return nil
}

// spoilt removes a part that is not what it should be. One that was continued may have been spoilt before, so it is fetched anew; one that came whole from
// the store is what the store has.
func (t *transfer) spoilt() error {
	if err := t.into.Remove(t.name + partial); err != nil {
		return permanent{err}
	}
	t.tell(-t.have)
	t.have = 0
	wrong := fmt.Errorf("what the store gives is not the file: its sha256 is not %s", t.Checksum)
	switch {
	case t.Superseded:
		return permanent{errors.New("the file was made anew by a later job since, and is not the one that this job made; download that job's")}
	case t.continued:
		return wrong
	}
	return permanent{wrong}
}

// receive appends what the part lacks.
func (t *transfer) receive(ctx context.Context, address string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(fileQuiet, func() { cancel(errors.New("the store is silent")) })
	defer quiet.Stop()
	resp, err := t.open(ctx, address)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// One byte more than there should be is enough to see that it is another file.
	buffer := make([]byte, 64<<10)
	for body := io.LimitReader(resp.Body, t.ByteCount-t.have+1); ; {
		got, readErr := body.Read(buffer)
		if got > 0 {
			quiet.Reset(fileQuiet)
			if _, err := t.part.Write(buffer[:got]); err != nil {
				return permanent{err}
			}
			t.sum.Write(buffer[:got])
			t.have += int64(got)
			t.fetched += int64(got)
			t.tell(int64(got))
		}
		switch {
		case readErr == io.EOF:
			return nil
		case readErr != nil:
			return fmt.Errorf("the file broke off: %w", cmp.Or(context.Cause(ctx), readErr))
		}
	}
}

// open asks the store for what the part lacks, and empties the part when the whole comes.
func (t *transfer) open(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, permanent{errors.New("the API gave an address that is none")}
	}
	from := strconv.FormatInt(t.have, 10)
	if t.continued {
		req.Header.Set("Range", "bytes="+from+"-")
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the store cannot be reached: %w", cmp.Or(context.Cause(ctx), withoutURL(err)))
	}
	switch {
	case resp.StatusCode == http.StatusPartialContent && t.continued && strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+from+"-"):
		return resp, nil
	case resp.StatusCode == http.StatusOK:
		if err = t.startOver(); err == nil {
			return resp, nil
		}
	case resp.StatusCode == http.StatusNotFound:
		err = permanent{errors.New("the store has no such file any more; submit its key and date again to make it anew")}
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		err = cmp.Or(t.startOver(), errors.New("the file in the store is shorter than the part that is here"))
	default:
		err = fmt.Errorf("the store answered %s", resp.Status)
	}
	resp.Body.Close()
	return nil, err
}

func (t *transfer) startOver() error {
	if err := t.part.Truncate(0); err != nil {
		return permanent{err}
	}
	if _, err := t.part.Seek(0, io.SeekStart); err != nil {
		return permanent{err}
	}
	t.sum.Reset()
	t.tell(-t.have)
	t.have, t.continued = 0, false
	return nil
}

// withoutURL hides the address, which lets anyone who reads it have the file.
func withoutURL(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}
