package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"exportd/export"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// store is the truth. Its errors are export's; every other error is a fault of ours.
type store interface {
	// Submit stores a job and all its chunks, or nothing. With an idempotency key that was used before it changes nothing and returns the first
	// job (replayed), or export.ErrIdempotencyMismatch.
	Submit(ctx context.Context, req export.SubmitRequest) (job export.Job, replayed bool, err error)
	// Job finds a job; an empty tenant means any. export.ErrNotFound if there is none.
	Job(ctx context.Context, tenant, jobID string) (export.Job, error)
	// Cancel orders the job to end; again is no error. export.ErrEnded when it has ended otherwise or its outcome is fixed.
	Cancel(ctx context.Context, tenant, jobID string) error
	// Redrive puts the dead-lettered and cancelled chunks of an ended job back. export.ErrEnded when it is COMPLETED or has not ended.
	Redrive(ctx context.Context, tenant, jobID string) (chunks int, err error)
	// Jobs lists jobs from the newest on, and says where the list goes on, nil at its end.
	Jobs(ctx context.Context, f export.JobFilter, after *export.Place, limit int) (jobs []export.Job, next *export.Place, err error)
	// Chunks lists chunks of a job by chunk key.
	Chunks(ctx context.Context, tenant, jobID string, f export.ChunkFilter, after string, limit int) (chunks []export.ChunkView, more bool, err error)
	Chunk(ctx context.Context, tenant, jobID, chunkKey string) (export.ChunkView, []export.Attempt, error)
	// Files lists the files of the chunks that are DONE by chunk key.
	Files(ctx context.Context, tenant, jobID string, limit int) ([]export.ChunkFile, error)
	// Redrivable lists up to limit jobs that Redrive would put chunks of back.
	Redrivable(ctx context.Context, f export.RedriveFilter, limit int) ([]export.Redrivable, error)
	Workers(ctx context.Context) ([]export.Worker, error)
	// Record writes an audit line of what is no order. Cancel and Redrive write that of export.OrderOf(ctx) with what they do, and none if they change nothing.
	Record(ctx context.Context, l export.AuditLine) error
	Audit(ctx context.Context, f export.AuditFilter, after *export.AuditPlace, limit int) (lines []export.AuditLine, next *export.AuditPlace, err error)
}

// Config is what an API is made of. Log and Metrics are required, and so are Store and Objects except for [NewProbes].
type Config struct {
	Store      store
	Limits     export.Limits
	MaxBody    int64  // bytes; 0 means 8 MiB
	S3BasePath string // s3://bucket/base, as jobs show it
	BasePath   string // base, the part of it that object keys begin with
	Objects    objects
	Queues     func(context.Context) []export.QueueDepth // nil: there is no broker
	Tokens     *Tokens                                   // nil: everyone is an operator of the tenant "default"
	ThisHost   bool                                      // answer only requests for localhost: a web page whose name points here is another site
	RateLimit  float64                                   // requests a second of a token, or of an address without tokens; 0: no limit
	Streams    Streams
	Callbacks  func(url string) error // says why a callback URL cannot be called; nil: none can, since nothing signs the calls
	Checks     []Check
	Wake       func()                              // called after a submission; may be nil, must not block
	Check      func(jobID string)                  // called when a job may be ready to end; may be nil, must not block
	Console    func(api http.Handler) http.Handler // makes what serves /console, given the API to call; nil: nothing does
	Metrics    *prometheus.Registry
	Trace      export.StartSpan
	Log        *slog.Logger
	Version    string
	Stopping   <-chan struct{} // closed when the process begins to stop, for [NewProbes]; may be nil. Serve knows by itself
	Timeouts   Timeouts
}

// Streams bounds the answers that are held open, events above all. Zero means the default in brackets.
type Streams struct {
	Client int // of one token or address [1000]
	All    int // [5000]
}

// Timeouts bound a request. Zero means the default in brackets.
type Timeouts struct {
	Header   time.Duration // to read the header [10s]
	Body     time.Duration // to read the body [60s]
	Query    time.Duration // of the store for one answer [10s]
	Submit   time.Duration // of the store for one submission [30s]
	Check    time.Duration // of one readiness check [2s]
	Idle     time.Duration // between requests on one connection [120s]
	Poll     time.Duration // between looks at a job that somebody watches [500ms]
	Alive    time.Duration // between signs of life on a stream of events [15s]
	Shutdown time.Duration // for requests in flight when Serve ends [20s]
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Header:   cmp.Or(t.Header, 10*time.Second),
		Body:     cmp.Or(t.Body, 60*time.Second),
		Query:    cmp.Or(t.Query, 10*time.Second),
		Submit:   cmp.Or(t.Submit, 30*time.Second),
		Check:    cmp.Or(t.Check, 2*time.Second),
		Idle:     cmp.Or(t.Idle, 120*time.Second),
		Poll:     cmp.Or(t.Poll, 500*time.Millisecond),
		Alive:    cmp.Or(t.Alive, 15*time.Second),
		Shutdown: cmp.Or(t.Shutdown, 20*time.Second),
	}
}

// API answers HTTP requests.
type API struct {
	Config
	engine  *gin.Engine
	metrics *metrics
	ready   *readiness
	origin  *http.CrossOriginProtection
	watches *watches
	limits  *limiter
	depths  depths
	// operations are the names of the calls, by method and route.
	operations      map[string]string
	lines, refusals *limiter // of the audit log
	// stopping is closed when Serve begins to end: who waits for something answers then.
	stopping chan struct{}
}

// New makes the API. It registers its metrics in c.Metrics, once per registry.
func New(c Config) *API {
	a := NewProbes(c)
	a.metrics.submissions(c.Metrics)
	h := a.huma()
	a.registerSubmit(h)
	a.registerJob(h)
	a.registerList(h)
	a.registerOrders(h)
	a.registerChunks(h)
	a.registerFiles(h)
	a.registerEvents(h)
	a.registerRedrive(h)
	a.registerFleet(h)
	a.registerAudit(h)
	documentCallback(h.OpenAPI())
	a.registerDocs(h.OpenAPI())
	a.registerConsole()
	return a
}

// NewProbes makes an API of /healthz, /readyz and /metrics only, for processes that serve no jobs.
func NewProbes(c Config) *API {
	c.MaxBody = cmp.Or(c.MaxBody, 8<<20)
	c.Timeouts = c.Timeouts.withDefaults()
	gin.SetMode(gin.ReleaseMode)
	limits := newLimiter(c)
	a := &API{
		Config:  c,
		engine:  gin.New(),
		metrics: newMetrics(c.Metrics, limits.held),
		ready:   &readiness{checks: c.Checks, timeout: c.Timeouts.Check, log: c.Log},
		origin:  http.NewCrossOriginProtection(),
		watches: newWatches(c),
		limits:  limits,

		operations: map[string]string{},
		lines:      &limiter{rate: rate.Every(clientEvery), burst: clientLines, buckets: map[string]*rate.Limiter{}},
		refusals:   &limiter{rate: rate.Every(refusalEvery), burst: allRefusals, buckets: map[string]*rate.Limiter{}},

		stopping: make(chan struct{}),
	}
	e := a.engine
	_ = e.SetTrustedProxies(nil) // fails only on a malformed address
	e.ForwardedByClientIP = false
	e.RedirectTrailingSlash = false
	e.HandleMethodNotAllowed = true
	// Path values may hold %2F. They are unescaped by pathValue, because gin takes '+' for a space.
	e.UseEscapedPath = true
	e.UnescapePathValues = false
	e.Use(a.identify, a.observe, a.recoverPanic, a.audit, a.guard)
	e.NoRoute(func(c *gin.Context) { a.fail(c, errNoRoute) })
	e.NoMethod(a.noMethod)
	a.registerProbes()
	return a
}

// Handler serves the API.
func (a *API) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // the routes know GET only; net/http leaves out the body of its answer
			r = r.WithContext(context.WithValue(r.Context(), headKey{}, true))
			r.Method = http.MethodGet
		}
		a.engine.ServeHTTP(w, r)
	})
}

// headKey marks the context of a request that was a HEAD.
type headKey struct{}

// noMethod answers a known path with a method it does not know; gin has set Allow to those it does.
func (a *API) noMethod(c *gin.Context) {
	allow := c.Writer.Header().Get("Allow")
	if strings.Contains(allow, http.MethodGet) {
		allow += ", " + http.MethodHead
	}
	c.Header("Allow", allow+", "+http.MethodOptions)
	if c.Request.Method == http.MethodOptions {
		c.AbortWithStatus(http.StatusNoContent)
		return
	}
	a.fail(c, errNoMethod)
}

var shapeErrors sync.Once

// huma makes the operations' side of the API. Every operation needs a token.
func (a *API) huma() huma.API {
	// huma keeps the constructor of its errors in package variables; this package is its only user.
	shapeErrors.Do(func() {
		huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
			return humaProblem(requestOf(ctx.Context()).id, status, message, errs)
		}
		huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
			return humaProblem("", status, message, errs)
		}
	})
	return humagin.NewWithGroup(a.engine, a.engine.Group("/", a.authenticate), humaConfig(a.Version))
}

// register adds an operation whose errors go through the table.
func register[I, O any](a *API, h huma.API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	a.operations[op.Method+" "+strings.NewReplacer("{", ":", "}", "").Replace(op.Path)] = op.OperationID
	huma.Register(h, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return out, nil
	})
}
