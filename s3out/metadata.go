package s3out

import (
	"fmt"
	"net/url"
	"strings"
)

// encode makes metadata values fit for a header: '%', spaces at the ends and everything outside printable ASCII becomes %XX. Other texts stay as
// they are, so that people can read them in any S3 browser.
func encode(metadata map[string]string) map[string]string {
	out := make(map[string]string, len(metadata))
	for k, v := range metadata {
		var b strings.Builder
		for i := range len(v) {
			c := v[i]
			if c < ' ' || c > '~' || c == '%' || c == ' ' && (i == 0 || i == len(v)-1) {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		out[k] = b.String()
	}
	return out
}

// decode is the inverse of encode; a foreign value that is not encoded stays as it is.
func decode(metadata map[string]string) map[string]string {
	out := make(map[string]string, len(metadata))
	for k, v := range metadata {
		if d, err := url.PathUnescape(v); err == nil {
			v = d
		}
		out[strings.ToLower(k)] = v
	}
	return out
}
