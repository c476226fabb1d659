package export

import (
	"fmt"
	"strings"
)

// MaxEncodedKey is the most bytes that an encoded key may have, so that every store takes the file name (some allow 255 bytes a segment).
const MaxEncodedKey = 200

func plain(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// encodedLen is len(EncodeKey(key)).
func encodedLen(key string) int {
	n := len(key)
	for i := range len(key) {
		if !plain(key[i]) {
			n += len("%XX") - 1
		}
	}
	return n
}

// EncodeKey makes a key fit for one path segment: every byte outside A–Z a–z 0–9 . _ - becomes %XX, so distinct keys stay distinct.
func EncodeKey(key string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// ObjectKey is where the file of (key, date) lives: <base>/<YYYY>/<MM>/<DD>/<KEY>_<YYYYMMDD>.csv, .csv.gz or .csv.zst.
func ObjectKey(base, key string, date Date, c Compression) string {
	iso := date.ISO()
	return fmt.Sprintf("%s/%s/%s/%s/%s_%s%s", strings.Trim(base, "/"), iso[:4], iso[5:7], iso[8:], EncodeKey(key), date, c.Extension())
}

// ManifestKey is where the manifest of a job lives.
func ManifestKey(base, jobID string) string {
	return strings.Trim(base, "/") + "/_manifests/" + jobID + ".json"
}
