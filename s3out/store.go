package s3out

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/singleflight"
)

// Limits of S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
const (
	minPartSize   = 5 << 20
	maxPartSize   = 1 << 30 // ours: two of them are in memory
	maxParts      = 10_000
	maxObjectSize = 5 << 40
)

const (
	attempts     = 3                // of one request, by the SDK
	retryMost    = 2 * time.Second  // between them
	smallTimeout = 30 * time.Second // of a call that carries no file, all attempts together
	abortTimeout = 15 * time.Second
)

// Config says where the bucket is. Credentials come from the AWS SDK's own chain (environment, profiles, roles).
type Config struct {
	Bucket       string // required
	BasePath     string // folder of the self-test's probe objects; "" is the bucket's root
	Endpoint     string // http://host:port or https://…; "" is AWS
	Region       string // "" is the SDK's; with an endpoint us-east-1
	PathStyle    *bool  // nil: true with an endpoint
	CreateBucket bool   // create the bucket when Probe or SelfTest find it missing

	PartSize      int           // bytes of the first parts of a multipart upload, 5 MiB to 1 GiB; 0 is 8 MiB
	Concurrency   int           // uploads at a time, for the number of connections kept; 0 is 8
	DialTimeout   time.Duration // TCP and, apart, TLS; 0 is 10 s
	AnswerTimeout time.Duration // from a request sent to the start of its answer; 0 is 2 min (a store may put large objects together slowly)

	Log *slog.Logger // nil: slog.Default()
}

// Store is a bucket. It is safe for concurrent use.
type Store struct {
	client    *s3.Client
	transport *http.Transport
	creds     aws.CredentialsProvider
	withBody  []func(*s3.Options) // of requests that carry a file
	bucket    string
	probes    string // key prefix of the self-test's objects
	create    bool
	partSize  int64
	maxParts  int
	maxObject int64
	log       *slog.Logger
	now       func() time.Time

	caps     atomic.Pointer[Capabilities] // nil until a self-test has passed
	selfTest singleflight.Group
}

// Open checks the configuration and loads credentials sources. It needs no network: a store that is away shows at the first call.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	var load []func(*config.LoadOptions) error
	if cfg.Region != "" {
		load = append(load, config.WithRegion(cfg.Region))
	}
	base, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	s := &Store{
		transport: transport(base, cfg),
		creds:     credentials{base.Credentials},
		bucket:    cfg.Bucket,
		probes:    strings.TrimPrefix(strings.Trim(cfg.BasePath, "/")+"/_probe/", "/"),
		create:    cfg.CreateBucket,
		partSize:  int64(cmp.Or(cfg.PartSize, 8<<20)),
		maxParts:  maxParts,
		maxObject: maxObjectSize,
		log:       cmp.Or(cfg.Log, slog.Default()),
		now:       time.Now,
	}
	s.client = s3.NewFromConfig(base, func(o *s3.Options) {
		if cfg.Endpoint != "" {
			o.BaseEndpoint = &cfg.Endpoint
		}
		o.UsePathStyle = o.BaseEndpoint != nil // the SDK has its own variables for endpoints
		if cfg.PathStyle != nil {
			o.UsePathStyle = *cfg.PathStyle
		}
		if o.BaseEndpoint != nil && o.Region == "" {
			o.Region = "us-east-1"
		}
		o.Credentials = s.creds
		o.HTTPClient = doubtingClient{&http.Client{Transport: s.transport, CheckRedirect: noRedirect}}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts = attempts
			r.MaxBackoff = retryMost
			r.RateLimiter = ratelimit.None
		})
	})
	opts := s.client.Options()
	if opts.Region == "" {
		return nil, errors.New("no region: name one, or an endpoint")
	}
	if trusted(opts.BaseEndpoint) {
		s.withBody = []func(*s3.Options){s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)}
	}
	return s, nil
}

// Close drops idle connections.
func (s *Store) Close() { s.transport.CloseIdleConnections() }

// Bucket is the configured bucket's name.
func (s *Store) Bucket() string { return s.bucket }

// URI is how a person names an object: s3://bucket/key.
func (s *Store) URI(key string) string { return "s3://" + s.bucket + "/" + key }

func (c Config) check() error {
	var faults []error
	if c.Bucket == "" {
		faults = append(faults, errors.New("no bucket is named"))
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			faults = append(faults, fmt.Errorf("endpoint %q is not of the form http://host:port or https://host", c.Endpoint))
		}
	}
	if c.PartSize != 0 && (c.PartSize < minPartSize || c.PartSize > maxPartSize) {
		faults = append(faults, fmt.Errorf("a part size of %d bytes is not between 5 MiB and 1 GiB", c.PartSize))
	}
	return errors.Join(faults...)
}

// transport starts from the SDK's, which has the configured CA bundle and proxies.
func transport(base aws.Config, cfg Config) *http.Transport {
	client, ok := base.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	t := client.GetTransport()
	dial := cmp.Or(cfg.DialTimeout, 10*time.Second)
	t.DialContext = (&net.Dialer{Timeout: dial, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = dial
	t.ResponseHeaderTimeout = cmp.Or(cfg.AnswerTimeout, 2*time.Minute)
	t.MaxIdleConnsPerHost = 2*cmp.Or(cfg.Concurrency, 8) + 4
	t.MaxIdleConns = 2 * t.MaxIdleConnsPerHost
	t.DisableCompression = true // files are wanted as they are stored
	return t
}

// noRedirect: a redirect to another host breaks the signature; as an answer it is told in plain words.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// trusted says whether the transport protects the payload, so that signing it too would be a second SHA-256 for nothing.
func trusted(endpoint *string) bool {
	if endpoint == nil {
		return true
	}
	u, err := url.Parse(*endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// credentials marks the errors of the SDK's chain, which have no type of their own.
type credentials struct{ aws.CredentialsProvider }

type credentialsError struct{ error }

func (e credentialsError) Unwrap() error { return e.error }

func (c credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	got, err := c.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return got, credentialsError{err}
	}
	return got, nil
}

func (s *Store) small(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, smallTimeout)
}
