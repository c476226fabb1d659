package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"exportd/client"
	"exportd/export"
)

// folder is where the files go; nothing outside of it is touched, whatever links are in it.
type folder struct {
	*os.Root
	name string
	lock *os.File
}

func openFolder(name string) (*folder, error) {
	if err := os.MkdirAll(name, 0o777); err != nil {
		return nil, fmt.Errorf("cannot make the folder: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("cannot use the folder: %w", err)
	}
	f := &folder{Root: root, name: name}
	if f.lock, err = lockFolder(name); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return f, nil
}

func (f *folder) Close() {
	_ = f.lock.Close() // both were only read from
	_ = f.Root.Close()
}

// fileName is the name of a chunk's file in the folder.
type fileName struct {
	text string
	err  error
}

// fileNames are the names that the files have in the bucket, which tell all keys of a day apart. Where the folder takes upper case for lower, keys that
// differ in nothing else get the start of their sha256 as well.
func fileNames(chunks []client.Chunk, foldsCase bool) []fileName {
	names, folded := make([]fileName, len(chunks)), map[string]int{}
	for i, ch := range chunks {
		names[i].text, names[i].err = nameOf(ch, "")
		folded[strings.ToLower(names[i].text)]++
	}
	for i, ch := range chunks {
		if foldsCase && folded[strings.ToLower(names[i].text)] > 1 {
			sum := sha256.Sum256([]byte(ch.Key))
			names[i].text, names[i].err = nameOf(ch, "~"+hex.EncodeToString(sum[:4]))
		}
	}
	return names
}

// nameOf takes nothing from the API for granted: a name made of an answer must not lead out of the folder.
func nameOf(ch client.Chunk, mark string) (string, error) {
	date, err := export.ParseDate(ch.EffectiveDate)
	extension := extensionOf(ch.S3Path)
	switch {
	case err != nil:
		return "", err
	case ch.Key == "" || len(ch.Key) > 200:
		return "", fmt.Errorf("the key %q is none", ch.Key)
	case extension == "":
		return "", fmt.Errorf("%s is no file of exportd", ch.S3Path)
	case len(ch.Checksum) != hex.EncodedLen(sha256.Size) || ch.ByteCount < 0:
		return "", errors.New("the API does not tell its sha256 and size")
	}
	return export.EncodeKey(ch.Key) + mark + "_" + date.String() + extension, nil
}

func extensionOf(s3Path string) string {
	for _, c := range []export.Compression{export.Gzip, export.Zstd, export.None} {
		if strings.HasSuffix(s3Path, c.Extension()) {
			return c.Extension()
		}
	}
	return ""
}

func (f *folder) path(name string) string { return filepath.Join(f.name, name) }

// foldsCase says whether the folder's file system takes upper case for lower.
func (f *folder) foldsCase() bool {
	const probe = ".exportd-Case-Probe"
	file, err := f.OpenFile(probe, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return false // the files cannot be written either
	}
	defer f.Remove(probe)
	file.Close()
	_, err = f.Lstat(strings.ToLower(probe))
	return err == nil
}

// lockFolder keeps a second download out: two that write the same part would spoil it.
func lockFolder(name string) (*os.File, error) {
	dir, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) { // other errors: the file system has no locks
		return nil, errors.Join(fmt.Errorf("another exportd download writes to %s; wait for its end or use another folder", name), dir.Close())
	}
	return dir, nil
}
