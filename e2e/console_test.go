package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"exportd/e2e/stack"
)

// Keys and errors as an enemy or an accident would write them.
const (
	evilKey   = `ROWS_7 <script>document.title='owned'</script>"'&`
	rtlKey    = "ROWS_2 \u05e9\u05dc\u05d5\u05dd"
	evilError = "<img src=x onerror=\"document.title='owned'\">\n'); drop table job; -- \u202egnp.exe"
)

var longKey = "ROWS_1 " + strings.Repeat("W", 121)

func TestAnOperatorFindsTheCauseOfADeadLetterInTheConsoleAndRedrivesIt(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI("EXPORTD_TOKENS_FILE=" + tokensFile(t))
	w.client.Token = "victim"
	w.startConsumer()
	b := openBrowser(t, w.api.URL)
	job := w.ended(w.submit(stack.Submission{OnFailure: "CONTINUE", Items: []stack.Item{
		{Key: "DIV_5", EffectiveDates: days(2)}, {Key: evilKey, EffectiveDates: days(3)}, {Key: rtlKey, EffectiveDates: days(1)}, {Key: longKey, EffectiveDates: days(1)},
	}}), "FAILED")
	w.exec(`update job_chunk set error_message = $1 where status = 'DLQ' and effective_date = '2020-01-30'`, evilError)

	b.open("/console/jobs")
	b.at("/console/sign-in?to=")
	b.fill("#token", "wrong")
	b.click("form.stack button")
	b.shows("This token is not known")
	b.fill("#token", "boss")
	b.click("form.stack button")
	b.at("/console/jobs")
	b.shows(job.JobID)
	b.click(`nav a[href="/console/"]`)
	b.at("/console/")
	b.until(`document.querySelector("#chart canvas")`)
	b.until(`document.querySelector("#t-dead b").textContent === "2"`)
	b.until(`/^\d+$/.test(document.querySelector("#t-queue b").textContent)`)
	b.until(`document.querySelector("#t-fleet b").textContent === "1"`)

	b.click(`nav a[href="/console/jobs"]`)
	b.at("/console/jobs")
	b.fill(`input[name=q]`, evilKey)
	b.click("form.filter button.main")
	b.at("/console/jobs?")
	b.shows(job.JobID)
	b.fill(`input[name=q]`, job.JobID)
	b.click("form.filter button.main")
	b.at("/console/jobs/" + job.JobID)
	b.shows("division by zero", "such as", evilKey, rtlKey, longKey, "<img src=x onerror=…>")
	if n := b.js(`document.querySelectorAll(".cells a").length + " " + document.querySelectorAll(".cells .c-dlq").length`); n != "7 2" {
		t.Errorf("the grid has %s cells, and dead letters", n)
	}
	b.click(`.cells a.c-dlq`)
	b.at("/console/jobs/" + job.JobID + "/chunks/")
	b.shows(evilError, "Attempt 1", "dead letter")
	w.parked("DIV_5")
	b.click("#do-parked")
	b.shows("parkingId", `"attempts": 1`)
	if got := b.js("document.title"); got != "DIV_5 2020-01-30 · exportd" {
		t.Errorf("the title is %s", got)
	}

	// The file of a chunk, by its link.
	b.open("/console/jobs/" + job.JobID + "?status=DONE")
	link := b.js(`[...document.querySelectorAll("a[href*='/files/']")].find(a => a.getAttribute("aria-label").includes("<script>")).getAttribute("href")`)
	request, err := http.NewRequest(http.MethodGet, w.api.URL+link, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.AddCookie(&http.Cookie{Name: "exportd", Value: "Ym9zcw"})
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.Contains(answer.Request.URL.Path, "ROWS_7") {
		t.Errorf("the download is %d from %s", answer.StatusCode, answer.Request.URL)
	}

	b.click(`nav a[href="/console/dead-letters"]`)
	b.at("/console/dead-letters")
	b.until(`document.querySelectorAll(".causes > li").length === 2`)
	b.click(`.causes a[href*="cause="]`)
	b.at("/console/dead-letters?cause=")
	b.until(`document.querySelectorAll(".dead ul li").length === 1`)
	b.click("#do-selected")
	b.shows("No job is selected")
	b.click("a.button")
	b.click("#s-" + job.JobID)
	b.click("#do-selected")
	b.shows("Re-drive 1\u00a0job?", job.JobID)
	b.click("form.choice button")
	b.at("/console/dead-letters?")
	b.shows("2\u00a0chunks of 1\u00a0job were put back")
	for _, page := range []string{"fleet", "queues"} {
		b.click(`nav a[href="/console/` + page + `"]`)
		b.at("/console/" + page)
	}
	b.shows(w.Work, w.Parking)
	w.eventually("both are tried again", func() bool { return w.number(`select count(*) from chunk_attempt where outcome = 'DLQ'`) == 4 })

	// Somebody else's console does not show it.
	b.click(".who button")
	b.at("/console/sign-in")
	b.signIn("attacker")
	if menu := b.js(`document.querySelector("nav").textContent`); strings.Contains(menu, "Fleet") {
		t.Errorf("a submitter's menu is %s", menu)
	}
	b.open("/console/jobs/" + job.JobID)
	b.shows("Not found")
	if got := b.js("document.title"); strings.Contains(got, "owned") {
		t.Error("a key or an error was run as a script")
	}
}

func TestTheConsoleShowsAJobLiveAndOutlastsARestartOfTheAPI(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	address := "EXPORTD_HTTP_ADDR=" + lastingAddress(t)
	w.startAPI(address)
	w.startConsumer()
	b := openBrowser(t, w.api.URL)
	open := w.closeGate(31)
	job := w.submit(stack.Submission{Items: items("GATE_31")})
	b.open("/console/jobs/" + job.JobID)
	b.until(`document.querySelector("#progress .st-in_progress")`)
	b.until(`document.querySelector(".cells .c-running")`)
	w.kill(w.api)
	b.until(`!document.getElementById("away").hidden`)
	w.startAPI(address)
	b.until(`document.getElementById("away").hidden`)
	open()
	b.until(`document.querySelector("#progress .st-completed")`)
	b.until(`document.querySelector(".cells .c-done")`)
	b.until(`document.querySelector("#chunks a[href*='/files/']")`)

	// A job that runs is cancelled, and ends before the eyes of who watches it.
	open = w.closeGate(32)
	job = w.submit(stack.Submission{Items: []stack.Item{{Key: "GATE_32", EffectiveDates: days(20)}}})
	b.open("/console/jobs/" + job.JobID)
	b.until(`document.querySelector("#progress .st-in_progress")`)
	b.click("#do-cancel")
	b.shows("Cancel "+job.JobID, "stopped within seconds")
	b.click("form.choice button")
	b.at("/console/jobs/" + job.JobID + "?told=cancel")
	b.until(`document.querySelector("#progress .st-cancelled") && document.querySelectorAll(".cells .c-cancelled").length === 20`)
	open()
	b.click("#do-redrive")
	b.click("form.choice button")
	b.at("/console/jobs/" + job.JobID + "?")
	b.until(`document.querySelector("#progress .st-completed")`)
	w.checkInvariants()
}

// lastingAddress is one that nobody is given by chance while its server restarts.
func lastingAddress(t *testing.T) string {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(20_000)))
		if err == nil {
			listener.Close()
			return listener.Addr().String()
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestTheConsoleWorksWithoutScriptsAndWithoutAMouse(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI()
	b := openBrowser(t, w.api.URL)
	job := w.submit(stack.Submission{Items: []stack.Item{{Key: "A", EffectiveDates: days(3)}, {Key: "B", EffectiveDates: days(3)}}})

	b.open("/console/jobs/" + job.JobID)
	press := func(keys string) {
		t.Helper()
		b.do(chromedp.KeyEvent(keys))
	}
	press("\t")
	if got := b.js(`document.activeElement.className + " " + (document.activeElement.getBoundingClientRect().left >= 0)`); got != "skip true" {
		t.Errorf("the first stop of the keyboard is %s", got)
	}
	press("\r")
	press("\t")
	if got := b.js(`document.activeElement.id`); got != "do-cancel" {
		t.Errorf("after the skip link comes %s", got)
	}
	b.js(`document.getElementById("grid-box").focus()`)
	const right, down = "\u0303", "\u0301"
	for _, step := range []struct{ key, want string }{{right, "A 2020-01-29 pending"}, {right, "A 2020-01-30 pending"}, {down, "B 2020-01-30 pending"}} {
		press(step.key)
		b.until(fmt.Sprintf(`document.activeElement.title === %q && document.getElementById("grid-at").textContent === %[1]q`, step.want))
	}
	press("\r")
	b.at("/console/jobs/" + job.JobID + "/chunks/key=B:date=20200130")

	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.open("/console/jobs?q=B")
	b.click(`a.id`)
	b.at("/console/jobs/" + job.JobID)
	b.click("#do-cancel")
	b.at("/console/jobs/" + job.JobID + "/cancel")
	b.click("form.choice button")
	b.at("/console/jobs/" + job.JobID + "?told=cancel")
	b.shows("The job was told to end.")
	w.ended(job, "CANCELLED")
	b.open("/console/jobs/" + job.JobID)
	b.click("#do-redrive")
	b.click("form.choice button")
	b.shows("6\u00a0chunks were put back.")
}
