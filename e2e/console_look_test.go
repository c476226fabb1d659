package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"exportd/e2e/stack"
)

//go:embed testdata/axe.min.js
var axe string

// scene fills the tables with what the pages can look like: jobs of 1, 300 and 10 000 chunks, one of them at work, with long keys, long errors and long names.
// No process works on them, and none repairs them: the leases are good for a day.
func (w *world) scene() {
	w.t.Helper()
	w.exec(`create temp table scene as select *, now() - make_interval(mins => ago) as at from (values
		(1, 'COMPLETED', 1, 1, 58), (2, 'COMPLETED', 300, 10, 41), (3, 'FAILED', 300, 12, 33), (4, 'COMPLETED', 10000, 40, 27), (5, 'CANCELLED', 300, 150, 16),
		(6, 'FAILED', 12, 4, 12), (7, 'IN_PROGRESS', 300, 12, 4), (8, 'SUBMITTED', 60, 60, 0)) s(n, status, total, keys, ago)`)
	w.exec(`create temp table cell as
		select 'J20260102_' || lpad(n::text, 6, '0') as job_id, n, c, status as job_status, at,
			case when n = 6 then (array['EUR/USD:spot', 'quarterly-positions-of-all-subsidiaries-including-those-that-were-sold-before-the-end-of-the-reporting-period-2026', 'שלום עולם', '<b>bold</b> & "quoted"'])[1 + c % 4]
				else 'FUND_' || lpad((c % keys + 1)::text, 3, '0') end as key, date '2026-01-01' - c / keys as day,
			case n when 3 then case when c % 37 = 5 then 'DLQ' when c > 260 then 'CANCELLED' else 'DONE' end when 5 then case when c > 90 then 'CANCELLED' else 'DONE' end
				when 6 then case when c % 4 = 3 then 'DONE' else 'DLQ' end
				when 7 then case when c < 190 then case when c % 61 = 7 then 'DLQ' else 'DONE' end when c < 198 then 'RUNNING' when c < 205 then 'RETRY_WAIT' else 'PENDING' end
				when 8 then 'PENDING' else 'DONE' end as status
		from scene cross join lateral generate_series(0, total - 1) c`)
	w.exec(`insert into job_chunk (job_id, chunk_key, key, effective_date, status, attempts, next_retry_at, claim_id, lock_owner, started_at, lease_until, completed_at,
			s3_object_key, row_count, byte_count, sha256, etag, error_code, error_message)
		select job_id, 'key=' || key || ':date=' || to_char(day, 'YYYYMMDD'), key, day, status, case status when 'PENDING' then 0 when 'CANCELLED' then 0 when 'DLQ' then 3 else 1 end,
			case when status = 'RETRY_WAIT' then now() + interval '1 day' end, case when status in ('RUNNING', 'DONE', 'DLQ') then gen_random_uuid() end,
			case when status in ('RUNNING', 'DONE') then 'exporter-' || c % 3 || '/4711/k3x9q2ab' end, case when status <> 'PENDING' then at + make_interval(secs => c % 200) end,
			case when status = 'RUNNING' then now() + interval '1 day' end, case when status in ('DONE', 'DLQ', 'CANCELLED') then at + make_interval(secs => c % 200 + 2) end,
			case when done then 'exports/' || to_char(day, 'YYYY/MM/DD/') || key || to_char(day, '_YYYYMMDD') || '.csv' end, case when done then 1000 + c * 7 end, case when done then 114000 + c * 811 end,
			case when done then md5(c::text) || md5(key) end, case when done then '"e"' end,
			case when status = 'DLQ' then case when c % 2 = 0 then 'SQL_22012' else 'SQL_57014' end when status = 'RETRY_WAIT' then 'S3_503' end,
			case when status = 'RETRY_WAIT' then 'the bucket asks to slow down' when status = 'DLQ' and n = 6 then 'after ' || c || ' rows: ' || repeat('a value of the source that is far too long to be read at once, ', 20) || repeat('W', 200)
				when status = 'DLQ' and c % 2 = 0 then 'after ' || c * 7 || ' rows: division by zero (SQLSTATE 22012); where: SQL function "export_rows" statement 1'
				when status = 'DLQ' then 'canceling statement due to statement timeout (SQLSTATE 57014)' end
		from (select *, status = 'DONE' as done from cell) c`)
	w.exec(`insert into chunk_attempt (claim_id, job_id, chunk_key, run, attempt, worker, started_at, ended_at, outcome, error_code, error_message)
		select gen_random_uuid(), job_id, chunk_key, 1, a, 'exporter-' || a || '/4711/k3x9q2ab', completed_at - make_interval(secs => 90 - a * 28), completed_at - make_interval(secs => 84 - a * 28),
			case a when 3 then 'DLQ' when 1 then 'LOST' else 'RETRY' end, case when a > 1 then error_code end, case when a > 1 then error_message end
		from job_chunk cross join generate_series(1, 3) a where status = 'DLQ'`)
	w.exec(`insert into job (job_id, tenant, status, ending, outcome, pinned_at, request_hash, priority, on_failure, reuse, compression, total, done, failed, cancelled, files_reused, row_count, byte_count,
			error_message, created_at, updated_at, started_at, completed_at)
		select c.job_id, 'default', s.status, case when s.status = 'FAILED' then 'FAIL' when s.status = 'CANCELLED' then 'CANCEL' end, o, case when o is not null then s.at end, '', 4, 'CONTINUE', true, 'NONE', s.total,
			case when o is not null then done end, case when o is not null then failed end, case when o is not null then cancelled end, 0, rows, bytes,
			case when s.status = 'FAILED' then 'Chunk failed after 3 attempts: key=' || bad || ': ' || why end,
			s.at, s.at, case when s.status <> 'SUBMITTED' then s.at + interval '1 s' end, case when o is not null then s.at + interval '204 s' end
		from scene s cross join lateral (select case when s.status in ('COMPLETED', 'FAILED', 'CANCELLED') then s.status end as o) o
		cross join lateral (select job_id, count(*) filter (where status = 'DONE') done, count(*) filter (where status = 'DLQ') failed, count(*) filter (where status = 'CANCELLED') cancelled,
			sum(row_count) as rows, sum(byte_count) as bytes, min(key) filter (where status = 'DLQ') as bad, min(error_message) filter (where status = 'DLQ') as why
			from job_chunk where job_id = 'J20260102_' || lpad(s.n::text, 6, '0') group by job_id) c`)
	w.exec(`insert into worker (worker_id, host, version, concurrency, in_flight, started_at, heartbeat_at)
		select 'exporter-' || n || '/4711/k3x9q2ab', 'exporter-' || n, '1.4.0', 8, 3, now() - interval '3 hours', now() + interval '1 hour' from generate_series(0, 2) n`)
	w.exec(`insert into audit (at, action, tenant, role, token, address, forwarded, user_agent, via, request_id, trace_id, job_id, job_tenant, chunks, status, problem) values
		('2026-01-02T10:00:00Z', 'cancelJob', 'ops', 'operator', '9f86d081', '192.0.2.7', '198.51.100.3', 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/143.0.0.0 Safari/537.36', 'console', 'r', '', 'J20260102_000005', 'acme', 1234, null, null),
		('2026-01-02T09:00:00Z', 'signIn', '', '', '', '2001:db8:85a3:8d3:1319:8a2e:370:7348', '', $1, 'console', 'r', '', null, null, null, 401, 'unauthorized')`, strings.Repeat("W", 199))
}

const (
	deadChunk = "/console/jobs/J20260102_000003/chunks/key=FUND_006:date=20260101"
	longChunk = "/console/jobs/J20260102_000006/chunks/key=quarterly-positions-of-all-subsidiaries-including-those-that-were-sold-before-the-end-of-the-reporting-period-2026:date=20260101"
)

// pagesOfScene are all pages, by a name for their picture.
var pagesOfScene = map[string]string{
	"overview": "/console/", "jobs": "/console/jobs", "jobs-none": "/console/jobs?q=NONE", "job-1": "/console/jobs/J20260102_000001", "job-300": "/console/jobs/J20260102_000003",
	"job-10000": "/console/jobs/J20260102_000004", "job-cancelled": "/console/jobs/J20260102_000005", "job-long": "/console/jobs/J20260102_000006", "job-running": "/console/jobs/J20260102_000007",
	"chunk": deadChunk, "chunk-long": longChunk, "dead-letters": "/console/dead-letters", "fleet": "/console/fleet", "queues": "/console/queues", "audit": "/console/audit",
	"cancel": "/console/jobs/J20260102_000007/cancel", "redrive-all": "/console/dead-letters/redrive?all=1", "not-found": "/console/jobs/J20260102_999999",
}

// look opens a page and waits until all of it is there.
func (b *browser) look(path string) {
	b.t.Helper()
	b.open(path)
	b.until(`document.readyState === "complete" && (!document.getElementById("chart") || document.querySelector("#chart canvas"))`)
	b.until(`!document.getElementById("t-queue") || document.querySelector("#t-queue b").textContent !== "–"`)
}

// overflow names what is wider than the page.
const overflow = `(() => { const wide = document.documentElement.clientWidth;
	return [...document.querySelectorAll("body *")].filter(e => { const r = e.getBoundingClientRect();
		return r.width && r.right > wide + 1 && !e.closest(".scroll, .grid, .top nav, .hidden, .skip, pre, .err") }).map(e => e.tagName + "." + e.className + "#" + e.id).slice(0, 3).join(" ") })()`

func TestEveryPageOfTheConsoleIsAccessibleAndFitsItsScreen(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	w.startAPI("EXPORTD_SWEEP_INTERVAL=1h")
	b := openBrowser(t, w.api.URL)
	check := func(name, path string) {
		b.size(1280, 900)
		b.look(path)
		b.js("(() => {" + axe + "; return 0 })()")
		// What is not seen of a large grid is as what is seen.
		for scheme, rules := range map[string]string{"light": "", "dark": `, runOnly: {type: "rule", values: ["color-contrast", "link-in-text-block"]}`} {
			b.scheme(scheme)
			b.js(`(window.found = null, axe.run({exclude: [[".row:nth-child(n+4)"]]}, {resultTypes: ["violations"]` + rules + `}).then(r => window.found = r.violations), 0)`)
			b.until(`window.found`)
			var found []struct {
				ID, Impact, Help string
				Nodes            []struct{ HTML string }
			}
			if err := json.Unmarshal([]byte(b.js(`JSON.stringify(found)`)), &found); err != nil {
				t.Fatal(err)
			}
			for _, v := range found {
				if v.Impact == "serious" || v.Impact == "critical" {
					t.Errorf("%s, %s: %s: %s, %d times, such as %.300s", name, scheme, v.ID, v.Help, len(v.Nodes), v.Nodes[0].HTML)
				}
			}
		}
		for _, width := range []int64{1280, 360} {
			b.size(width, 800)
			b.until(fmt.Sprintf("innerWidth === %d", width))
			out := ""
			settling, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the chart follows the screen a moment later
			if err := stack.Poll(settling, 50*time.Millisecond, func() (bool, error) {
				out = b.js(overflow)
				return out == "", nil
			}); err != nil {
				t.Errorf("%s is wider than a screen of %d: %s", name, width, out)
			}
			cancel()
		}
	}
	check("empty overview", "/console/")
	check("empty dead letters", "/console/dead-letters")
	w.scene()
	for name, path := range pagesOfScene {
		check(name, path)
	}
	b.base = w.startAPI("EXPORTD_SWEEP_INTERVAL=1h", "EXPORTD_TOKENS_FILE="+tokensFile(t)).URL
	check("sign in", "/console/sign-in")
	b.signIn("boss")
	check("signed in", "/console/jobs")
}

// TestScreenshots draws every page for people to look at, into the folder that the environment names.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("EXPORTD_SCREENSHOTS")
	if folder == "" {
		t.Skip("set EXPORTD_SCREENSHOTS to a folder; make screenshots does")
	}
	w := setup(t, own{})
	w.startAPI("EXPORTD_SWEEP_INTERVAL=1h")
	b := openBrowser(t, w.api.URL)
	draw := func(name, path string) {
		for screen, width := range map[string]int64{"wide": 1280, "phone": 390} {
			b.size(width, 900)
			b.look(path)
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
				if err := os.WriteFile(filepath.Join(folder, strings.Join([]string{name, screen, scheme}, "-")+".png"), shot.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	draw("empty", "/console/")
	w.scene()
	for name, path := range pagesOfScene {
		draw(name, path)
	}
	b.base = w.startAPI("EXPORTD_SWEEP_INTERVAL=1h", "EXPORTD_TOKENS_FILE="+tokensFile(t)).URL
	draw("sign-in", "/console/sign-in")
	b.signIn("boss")
	draw("signed-in", "/console/jobs")
}
