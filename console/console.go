package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"exportd/client"
	"exportd/export"
)

// Store tells what the API has no call for. An empty tenant means all. Its errors are export's; every other error is a fault of ours.
type Store interface {
	Activity(ctx context.Context, tenant string) (export.Activity, error)
	Counts(ctx context.Context, tenant string) (export.Counts, error)
	// Tenants is asked for operators only.
	Tenants(ctx context.Context, jobIDs []string) (map[string]string, error)
	Cells(ctx context.Context, tenant, jobID string) ([]export.Cell, error)
	Failures(ctx context.Context, tenant, jobID string) ([]export.FailedChunk, error)
	DeadLetters(ctx context.Context, f export.RedriveFilter) (list []export.FailedChunk, more bool, err error)
}

// Config is what a console is made of; all of it is required but Parked.
type Config struct {
	API   http.Handler
	Store Store
	// Identify says whose token it is. When the empty one is somebody's, nobody has to sign in.
	Identify func(token string) (tenant string, operator, ok bool)
	// Parked finds the message that a dead letter left on the parking queue, nil if there is none any more; nil: there is no such queue.
	Parked  func(ctx context.Context, ref export.Ref) (*export.Message, error)
	Log     *slog.Logger
	Version string
}

type console struct {
	Config
	pages  pages
	origin *http.CrossOriginProtection
}

// New serves everything below /console.
func New(c Config) http.Handler {
	con := &console{Config: c, pages: parsePages(), origin: http.NewCrossOriginProtection()}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(*visit) error{
		"GET /console/{$}":                              (*visit).overview,
		"GET /console/jobs":                             (*visit).jobs,
		"GET /console/jobs/{job}":                       (*visit).job,
		"GET /console/jobs/{job}/events":                (*visit).events,
		"GET /console/jobs/{job}/manifest":              (*visit).manifest,
		"GET /console/jobs/{job}/cancel":                (*visit).askCancel,
		"POST /console/jobs/{job}/cancel":               (*visit).cancel,
		"GET /console/jobs/{job}/redrive":               (*visit).askRedrive,
		"POST /console/jobs/{job}/redrive":              (*visit).redrive,
		"GET /console/jobs/{job}/chunks/{chunk}":        (*visit).chunk,
		"GET /console/jobs/{job}/chunks/{chunk}/parked": (*visit).parked,
		"GET /console/jobs/{job}/files/{chunk}":         (*visit).file,
		"GET /console/dead-letters":                     (*visit).deadLetters,
		"GET /console/dead-letters/redrive":             (*visit).askRedriveAll,
		"POST /console/dead-letters/redrive":            (*visit).redriveAll,
		"GET /console/fleet":                            (*visit).fleet,
		"GET /console/queues":                           (*visit).queues,
		"GET /console/audit":                            (*visit).audit,
		"/console/":                                     func(*visit) error { return errNoPage },
	} {
		mux.HandleFunc(pattern, con.signedIn(serve))
	}
	mux.HandleFunc("GET /console/sign-in", con.anyone((*visit).askSignIn))
	mux.HandleFunc("POST /console/sign-in", con.anyone((*visit).signIn))
	mux.HandleFunc("POST /console/sign-out", con.anyone((*visit).signOut))
	mux.HandleFunc("GET /console/static/{name}", serveStatic)
	mux.Handle("GET /console", http.RedirectHandler("/console/", http.StatusMovedPermanently))
	return con.guard(mux)
}

// policy lets a page use what is served here and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// mostForm bounds the body of a form.
const mostForm = 1 << 20

func (c *console) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if err := c.origin.Check(r); err != nil {
			http.Error(w, "another site made the browser send this; open the console itself", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		next.ServeHTTP(w, r)
	})
}

// visit is one request of somebody.
type visit struct {
	*console
	visitor
	w   http.ResponseWriter
	r   *http.Request
	api client.Client
}

type visitor struct {
	token    string
	guesses  []string // of cookies, that are no tokens
	tenant   string
	operator bool
	open     bool // nobody has to sign in
	known    bool // signed in, or open
}

// sees is the tenant whose jobs are shown; empty means all.
func (v visitor) sees() string {
	if v.operator {
		return ""
	}
	return v.tenant
}

func (v *visit) ctx() context.Context { return v.r.Context() }

func (c *console) visit(w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{console: c, w: w, r: r}
	if v.tenant, v.operator, v.open = c.Identify(""); v.open {
		v.known = true
	} else {
		for _, token := range cookiesOf(r, cookieName) {
			if v.tenant, v.operator, v.known = c.Identify(token); v.known {
				v.token = token
				break
			}
			v.guesses = append(v.guesses, token)
		}
	}
	v.api = client.Client{URL: "http://localhost", Token: v.token, Transport: inside{c.API, r.RemoteAddr, w.Header().Get("X-Request-Id")}}
	return v
}

// anyone serves who is not signed in, too.
func (c *console) anyone(serve func(*visit) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := c.visit(w, r)
		if err := serve(v); err != nil {
			v.fail(err)
		}
	}
}

func (c *console) signedIn(serve func(*visit) error) http.HandlerFunc {
	return c.anyone(func(v *visit) error {
		if !v.known {
			return v.sendToSignIn()
		}
		return serve(v)
	})
}

var (
	errNoPage    = errors.New("there is no such page")
	errOperators = errors.New("this page is for operators; you are signed in as a submitter")
)

// fail shows what went wrong. What is not known to be fit for the visitor goes to the log alone.
func (v *visit) fail(err error) {
	var problem *client.Problem
	var tooLarge *http.MaxBytesError
	status, title, text := http.StatusInternalServerError, "Something went wrong", "The log of the API knows more."
	switch {
	case errors.Is(err, errNoPage):
		status, title, text = http.StatusNotFound, "Not found", err.Error()
	case errors.Is(err, client.ErrUnknown), errors.Is(err, export.ErrNotFound):
		status, title, text = http.StatusNotFound, "Not found", "There is no such job or chunk, or it belongs to somebody else."
	case errors.Is(err, errOperators):
		status, title, text = http.StatusForbidden, "Not for you", err.Error()
	case errors.As(err, &problem):
		status, title, text = problem.Status, problem.Title, problem.Detail
		for _, e := range problem.Errors {
			text += "\n" + e.Parameter + e.Pointer + ": " + e.Detail
		}
	case errors.As(err, &tooLarge):
		status, title, text = http.StatusRequestEntityTooLarge, "Too much", "The form is larger than allowed."
	case errors.Is(err, client.ErrUnreachable), export.FailureOf(err).Class == export.Outage, errors.Is(err, context.DeadlineExceeded):
		status, title, text = http.StatusServiceUnavailable, "No answer", "A dependency does not answer, or you ask too often. Try again in a moment."
	}
	if status >= http.StatusInternalServerError && v.ctx().Err() == nil {
		v.Log.ErrorContext(v.ctx(), "console page failed", "path", v.r.URL.Path, "error", err)
	}
	v.render(status, "error", view{Title: title, Data: text})
}

// parseForm reads the form of a POST.
func (v *visit) parseForm() error {
	err := v.r.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); err == nil || errors.As(err, &tooLarge) {
		return err
	}
	return &client.Problem{Status: http.StatusBadRequest, Title: "The form cannot be read", Detail: "Go back, load the page again and repeat it."}
}

const (
	toldName = "exportd-told"
	toldLife = time.Minute
)

// backTelling goes to a page that tells what was done. The cookie shows the page that the link is not made up by somebody.
func (v *visit) backTelling(path string, query url.Values) error {
	v.setCookie(toldName, path+"?"+query.Encode(), toldLife)
	return v.back(path, query)
}

// back sends the browser on after a POST.
func (v *visit) back(path string, query url.Values) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	http.Redirect(v.w, v.r, path, http.StatusSeeOther)
	return nil
}
