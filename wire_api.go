package main

import (
	"context"
	"io"

	"exportd/export"
	"exportd/s3out"
)

// downloads is the bucket as the API sees it.
type downloads struct{ *s3out.Store }

func (d downloads) Open(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	content, info, err := d.Get(ctx, key)
	if err != nil && export.FailureOf(err).Code == "S3_NO_SUCH_KEY" {
		err = export.ErrNotFound
	}
	return content, info.Size, err
}
