package export

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// CheckKey says what is wrong with a (trimmed) key: 1 to 128 bytes of printable UTF-8 that encode to at most MaxEncodedKey bytes.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("must not be empty")
	case len(key) > 128:
		return fmt.Errorf("has %d bytes; at most 128 are allowed", len(key))
	case !utf8.ValidString(key):
		return fmt.Errorf("is not valid UTF-8")
	}
	for _, r := range key {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("holds the unprintable character %U", r)
		}
	}
	if n := encodedLen(key); n > MaxEncodedKey {
		return fmt.Errorf("has %d bytes once encoded for the file name; at most %d are allowed", n, MaxEncodedKey)
	}
	return nil
}
