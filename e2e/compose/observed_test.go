package compose

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"exportd/broker"
)

// Panels of what has not happened here, and whose metrics appear when it does.
var quiet = []string{"Answers that are errors", "Webhook calls"}

// observed starts the profile's Prometheus, with our configuration, and asks it what the dashboard asks.
func (s *system) observed() {
	s.t.Helper()
	_, reason := missing(images(s.t, "prometheus"))
	if reason != "" {
		unavailable(s.t, reason)
	}
	s.compose("up", "--no-build", "-d", "prometheus")
	prometheus := "http://" + s.address("prometheus", 9090)
	s.eventually("every process is scraped, twice", func() bool {
		return series(s.t, prometheus, `exportd_build_info and on(instance) count_over_time(exportd_build_info[5m]) >= 2`) == 3
	})
	if n := series(s.t, prometheus, `ALERTS{alertstate="firing"}`); n != 0 {
		s.t.Errorf("%d alerts fire", n)
	}
	asked, told := 0, broker.Depth(s.t.Context(), s.world.Broker, s.world.Work)[0].Known // a broker may be unable to
	for _, panel := range panels(s.t) {
		for _, target := range panel.Targets {
			n := series(s.t, prometheus, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
			if n == 0 && !slices.Contains(quiet, panel.Title) && (told || !strings.Contains(target.Expr, "exportd_queue_")) {
				s.t.Errorf("nothing is shown at %q: %s", panel.Title, target.Expr)
			}
			asked++
		}
	}
	if asked < 40 {
		s.t.Errorf("the dashboard asks only %d times", asked)
	}
}

type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(root + "/deploy/grafana/dashboards/exportd.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []panel }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	return board.Panels
}

// series is how many series an expression gives. One that cannot be evaluated fails the test.
func series(t *testing.T, prometheus, expr string) int {
	t.Helper()
	resp, err := http.Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0 // it starts
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return 0 // it starts
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %v %s", expr, err, answer.Error)
	}
	return len(answer.Data.Result)
}
