package db

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// functionName reads a function's name as SQL would: optionally schema-qualified, unquoted parts folded to lower case, "quoted" parts as they are.
// It returns the name quoted, fit for a statement whatever it holds.
func functionName(name string) (string, error) {
	var parts pgx.Identifier
	rest := strings.TrimSpace(name)
	for {
		part, after, err := identifier(rest)
		if err != nil {
			return "", fmt.Errorf("function name %q: %w", name, err)
		}
		if parts = append(parts, part); after == "" {
			break
		}
		if after[0] != '.' {
			return "", fmt.Errorf("function name %q: unexpected %q", name, after)
		}
		rest = after[1:]
	}
	if len(parts) > 2 {
		return "", fmt.Errorf("function name %q: want function or schema.function", name)
	}
	return parts.Sanitize(), nil
}

// identifier takes one SQL identifier off the front of s.
func identifier(s string) (part, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		n := 0
		for n < len(s) && (s[n] == '_' || 'a' <= s[n]|0x20 && s[n]|0x20 <= 'z' || n > 0 && (s[n] == '$' || '0' <= s[n] && s[n] <= '9')) {
			n++
		}
		part, rest = strings.ToLower(s[:n]), s[n:]
	} else {
		s = s[1:]
		for {
			i := strings.IndexByte(s, '"')
			if i < 0 {
				return "", "", fmt.Errorf("a quote is not closed")
			}
			part, s = part+s[:i], s[i+1:]
			if !strings.HasPrefix(s, `"`) {
				break
			}
			part, s = part+`"`, s[1:]
		}
		rest = s
	}
	switch {
	case part == "":
		return "", "", fmt.Errorf("an identifier is missing or holds a character that needs quotes")
	case len(part) > 63:
		return "", "", fmt.Errorf("an identifier has more than 63 bytes")
	case strings.ContainsRune(part, 0):
		return "", "", fmt.Errorf("an identifier holds NUL")
	}
	return part, rest, nil
}
