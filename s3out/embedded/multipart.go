package embedded

import (
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// upload is an open multipart upload; its parts are scratch files.
type upload struct {
	bucket, key string
	initiated   time.Time
	header      http.Header

	mu    sync.Mutex // held over a whole Complete or Abort
	over  bool
	parts map[int]piece
}

type piece struct {
	temp, etag string
	size       int64
}

func (d *disk) create(w http.ResponseWriter, r *http.Request, bucket, key string) error {
	id := rand.Text()
	d.mu.Lock()
	d.uploads[id] = &upload{bucket: bucket, key: key, initiated: time.Now(), header: describe(r.Header), parts: map[int]piece{}}
	d.mu.Unlock()
	writeXML(w, http.StatusOK, struct {
		XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
		Bucket, Key, UploadId string
	}{Bucket: bucket, Key: key, UploadId: id})
	return nil
}

func (d *disk) find(name, id string) (*upload, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.uploads[id]
	if u == nil || path.Join(u.bucket, u.key) != name {
		return nil, noSuchUpload
	}
	return u, nil
}

func (d *disk) putPart(w http.ResponseWriter, r *http.Request, name, id, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 10_000 {
		return invalid("the part number must be between 1 and 10000")
	}
	u, err := d.find(name, id)
	if err != nil {
		return err
	}
	temp, etag, size, err := d.receive(r)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return errors.Join(noSuchUpload, d.root.Remove(temp))
	}
	if old, ok := u.parts[n]; ok {
		_ = d.root.Remove(old.temp) // scratch is emptied at the end
	}
	u.parts[n] = piece{temp, etag, size}
	w.Header().Set("ETag", etag)
	return nil
}

func (d *disk) complete(w http.ResponseWriter, r *http.Request, name, id string) error {
	var in struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.NewDecoder(io.LimitReader(r.Body, 4<<20)).Decode(&in); err != nil || len(in.Part) == 0 {
		return &fault{http.StatusBadRequest, "MalformedXML", "The list of parts cannot be read or is empty."}
	}
	u, err := d.find(name, id)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return noSuchUpload
	}
	if err := d.checkNow(r.Header, name); err != nil { // before the work
		return err
	}
	o, pieces, sum := object{header: u.header}, make([]piece, 0, len(in.Part)), md5.New()
	for i, p := range in.Part {
		got, ok := u.parts[p.PartNumber]
		if !ok || strings.Trim(p.ETag, `"`) != strings.Trim(got.etag, `"`) || i > 0 && p.PartNumber <= in.Part[i-1].PartNumber {
			return invalidPart
		}
		pieces, o.size = append(pieces, got), o.size+got.size
		digest, _ := hex.DecodeString(strings.Trim(got.etag, `"`))
		sum.Write(digest)
	}
	o.etag = fmt.Sprintf(`"%x-%d"`, sum.Sum(nil), len(pieces))
	temp, err := d.join(pieces)
	if err != nil {
		return err
	}
	if err := d.publish(temp, name, o, r.Header); err != nil {
		return errors.Join(err, d.root.Remove(temp))
	}
	d.drop(id, u)
	writeXML(w, http.StatusOK, struct {
		XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket, Key, ETag string
	}{Bucket: u.bucket, Key: u.key, ETag: o.etag})
	return nil
}

// join copies the parts, which stay in case that the condition fails.
func (d *disk) join(pieces []piece) (temp string, err error) {
	temp = path.Join(scratch, rand.Text())
	out, err := d.root.Create(temp)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = d.root.Remove(temp)
		}
	}()
	for _, p := range pieces {
		in, err := d.root.Open(p.temp)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(out, in)
		if err := errors.Join(err, in.Close()); err != nil {
			return "", err
		}
	}
	return temp, nil
}

func (d *disk) abort(w http.ResponseWriter, name, id string) error {
	u, err := d.find(name, id)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return noSuchUpload
	}
	d.drop(id, u)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// drop forgets an upload, whose lock the caller holds.
func (d *disk) drop(id string, u *upload) {
	u.over = true
	for _, p := range u.parts {
		_ = d.root.Remove(p.temp) // scratch is emptied at the end
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.uploads, id)
}
