package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Secrets sign events. There may be several, so that receivers can change from an old one to a new one: an event carries a signature by each.
type Secrets struct{ keys [][]byte }

const secretPrefix = "whsec_"

// Bounds that the specification sets for the bytes of a secret.
const (
	minSecret = 24
	maxSecret = 64
)

// ParseSecrets reads secrets with spaces between them. Its errors quote nothing of them.
func ParseSecrets(text string) (*Secrets, error) {
	secrets := &Secrets{}
	for i, field := range strings.Fields(text) {
		encoded, ok := strings.CutPrefix(field, secretPrefix)
		if !ok {
			return nil, fmt.Errorf("secret %d does not begin with %s", i+1, secretPrefix)
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, fmt.Errorf("secret %d is not base64 after %s", i+1, secretPrefix)
		}
		if len(key) < minSecret || len(key) > maxSecret {
			return nil, fmt.Errorf("secret %d has %d bytes; it must have %d to %d", i+1, len(key), minSecret, maxSecret)
		}
		secrets.keys = append(secrets.keys, key)
	}
	if len(secrets.keys) == 0 {
		return nil, errors.New("there is no secret")
	}
	return secrets, nil
}

// Sign is the value of the header webhook-signature for a call made at the time.
func (s *Secrets) Sign(id string, at time.Time, body []byte) string {
	signatures := make([]string, len(s.keys))
	for i, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
