package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"exportd/e2e/stack"
)

// browser is a Chromium of the test's own, with one page.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string // of the api

	mu     sync.Mutex
	faults []string // what the page's console reported as errors
}

// openBrowser starts one. When the test ends it is stopped, and the page must have reported no error: no script has failed, no policy was broken.
func openBrowser(t *testing.T, base string) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if strings.Contains(os.Getenv("EXPORTD_TEST_REQUIRE"), "chromium") {
			t.Fatal("no Chromium for this test: run .ci/setup services")
		}
		t.Skip("Chromium is not installed: run .ci/setup services as root, or install it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(limit))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	b := &browser{t: t, base: base}
	allocator, wait := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(b.listen))
	b.ctx = ctx
	t.Cleanup(func() {
		cancel()
		wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.faults {
			t.Errorf("the page reports: %s", f)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // without a time limit: it would be that of the browser's life
		t.Fatalf("start Chromium: %v", err)
	}
	call(b, log.Enable, cdp.Empty{})
	b.size(1280, 900)
	return b
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			b.faults = append(b.faults, e.Entry.Text)
		}
	}
}

// call runs a command of the protocol.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	answer, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
	return answer
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("in the browser: %v\n%s", err, b.js("location.href + '\\n' + document.body.innerText"))
	}
}

func (b *browser) size(width, height int64) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// js is the value of an expression, as text.
func (b *browser) js(expression string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits for an expression to be true. While a page gives way to the next it has no value.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	if err := stack.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		return holds && err == nil, nil
	}); err != nil {
		b.t.Fatalf("never true: %s\n%s", expression, b.js("location.href + '\\n' + document.body.innerText"))
	}
}

// shows waits until the page says all of it.
func (b *browser) shows(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.until(fmt.Sprintf("document.body && document.body.textContent.includes(%q)", text))
	}
}

// at waits until the page is the one of that path, which may begin an address.
func (b *browser) at(path string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.readyState === 'complete' && (location.pathname + location.search).startsWith(%q)", path))
}

// click clicks like a mouse does. What is there must not be replaced meanwhile: the page is asked for the place once.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// fill types into a field, over what is there.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.readyState === 'complete' && document.querySelector(%q)", selector))
	b.js(fmt.Sprintf("(e => (e.focus(), e.select()))(document.querySelector(%q))", selector))
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

func (b *browser) signIn(token string) {
	b.t.Helper()
	b.open("/console/sign-in")
	b.fill("#token", token)
	b.click("form.stack button")
	b.until("document.readyState === 'complete' && location.pathname === '/console/'")
}
