// Package embedded is a small S3 inside the process, over a folder where every object is a plain file at its key's path: for the demo, where
// people look at the files. It knows what exportd asks of S3, conditional writes and multipart uploads included, and answers NotImplemented to
// the rest. It checks no signatures. User metadata and open uploads are in memory: they end with the process, the files stay.
package embedded

import (
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"
)

// Server is a running embedded S3.
type Server struct {
	http  *http.Server
	addr  string
	root  *os.Root
	ended chan struct{}
	*disk

	closing sync.Once
	closed  error
}

// Listen serves the folder dir, which is created if need be, on addr (host:port, port 0 for any). Files that are there already are objects; a
// folder in dir is a bucket.
func Listen(addr, dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	d, err := openDisk(root)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	s := &Server{addr: l.Addr().String(), root: root, disk: d, ended: make(chan struct{})}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(l) // ends with Close
	}()
	return s, nil
}

// Endpoint is the server's URL. Use path style.
func (s *Server) Endpoint() string { return "http://" + s.addr }

// Close ends the server and what is being transferred, and removes the parts of open uploads. It may be called again.
func (s *Server) Close() error {
	s.closing.Do(func() {
		err := s.http.Close()
		<-s.ended
		s.closed = errors.Join(err, s.root.RemoveAll(scratch), s.root.Close())
	})
	return s.closed
}

// fault is an S3 error answer.
type fault struct {
	status  int
	code    string
	message string
}

func (f *fault) Error() string { return f.code + ": " + f.message }

var (
	noSuchBucket = &fault{http.StatusNotFound, "NoSuchBucket", "The bucket does not exist."}
	noSuchKey    = &fault{http.StatusNotFound, "NoSuchKey", "The object does not exist."}
	noSuchUpload = &fault{http.StatusNotFound, "NoSuchUpload", "The multipart upload does not exist."}
	precondition = &fault{http.StatusPreconditionFailed, "PreconditionFailed", "The object is not what the condition demands."}
	invalidPart  = &fault{http.StatusBadRequest, "InvalidPart", "A part was not found or is not the one that was uploaded, or the parts are not in order."}
	badDigest    = &fault{http.StatusBadRequest, "BadDigest", "The checksum is not that of the bytes received."}
	incomplete   = &fault{http.StatusBadRequest, "IncompleteBody", "The body ended early."}
	unknown      = &fault{http.StatusNotImplemented, "NotImplemented", "The embedded S3 does not know this operation."}
)

func invalid(format string, args ...any) *fault {
	return &fault{http.StatusBadRequest, "InvalidArgument", fmt.Sprintf(format, args...)}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	err := s.route(w, r, bucket, key)
	if err == nil {
		return
	}
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{http.StatusInternalServerError, "InternalError", err.Error()}
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(f.status)
		return
	}
	writeXML(w, f.status, struct {
		XMLName  xml.Name `xml:"Error"`
		Code     string
		Message  string
		Resource string
	}{Code: f.code, Message: f.message, Resource: r.URL.Path})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, bucket, key string) error {
	q := r.URL.Query()
	switch {
	case !validSegment(bucket) || bucket == scratch:
		return invalid("%q is not a bucket name", bucket)
	case key == "":
		return s.bucket(w, r, bucket)
	case !validKey(key):
		return invalid("the key %q is no path of a file", key)
	case !s.hasBucket(bucket):
		return noSuchBucket
	case strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-"), r.Header.Get("X-Amz-Copy-Source") != "":
		return unknown
	}
	name := path.Join(bucket, key)
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.get(w, r, name)
	case r.Method == http.MethodPut && q.Has("partNumber"):
		return s.putPart(w, r, name, q.Get("uploadId"), q.Get("partNumber"))
	case r.Method == http.MethodPut:
		return s.put(w, r, name)
	case r.Method == http.MethodPost && q.Has("uploads"):
		return s.create(w, r, bucket, key)
	case r.Method == http.MethodPost && q.Has("uploadId"):
		return s.complete(w, r, name, q.Get("uploadId"))
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		return s.abort(w, name, q.Get("uploadId"))
	case r.Method == http.MethodDelete:
		return s.delete(w, r, name)
	}
	return unknown
}

func (s *Server) bucket(w http.ResponseWriter, r *http.Request, bucket string) error {
	q := r.URL.Query()
	if r.Method == http.MethodPut {
		return s.root.MkdirAll(bucket, 0o755)
	}
	if !s.hasBucket(bucket) {
		return noSuchBucket
	}
	switch {
	case r.Method == http.MethodHead:
		return nil
	case r.Method == http.MethodGet && q.Has("uploads"):
		return s.listUploads(w, bucket, q.Get("prefix"))
	case r.Method == http.MethodGet && q.Get("list-type") == "2" && q.Get("delimiter") == "":
		return s.list(w, bucket, q)
	}
	return unknown
}

// validKey says whether a key is the path of a file below its bucket, and the only key with that path.
func validKey(key string) bool {
	for segment := range strings.SplitSeq(key, "/") {
		if !validSegment(segment) {
			return false
		}
	}
	return len(key) <= 1024
}

func validSegment(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, "\x00/\\")
}

func writeXML(w http.ResponseWriter, status int, v any) {
	b, err := xml.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write(append([]byte(xml.Header), b...)) // the client may be gone
}
