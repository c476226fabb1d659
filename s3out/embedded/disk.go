package embedded

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scratch holds what is not an object yet; it is emptied at the start.
const scratch = ".uploads"

// object is what the file alone does not tell.
type object struct {
	etag     string // quoted
	size     int64
	modified time.Time
	header   http.Header // Content-Type, Content-Encoding, X-Amz-Meta-…
}

// disk is the index of the objects, by bucket/key, and of the open uploads. A file is only changed, by a rename, under the lock.
type disk struct {
	root    *os.Root
	mu      sync.Mutex
	objects map[string]object
	uploads map[string]*upload
}

func openDisk(root *os.Root) (*disk, error) {
	d := &disk{root: root, objects: map[string]object{}, uploads: map[string]*upload{}}
	if err := errors.Join(root.RemoveAll(scratch), root.Mkdir(scratch, 0o755)); err != nil {
		return nil, err
	}
	return d, fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !strings.Contains(name, "/") {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		d.objects[name] = object{size: info.Size(), modified: info.ModTime(), header: http.Header{},
			etag: fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size())}
		return nil
	})
}

func (d *disk) hasBucket(bucket string) bool {
	info, err := d.root.Stat(bucket)
	return err == nil && info.IsDir()
}

// describe keeps of a request what belongs to the object.
func describe(h http.Header) http.Header {
	kept := http.Header{}
	for k, v := range h {
		if k == "Content-Type" || k == "Content-Encoding" || strings.HasPrefix(k, "X-Amz-Meta-") {
			kept[k] = v
		}
	}
	return kept
}

// check is the condition of a write; the caller holds the lock.
func (d *disk) check(h http.Header, name string) error {
	o, found := d.objects[name]
	ifMatch, ifNoneMatch := h.Get("If-Match"), h.Get("If-None-Match")
	switch {
	case ifMatch != "" && !found:
		return noSuchKey
	case ifMatch != "" && ifMatch != o.etag, ifNoneMatch == "*" && found:
		return precondition
	case ifNoneMatch != "" && ifNoneMatch != "*":
		return unknown
	}
	return nil
}

func (d *disk) checkNow(h http.Header, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.check(h, name)
}

// receive writes a request's body into a scratch file, which the caller renames or removes. etag is the quoted MD5.
func (d *disk) receive(r *http.Request) (temp, etag string, size int64, err error) {
	temp = path.Join(scratch, rand.Text())
	f, err := d.root.Create(temp)
	if err != nil {
		return "", "", 0, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = d.root.Remove(temp)
		}
	}()
	sum, crc := md5.New(), crc32.New(crc32.MakeTable(crc32.Castagnoli))
	size, err = io.Copy(io.MultiWriter(f, sum, crc), r.Body)
	if err != nil {
		return "", "", 0, fmt.Errorf("%w (%w)", incomplete, err)
	}
	want := r.Header.Get("X-Amz-Checksum-Crc32c")
	if want != "" && want != base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc.Sum32())) {
		return "", "", 0, badDigest
	}
	return temp, `"` + hex.EncodeToString(sum.Sum(nil)) + `"`, size, nil
}

// publish makes a scratch file the object, if the condition holds.
func (d *disk) publish(temp, name string, o object, condition http.Header) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(condition, name); err != nil {
		return err
	}
	if err := d.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return invalid("the key lies below another object: %v", err)
	}
	if err := d.root.Rename(temp, name); err != nil {
		return invalid("the key is the folder of other objects: %v", err)
	}
	o.modified = time.Now()
	d.objects[name] = o
	return nil
}

func (d *disk) put(w http.ResponseWriter, r *http.Request, name string) error {
	if err := d.checkNow(r.Header, name); err != nil { // before the body comes, if the client waits with it
		return err
	}
	temp, etag, size, err := d.receive(r)
	if err != nil {
		return err
	}
	if err := d.publish(temp, name, object{etag: etag, size: size, header: describe(r.Header)}, r.Header); err != nil {
		return errors.Join(err, d.root.Remove(temp))
	}
	w.Header().Set("ETag", etag)
	return nil
}

func (d *disk) get(w http.ResponseWriter, r *http.Request, name string) error {
	o, f, err := d.open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	for k, v := range o.header {
		h[k] = v
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/octet-stream")
	}
	if v := r.URL.Query().Get("response-content-disposition"); v != "" {
		h.Set("Content-Disposition", v)
	}
	h.Set("ETag", o.etag)
	h.Set("Content-Length", strconv.FormatInt(o.size, 10)) // ServeContent leaves it out when there is a Content-Encoding
	http.ServeContent(w, r, "", o.modified, f)
	return nil
}

func (d *disk) open(name string) (object, *os.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, found := d.objects[name]
	if !found {
		return o, nil, noSuchKey
	}
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		delete(d.objects, name) // somebody has removed the file
		return o, nil, noSuchKey
	}
	return o, f, err
}

func (d *disk) delete(w http.ResponseWriter, r *http.Request, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, found := d.objects[name]
	if m := r.Header.Get("If-Match"); m != "" && found && m != o.etag {
		return precondition
	}
	if found {
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		delete(d.objects, name)
		for dir := path.Dir(name); strings.Contains(dir, "/"); dir = path.Dir(dir) {
			if d.root.Remove(dir) != nil {
				break // not empty
			}
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
