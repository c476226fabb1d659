package s3out

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// SetLimits makes the limits of S3 reachable in tests.
func (s *Store) SetLimits(parts int, bytes int64) { s.maxParts, s.maxObject = parts, bytes }

// SetPartSize goes below what S3 allows, for stores that do not mind.
func (s *Store) SetPartSize(n int) { s.partSize = int64(n) }
func (s *Store) PartSize() int     { return int(s.partSize) }

// SetClock and SetCredentials let links be signed at any time with any session.
func (s *Store) SetClock(now func() time.Time) { s.now = now }

func (s *Store) SetCredentials(expires time.Time) {
	s.creds = credentials{aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "s", CanExpire: true, Expires: expires}, nil
	})}
}

// PartLimit and MaxParts are for arithmetic on limits.
func (s *Store) PartLimit(i int) int64 { return s.partLimit(i) }

const MaxParts, MaxObjectSize = maxParts, maxObjectSize

// Trusted is what decides on unsigned payloads; SignPayloads decides otherwise.
func Trusted(endpoint string) bool { return trusted(&endpoint) }

func (s *Store) SignPayloads() { s.withBody = nil }
