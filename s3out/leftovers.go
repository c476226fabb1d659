package s3out

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// OldUploads yields the open multipart uploads under a key prefix that began at least age ago, by the store's own clock: a store that does not tell
// the time has no old ones. It ends with the first error.
func (s *Store) OldUploads(ctx context.Context, prefix string, age time.Duration) iter.Seq2[OpenUpload, error] {
	return func(yield func(OpenUpload, error) bool) {
		for page, err := range s.uploadPages(ctx, prefix) {
			if err != nil {
				yield(OpenUpload{}, err)
				return
			}
			now := answeredAt(page.ResultMetadata)
			for _, u := range openUploads(page) {
				if now.Sub(u.Initiated) >= age && !yield(u, nil) {
					return
				}
			}
		}
	}
}

// RemoveOldProbes removes what self-tests left behind that were killed at least age ago.
func (s *Store) RemoveOldProbes(ctx context.Context, age time.Duration) error {
	small, cancel := s.small(ctx)
	defer cancel()
	// One page: there are few, and the rest is for the next time.
	page, err := s.client.ListObjectsV2(small, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &s.probes})
	if err != nil {
		return s.fail(ctx, "listing", s.probes, err)
	}
	now := answeredAt(page.ResultMetadata)
	for _, o := range page.Contents {
		if now.Sub(aws.ToTime(o.LastModified)) < age {
			continue
		}
		if err := s.Delete(ctx, aws.ToString(o.Key), aws.ToString(o.ETag)); err != nil {
			return err
		}
	}
	return nil
}

// answeredAt is the store's time when it answered, the zero time if it does not say.
func answeredAt(m middleware.Metadata) time.Time {
	resp, ok := awsmiddleware.GetRawResponse(m).(*smithyhttp.Response)
	if !ok {
		return time.Time{}
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return at
}

func (s *Store) uploadPages(ctx context.Context, prefix string) iter.Seq2[*s3.ListMultipartUploadsOutput, error] {
	return func(yield func(*s3.ListMultipartUploadsOutput, error) bool) {
		pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: &prefix})
		for pages.HasMorePages() {
			small, cancel := s.small(ctx)
			page, err := pages.NextPage(small)
			cancel()
			if err != nil {
				yield(nil, s.fail(ctx, "listing the multipart uploads of", prefix, err))
				return
			}
			if !yield(page, nil) {
				return
			}
		}
	}
}

func openUploads(page *s3.ListMultipartUploadsOutput) (list []OpenUpload) {
	for _, u := range page.Uploads {
		list = append(list, OpenUpload{aws.ToString(u.Key), aws.ToString(u.UploadId), aws.ToTime(u.Initiated)})
	}
	return list
}
