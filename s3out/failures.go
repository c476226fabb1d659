package s3out

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"unicode"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"exportd/export"
)

type rule struct {
	class export.Class
	words string // %s is the bucket
}

// byCode is the first table: the code in the body of an S3 answer.
var byCode = map[string]rule{
	"NoSuchBucket":                       {export.Permanent, "the bucket %s does not exist"},
	"AccessDenied":                       {export.Permanent, "the credentials do not allow this in the bucket %s"},
	"AllAccessDisabled":                  {export.Permanent, "access to the bucket %s is disabled"},
	"AccountProblem":                     {export.Permanent, "there is a problem with the account of the bucket %s"},
	"InvalidAccessKeyId":                 {export.Permanent, "the access key is unknown to the store"},
	"XAdminUserNotFound":                 {export.Permanent, "the access key is unknown to the store"},
	"SignatureDoesNotMatch":              {export.Permanent, "the secret key, the region or a proxy in between is wrong: the signature does not match"},
	"InvalidToken":                       {export.Permanent, "the session token is not valid"},
	"EntityTooLarge":                     {export.Permanent, "the object is larger than the store allows"},
	"EntityTooSmall":                     {export.Permanent, "a part is smaller than the store allows: raise the part size"},
	"InvalidArgument":                    {export.Permanent, "the store refuses an argument (a part number or a size over its limit?)"},
	"InvalidBucketName":                  {export.Permanent, "%s is not a valid bucket name"},
	"KeyTooLongError":                    {export.Permanent, "the object's key is longer than the store allows"},
	"MetadataTooLarge":                   {export.Permanent, "the object's metadata is larger than the store allows"},
	"MethodNotAllowed":                   {export.Permanent, "the store does not allow this operation"},
	"NotImplemented":                     {export.Permanent, "the store does not know this operation or one of its headers"},
	"PermanentRedirect":                  {export.Permanent, "the bucket %s is in another region or at another endpoint"},
	"IllegalLocationConstraintException": {export.Permanent, "the bucket %s belongs to another region"},
	"AuthorizationHeaderMalformed":       {export.Permanent, "the region is not that of the bucket %s"},
	"InvalidObjectState":                 {export.Permanent, "the object is archived"},
	"NoSuchKey":                          {export.Permanent, "the object does not exist"},

	"ExpiredToken":         {export.Transient, "the credentials have expired"},
	"TokenRefreshRequired": {export.Transient, "the credentials must be renewed"},
	"RequestExpired":       {export.Transient, "the request was signed too long ago"},
	"RequestTimeTooSkewed": {export.Transient, "this machine's clock and the store's differ too much"},
	"RequestTimeout":       {export.Transient, "the request arrived too slowly"},
	"IncompleteBody":       {export.Transient, "the request arrived incomplete"},
	"BadDigest":            {export.Transient, "the bytes were damaged on their way"},
	"NoSuchUpload":         {export.Transient, "the multipart upload is gone: completed or aborted"},
	"InvalidPart":          {export.Transient, "a part of the multipart upload is gone"},
	"OperationAborted":     {export.Transient, "another operation on the same object is under way"},
	"TemporaryRedirect":    {export.Transient, "the store redirects for a while"},

	"SlowDown":                       {export.Outage, "the store asks for fewer requests"},
	"Throttling":                     {export.Outage, "the store asks for fewer requests"},
	"TooManyRequests":                {export.Outage, "the store asks for fewer requests"},
	"RequestLimitExceeded":           {export.Outage, "the store asks for fewer requests"},
	"BandwidthLimitExceeded":         {export.Outage, "the store asks for fewer bytes"},
	"ServiceUnavailable":             {export.Outage, "the store is not available"},
	"InternalError":                  {export.Outage, "the store reports an error of its own"},
	"QuotaExceeded":                  {export.Outage, "the quota of the bucket %s is used up"},
	"XMinioStorageFull":              {export.Outage, "the store is full"},
	"XMinioServerNotInitialized":     {export.Outage, "the store is starting"},
	"XMinioAdminBucketQuotaExceeded": {export.Outage, "the quota of the bucket %s is used up"},
}

// byStatus is the second table, for answers without a code (HEAD, proxies) or with one that nobody listed.
var byStatus = map[int]rule{
	http.StatusMovedPermanently:      byCode["PermanentRedirect"],
	http.StatusTemporaryRedirect:     byCode["TemporaryRedirect"],
	http.StatusUnauthorized:          {export.Permanent, "the store does not accept the credentials"},
	http.StatusForbidden:             byCode["AccessDenied"],
	http.StatusMethodNotAllowed:      byCode["MethodNotAllowed"],
	http.StatusRequestEntityTooLarge: byCode["EntityTooLarge"],
	http.StatusNotImplemented:        byCode["NotImplemented"],
	http.StatusTooManyRequests:       byCode["SlowDown"],
	http.StatusInternalServerError:   byCode["InternalError"],
	http.StatusBadGateway:            {export.Outage, "the store cannot be reached by the proxy before it"},
	http.StatusServiceUnavailable:    byCode["ServiceUnavailable"],
	http.StatusGatewayTimeout:        {export.Outage, "the store does not answer the proxy before it"},
	http.StatusInsufficientStorage:   byCode["XMinioStorageFull"],
}

var (
	refused     = rule{export.Outage, "the store refuses connections"}
	nameless    = rule{export.Outage, "the store's host name cannot be resolved"}
	late        = rule{export.Outage, "the store does not answer in time"}
	untrusted   = rule{export.Outage, "the store's certificate cannot be verified"}
	cut         = rule{export.Outage, "the connection to the store broke"}
	credentialA = rule{export.Outage, "no credentials could be had for the store"}
)

// classify is the one place where errors of the SDK get their meaning.
func classify(err error) (r rule, code string) {
	var cred credentialsError
	if errors.As(err, &cred) {
		return credentialA, "S3_CREDENTIALS"
	}
	if code, status := answer(err); code != "" || status != 0 {
		if r, ok := byCode[code]; ok {
			return r, "S3_" + snake(code)
		}
		if code == "" || named(code, status) {
			code = fmt.Sprintf("HTTP_%d", status)
		}
		r, ok := byStatus[status]
		if !ok {
			r = rule{export.Transient, "the store answered with an unexpected error"}
		}
		return r, "S3_" + snake(code)
	}
	var (
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		timeout interface{ Timeout() bool }
		send    *smithyhttp.RequestSendError
	)
	switch {
	case errors.As(err, &dns):
		return nameless, "S3_DNS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused, "S3_REFUSED"
	case errors.As(err, &cert):
		return untrusted, "S3_TLS"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return late, "S3_TIMEOUT"
	case errors.As(err, &send), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return cut, "S3_CONNECTION_LOST"
	}
	return rule{export.Transient, "an unexpected error"}, "S3_UNKNOWN"
}

// answer is what the store said: its error code and the HTTP status; zero values if nothing arrived.
func answer(err error) (code string, status int) {
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	return code, status
}

// named says whether the SDK made the code up from the status of an answer without a body, as it does for HEAD.
func named(code string, status int) bool {
	return strings.EqualFold(code, strings.ReplaceAll(http.StatusText(status), " ", "")) || code == "UnknownError"
}

// snake turns NoSuchBucket into NO_SUCH_BUCKET. What a server invents is cut to a sane code.
func snake(code string) string {
	var b strings.Builder
	before := 'A'
	for _, r := range code[:min(len(code), 64)] {
		switch {
		case unicode.IsUpper(r) && (unicode.IsLower(before) || unicode.IsDigit(before)):
			b.WriteByte('_')
		case r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = '_'
		}
		b.WriteRune(unicode.ToUpper(r))
		before = r
	}
	return b.String()
}

// storeError says in plain words what went wrong where; the SDK's error stays in its chain.
type storeError struct {
	text string
	err  error
}

func (e *storeError) Error() string { return e.text }
func (e *storeError) Unwrap() error { return e.err }

// fail turns an error of the SDK into the caller's own context error, if its context has ended, or into an *export.Failure. doing is "writing",
// "reading", …; an empty key means the bucket itself.
func (s *Store) fail(ctx context.Context, doing, key string, err error) error {
	if ctx.Err() != nil {
		return stopped(ctx, doing+" "+s.URI(key))
	}
	r, code := classify(err)
	words := r.words
	if strings.Contains(words, "%s") {
		words = fmt.Sprintf(words, s.bucket)
	}
	return s.failure(r.class, code, fmt.Sprintf("%s %s: %s%s", doing, s.URI(key), words, detail(err)), err)
}

func (s *Store) failure(class export.Class, code, text string, err error) *export.Failure {
	f := &export.Failure{Class: class, Code: code, Err: &storeError{text, err}}
	if class == export.Outage {
		f.Dependency = "s3"
	}
	return f
}

// stopped keeps the context's error and its cause findable.
func stopped(ctx context.Context, doing string) error {
	if cause := context.Cause(ctx); cause != ctx.Err() {
		return fmt.Errorf("%s: %w: %w", doing, ctx.Err(), cause)
	}
	return fmt.Errorf("%s: %w", doing, ctx.Err())
}

// detail is the store's own message and request id, or the innermost network error.
func detail(err error) string {
	var api smithy.APIError
	var resp *awshttp.ResponseError
	switch {
	case errors.As(err, &api) && errors.As(err, &resp):
		if resp.ServiceRequestID() != "" {
			return fmt.Sprintf(" (%s, HTTP %d: %s; request %s)", api.ErrorCode(), resp.HTTPStatusCode(), api.ErrorMessage(), resp.ServiceRequestID())
		}
		return fmt.Sprintf(" (%s, HTTP %d: %s)", api.ErrorCode(), resp.HTTPStatusCode(), api.ErrorMessage())
	case err == nil:
		return ""
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Sprintf(" (%v)", op)
	}
	return fmt.Sprintf(" (%v)", err)
}
