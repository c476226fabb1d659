package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exportd/client"
)

// posted are the submissions that an API got. It answers the n-th by the n-th of answers, and by the last one from then on.
type posted struct {
	mu      sync.Mutex
	bodies  []string
	keys    []string
	answers []func(w http.ResponseWriter)
}

func (p *posted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	n := min(len(p.bodies), len(p.answers)-1)
	p.bodies, p.keys = append(p.bodies, string(body)), append(p.keys, r.Header.Get("Idempotency-Key"))
	p.mu.Unlock()
	p.answers[n](w)
}

func accepted(w http.ResponseWriter) {
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"jobId":"J20260102_000001","status":"SUBMITTED","total":3}`)
}

func lostAnswer(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func refused(problem string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, problem)
	}
}

// callAPI runs a command against the API.
func callAPI(t *testing.T, api http.Handler, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	s := httptest.NewServer(api)
	defer s.Close()
	var o, e bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &o, &e, []string{"EXPORTD_URL=" + s.URL})
	return code, o.String(), e.String()
}

func TestSubmitPairsKeysWithTheDatesThatFollow(t *testing.T) {
	t.Parallel()
	reuse, priority := false, 7
	for _, c := range []struct {
		args, stdin string
		want        client.Submission
	}{
		{"--key ABC --dates 20241230..20250102", "", client.Submission{Items: []client.Item{{Key: "ABC", EffectiveDates: []string{"20241230", "20241231", "20250101", "20250102"}}}}},
		{"--key A --dates 2025-01-01 --dates 20250103,2025-02-01..2025-02-02 --key B --dates 20250101", "", client.Submission{Items: []client.Item{
			{Key: "A", EffectiveDates: []string{"20250101", "20250103", "20250201", "20250202"}}, {Key: "B", EffectiveDates: []string{"20250101"}}}}},
		{"--key A,1 --key B --dates 20250101 --key A,1 --dates=20250102", "", client.Submission{Items: []client.Item{
			{Key: "A,1", EffectiveDates: []string{"20250101", "20250102"}}, {Key: "B", EffectiveDates: []string{"20250101"}}}}},
		{"--key A --dates 20250101 --on-failure continue --compression zstd --no-reuse --priority 7 --callback-url https://x.example/", "", client.Submission{
			Items: []client.Item{{Key: "A", EffectiveDates: []string{"20250101"}}}, OnFailure: "CONTINUE", Output: &client.Output{Compression: "ZSTD"},
			Reuse: &reuse, Priority: &priority, CallbackURL: "https://x.example/"}},
		{"--from -", "\ufeffkey,date\r\nA,2025-01-01\r\n\r\n\"B, \"\"x\"\"\",20250102\r\nA,20250103..20250104\r\n", client.Submission{Items: []client.Item{
			{Key: "A", EffectiveDates: []string{"20250101", "20250103", "20250104"}}, {Key: `B, "x"`, EffectiveDates: []string{"20250102"}}}}},
		{"--from -", "key,20250101\n", client.Submission{Items: []client.Item{{Key: "key", EffectiveDates: []string{"20250101"}}}}},
	} {
		api := &posted{answers: []func(http.ResponseWriter){accepted}}
		code, out, errs := callAPI(t, api, c.stdin, append([]string{"submit"}, strings.Fields(c.args)...)...)
		if code != 0 || out != "J20260102_000001\n" || errs != "" {
			t.Errorf("%s: code %d, printed %q, %q", c.args, code, out, errs)
			continue
		}
		var got client.Submission
		if err := json.Unmarshal([]byte(api.bodies[0]), &got); err != nil || len(api.keys[0]) < 20 {
			t.Errorf("%s: %v, key %q", c.args, err, api.keys[0])
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.args, d)
		}
	}
}

func TestSubmitNamesWhatIsWrongBeforeItSends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, stdin, says string }{
		{"", "", "--from FILE"},
		{"--dates 20250101 --key A", "", "--dates 20250101 comes before any --key"},
		{"--key A --dates 20250101 --key B", "", "--key B has no --dates"},
		{"--key A --dates 20250229", "", "not a day of the calendar"},
		{"--key A --dates tomorrow", "", "such as 20250131 or 2025-01-31"},
		{"--key A --dates 20250102..20250101", "", "ends before it begins"},
		{"--key A --dates 19000101..99991231", "", "more than 1000000"},
		{"--key A --dates 20250101 --from x", "", "both given"},
		{"--key A --dates 20250101 --priority 10", "", "from 0 to 9"},
		{"--key A --dates 20250101 --compression lzma", "", "NONE, GZIP, ZSTD"},
		{"--from -", "A,20250101\nB\nC,20250101,x\nD,20251301\n", "standard input line 2: it must be key,date"},
		{"--from -", "A,20250101\nB\nC,20250101,x\nD,20251301\n", "standard input line 4: \"20251301\""},
		{"--from -", "A,20250101\n\"B,20250101\n", "standard input line 2"},
		{"--from -", "nothing like it", "line 1"},
		{"--from -", "key,date\n", "holds no line"},
		{"--from - --priority 3", "{}", "in a JSON body write them"},
		{"--from /no/such/file", "", "/no/such/file"},
	} {
		api := &posted{answers: []func(http.ResponseWriter){accepted}}
		code, out, errs := callAPI(t, api, c.stdin, append([]string{"submit"}, strings.Fields(c.args)...)...)
		if code != 2 || out != "" || !strings.Contains(errs, c.says) || len(api.bodies) > 0 {
			t.Errorf("%s: code %d, printed %q, %q; want 2 and %q; %d were sent", c.args, code, out, errs, c.says, len(api.bodies))
		}
	}
}

func TestSubmitSendsAJSONBodyAsItIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "request.json")
	for body, named := range map[string]bool{
		"\n {\"items\": [ {\"key\":\"A\" ,\"effectiveDates\":[\"20250101\"]}]}\n":      false,
		`{"items":[], "idempotencyKey":"mine"}`:                                        true,
		`{"items": [ broken`:                                                           false,
		`{"items":[{"key":"A","effectiveDates":["20250101"]}]} {"idempotencyKey":"x"}`: false,
	} {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		api := &posted{answers: []func(http.ResponseWriter){accepted}}
		if code, out, errs := callAPI(t, api, "", "submit", "--from", file); code != 0 || out != "J20260102_000001\n" {
			t.Errorf("%s: code %d, printed %q, %q", body, code, out, errs)
		}
		if api.bodies[0] != body || (api.keys[0] == "") != named {
			t.Errorf("sent %q under the key %q, want %q", api.bodies[0], api.keys[0], body)
		}
	}
}

func TestSubmitRepeatsALostAnswerUnderItsKey(t *testing.T) {
	t.Parallel()
	away := func(w http.ResponseWriter) { http.Error(w, "restarting", http.StatusServiceUnavailable) }
	api := &posted{answers: []func(http.ResponseWriter){lostAnswer, away, func(w http.ResponseWriter) {
		w.Header().Set("Idempotency-Replayed", "true")
		accepted(w)
	}}}
	code, out, errs := callAPI(t, api, "", "submit", "--key", "A", "--dates", "20250101")
	if code != 0 || out != "J20260102_000001\n" || !strings.Contains(errs, "trying again") || strings.Contains(errs, "before") {
		t.Errorf("code %d, printed %q, %q", code, out, errs)
	}
	if len(api.keys) != 3 || api.keys[0] == "" || api.keys[1] != api.keys[0] || api.keys[2] != api.keys[0] || api.bodies[2] != api.bodies[0] {
		t.Errorf("sent under %q", api.keys)
	}
}

func TestSubmitSaysHowToFindOutWhetherTheJobIsStored(t *testing.T) {
	t.Parallel()
	api := &posted{answers: []func(http.ResponseWriter){lostAnswer}}
	code, out, errs := callAPI(t, api, "", "submit", "--key", "A", "--dates", "20250101")
	if code != 6 || out != "" || !strings.Contains(errs, "--idempotency-key "+strings.Trim(api.keys[0], `"`)) || len(api.keys) != submitTries {
		t.Errorf("code %d after %d tries, printed %q, %q", code, len(api.keys), out, errs)
	}
}

// halfway is an input whose writer is interrupted, and the reader with it.
type halfway struct {
	io.Reader
	interrupt context.CancelFunc
}

func (h halfway) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	if err == io.EOF {
		h.interrupt()
	}
	return n, err
}

func TestSubmitSendsNoHalfOfItsInput(t *testing.T) {
	t.Parallel()
	api := &posted{answers: []func(http.ResponseWriter){accepted}}
	s := httptest.NewServer(api)
	defer s.Close()
	never, w := io.Pipe()
	defer w.Close()
	for _, in := range []io.Reader{strings.NewReader("A,20250101\n"), never} {
		ctx, cancel := context.WithCancel(t.Context())
		if in == never {
			cancel()
		}
		var errs bytes.Buffer
		code := run(ctx, []string{"submit", "--from", "-"}, halfway{in, cancel}, io.Discard, &errs, []string{"EXPORTD_URL=" + s.URL})
		if code != 130 || !strings.Contains(errs.String(), "nothing was submitted") || len(api.bodies) > 0 {
			t.Errorf("code %d, printed %q, %d were sent", code, &errs, len(api.bodies))
		}
		cancel()
	}
}

func TestSubmitSaysThatTheKeyWasUsedBefore(t *testing.T) {
	t.Parallel()
	api := &posted{answers: []func(http.ResponseWriter){func(w http.ResponseWriter) {
		w.Header().Set("Idempotency-Replayed", "true")
		accepted(w)
	}}}
	code, out, errs := callAPI(t, api, "", "submit", "--key", "A", "--dates", "20250101", "--idempotency-key", `say "x\y"`)
	if code != 0 || out != "J20260102_000001\n" || !strings.Contains(errs, "before") || api.keys[0] != `"say \"x\\y\""` {
		t.Errorf("code %d, printed %q, %q, key %s", code, out, errs, api.keys[0])
	}
}

func TestSubmitShowsRefusalsInTheWordsOfTheUser(t *testing.T) {
	t.Parallel()
	problem := refused(`{"title":"The request is not valid","status":400,"detail":"5 faults, see errors","errors":[
		{"pointer":"/items/1/key","detail":"must not be empty"},{"pointer":"/items/0/effectiveDates/1","detail":"is odd"},
		{"pointer":"/priority","detail":"is high"},{"pointer":"/items","detail":"has 3 chunks"},{"pointer":"/items/77/key","detail":"is far"},{"pointer":"","detail":"is bad \u001b[31m"}]}`)
	code, _, errs := callAPI(t, &posted{answers: []func(http.ResponseWriter){problem}}, "A,20250101\n,20250101\nA,20250102\n", "submit", "--from", "-")
	want := "exportd: The request is not valid; nothing was stored:\n" +
		"  standard input line 2: the key must not be empty\n  standard input line 3: is odd\n  --priority: is high\n  the job: has 3 chunks\n  /items/77/key: the key is far\n  is bad \uFFFD[31m\n"
	if code != 1 || errs != want {
		t.Errorf("code %d, printed\n%s", code, errs)
	}
	code, _, errs = callAPI(t, &posted{answers: []func(http.ResponseWriter){problem}}, "", "submit", "--key", "A", "--dates", "20250101,20250102", "--key", "", "--dates", "20250101")
	if code != 1 || !strings.Contains(errs, `--key "" --dates 20250101: the key must not be empty`) || !strings.Contains(errs, `--key "A" --dates 20250101,20250102: is odd`) {
		t.Errorf("code %d, printed\n%s", code, errs)
	}
}
