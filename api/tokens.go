package api

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Tokens are the bearer tokens that the API accepts, known by their hashes only.
type Tokens struct {
	entries []tokenEntry
}

type tokenEntry struct {
	hash   [sha256.Size]byte
	caller caller
}

var tenantName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ParseTokens reads a tokens file: one tenant:role:sha256-of-token a line, the hash in hex, the role submitter or operator. Empty lines and
// lines that start with # are left out. Its error names every bad line by number, without repeating its text.
func ParseTokens(r io.Reader) (*Tokens, error) {
	t := &Tokens{}
	var faults []error
	seen := map[[sha256.Size]byte]int{}
	lines := bufio.NewScanner(r)
	number := 0
	for lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		entry, err := parseToken(line)
		if err == nil && seen[entry.hash] > 0 {
			err = fmt.Errorf("the token of line %d again", seen[entry.hash])
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		seen[entry.hash] = number
		t.entries = append(t.entries, entry)
	}
	if err := lines.Err(); err != nil {
		faults = append(faults, fmt.Errorf("after line %d: %w", number, err))
	}
	if len(t.entries) == 0 && len(faults) == 0 {
		faults = append(faults, errors.New("there is no token in it"))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return t, nil
}

func parseToken(line string) (tokenEntry, error) {
	parts := strings.Split(line, ":")
	if len(parts) != 3 {
		return tokenEntry{}, errors.New("must be tenant:role:sha256-of-token")
	}
	if !tenantName.MatchString(parts[0]) {
		return tokenEntry{}, errors.New("the tenant must be 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	if parts[1] != "submitter" && parts[1] != "operator" {
		return tokenEntry{}, errors.New("the role must be submitter or operator")
	}
	hash, err := hex.DecodeString(parts[2])
	if err != nil || len(hash) != sha256.Size {
		return tokenEntry{}, errors.New("the token's sha256 must be 64 hexadecimal digits")
	}
	return tokenEntry{[sha256.Size]byte(hash), caller{tenant: parts[0], operator: parts[1] == "operator", token: string(hash)}}, nil
}

// find compares with every token, so that the time it takes says nothing about which ones exist.
func (t *Tokens) find(token string) (who caller, ok bool) {
	hash := sha256.Sum256([]byte(token))
	for i := range t.entries {
		if subtle.ConstantTimeCompare(t.entries[i].hash[:], hash[:]) == 1 {
			who, ok = t.entries[i].caller, true
		}
	}
	return who, ok && token != ""
}

// Identify says whose token it is, for the console. Without a tokens file everybody is an operator.
func (t *Tokens) Identify(token string) (tenant string, operator, ok bool) {
	if t == nil {
		return everybody.tenant, everybody.operator, true
	}
	who, ok := t.find(token)
	return who.tenant, who.operator, ok
}

// everybody is the caller where there are no tokens.
var everybody = caller{tenant: "default", operator: true}
