package e2e

import (
	"net/http"
	"strings"
	"testing"

	"exportd/api/apitest"
	"exportd/e2e/stack"
)

func TestTheSettingsDecideWhoIsServedAndHowMuch(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	list := func(p *stack.Process, headers ...string) int {
		t.Helper()
		a := apitest.Attack{Method: http.MethodGet, Target: "/jobs", Headers: headers}
		resp, body, err := a.Send(strings.TrimPrefix(p.URL, "http://"))
		if err == nil {
			err = w.contract.Check(a.Method, a.Target, resp, body)
		}
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	const evil = "Host: evil.example"
	local := w.startAPI()
	if status := list(local); status != http.StatusOK {
		t.Errorf("localhost: %d", status)
	}
	if status := list(local, evil); status != http.StatusForbidden {
		t.Errorf("a page of another name: %d", status)
	}
	if status := list(w.startAPI("EXPORTD_AUTH=none"), evil); status != http.StatusOK {
		t.Errorf("with EXPORTD_AUTH=none: %d", status)
	}
	limited := w.startAPI("EXPORTD_TOKENS_FILE="+tokensFile(t), "EXPORTD_RATE_LIMIT=0.001")
	for _, c := range []struct {
		token string
		want  int
	}{{"boss", 200}, {"boss", 429}, {"victim", 200}, {"victim", 429}, {"nobody", 401}, {"nobody", 429}} {
		if status := list(limited, evil, "Authorization: Bearer "+c.token); status != c.want {
			t.Errorf("%s: %d, want %d", c.token, status, c.want)
		}
	}
}
