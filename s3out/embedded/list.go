package embedded

import (
	"cmp"
	"encoding/xml"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type listedObject struct {
	Key          string
	LastModified string
	ETag         string
	Size         int64
}

type listedUpload struct {
	Key       string
	UploadId  string
	Initiated string
}

const pageSize = 1000

// list answers ListObjectsV2 without delimiter; the continuation token is the last key of the page before.
func (d *disk) list(w http.ResponseWriter, bucket string, q url.Values) error {
	most := pageSize
	if v := q.Get("max-keys"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return invalid("max-keys must be a positive number")
		}
		most = min(n, pageSize)
	}
	after := cmp.Or(q.Get("continuation-token"), q.Get("start-after"))
	found := d.under(bucket, q.Get("prefix"), after)
	var next string
	if len(found) > most {
		found = found[:most]
		next = found[most-1].Key
	}
	writeXML(w, http.StatusOK, struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		KeyCount, MaxKeys     int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listedObject
	}{Name: bucket, Prefix: q.Get("prefix"), KeyCount: len(found), MaxKeys: most, IsTruncated: next != "", NextContinuationToken: next, Contents: found})
	return nil
}

func (d *disk) under(bucket, prefix, after string) []listedObject {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []listedObject
	for name, o := range d.objects {
		key, ok := strings.CutPrefix(name, bucket+"/")
		if ok && strings.HasPrefix(key, prefix) && key > after {
			found = append(found, listedObject{key, stamp(o.modified), o.etag, o.size})
		}
	}
	slices.SortFunc(found, func(a, b listedObject) int { return strings.Compare(a.Key, b.Key) })
	return found
}

// listUploads answers ListMultipartUploads, on one page.
func (d *disk) listUploads(w http.ResponseWriter, bucket, prefix string) error {
	d.mu.Lock()
	var found []listedUpload
	for _, id := range slices.Sorted(maps.Keys(d.uploads)) {
		if u := d.uploads[id]; u.bucket == bucket && strings.HasPrefix(u.key, prefix) {
			found = append(found, listedUpload{u.key, id, stamp(u.initiated)})
		}
	}
	d.mu.Unlock()
	slices.SortStableFunc(found, func(a, b listedUpload) int { return strings.Compare(a.Key, b.Key) })
	writeXML(w, http.StatusOK, struct {
		XMLName        xml.Name `xml:"ListMultipartUploadsResult"`
		Bucket, Prefix string
		IsTruncated    bool
		Upload         []listedUpload
	}{Bucket: bucket, Prefix: prefix, Upload: found})
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
