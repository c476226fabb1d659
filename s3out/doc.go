// Package s3out writes, finds and removes objects in an S3 bucket. It is the only package that knows the AWS SDK.
//
// Two promises carry it.
//
// An object appears whole or not at all, and never replaces a newer one. [Upload] takes bytes into pooled buffers and makes nothing visible
// before [Upload.Commit], one PutObject or one CompleteMultipartUpload, which is conditional: on the absence of the object or on its ETag. A
// condition that did not hold is [ErrPrecondition]; an answer that was lost is an error with Ambiguous() true, and then the object itself, its
// metadata, says what happened. Whether the store honours conditions is not believed but tried, see [Store.SelfTest]; where it does not, the
// object is looked at before and after the write, which leaves a gap of one round trip between two writers.
//
// Memory is bounded: an upload holds at most two parts, one being filled and one on its way, in blocks of 64 KiB. A request that fails is
// repeated from these blocks by the SDK, a few times; the rest is up to the caller. The SDK's token bucket for retries is off: one
// store-wide storm would empty it for everybody, for long.
//
// Errors leave the package as *export.Failure (one table, failures.go), as a [CommitError], or as the caller's own context error.
package s3out
