package s3out_test

import (
	"testing"

	"go.uber.org/goleak"

	"exportd/s3out/s3test"
)

// suite stops the S3 before the look for leaks.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer s3test.Stop()
	return s.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }
