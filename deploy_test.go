package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// toldMetrics are those of docs/metrics.md, which TestMetricsTellWhatWasDone holds against running processes, each with its labels.
func toldMetrics(t *testing.T) map[string][]string {
	t.Helper()
	told := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `(exportd_\\w+)` \\| [^|]* \\| (\\w+) \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		if m[2] != "histogram" {
			told[m[1]] = labels
			continue
		}
		told[m[1]+"_sum"], told[m[1]+"_count"], told[m[1]+"_bucket"] = labels, labels, append(slices.Clone(labels), "le")
	}
	if len(told) < 40 {
		t.Fatalf("only %d metrics are told", len(told))
	}
	return told
}

// faultsOfQueries names what the queries ask for and no process tells.
func faultsOfQueries(text string, told map[string][]string) (faults []string) {
	selector := regexp.MustCompile(`\b(exportd_\w+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	for _, m := range selector.FindAllStringSubmatch(text, -1) {
		labels, known := told[m[1]]
		if !known {
			faults = append(faults, "no process tells "+m[1])
			continue
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "instance" && l[1] != "job" && !slices.Contains(labels, l[1]) {
				faults = append(faults, m[1]+" has no label "+l[1])
			}
		}
	}
	return faults
}

func TestQueriesOfWhatNobodyTellsAreFound(t *testing.T) {
	told := map[string][]string{"exportd_a": {"x"}}
	if faults := faultsOfQueries(`sum(exportd_a{x="1",instance=~"b"}) / exportd_a`, told); len(faults) != 0 {
		t.Error(faults)
	}
	if faults := faultsOfQueries(`exportd_b + exportd_a{y!="1"}`, told); len(faults) != 2 {
		t.Error(faults)
	}
}

func TestAlertsAskForWhatIsToldAndHaveRunbooks(t *testing.T) {
	alerts := read(t, "deploy/prometheus/alerts.yml")
	for _, fault := range faultsOfQueries(alerts, toldMetrics(t)) {
		t.Error(fault)
	}
	for _, fault := range faultsOfQueries(read(t, "docs/operations.md"), toldMetrics(t)) {
		t.Error("docs/operations.md: " + fault)
	}
	runbooks := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (Exportd\w+)$`).FindAllStringSubmatch(read(t, "docs/operations.md"), -1) {
		runbooks[m[1]] = true
	}
	found := regexp.MustCompile(`(?s)- alert: (\w+)(.*?)\n *runbook: (\S+)`).FindAllStringSubmatch(alerts, -1)
	if n := strings.Count(alerts, "- alert:"); n != len(found) || n == 0 {
		t.Fatalf("%d alerts, %d of them with a runbook", n, len(found))
	}
	tests := read(t, "deploy/prometheus/alerts_test.yml")
	for _, m := range found {
		name := m[1]
		if !runbooks[name] || m[3] != "docs/operations.md#"+strings.ToLower(name) {
			t.Errorf("%s: the runbook %s is not there, or not its own", name, m[3])
		}
		if !regexp.MustCompile(`alertname: ` + name + `\n +exp_alerts:`).MatchString(tests) {
			t.Errorf("%s: no test makes it fire", name)
		}
		delete(runbooks, name)
	}
	for name := range runbooks {
		t.Errorf("the runbook %s is about no alert", name)
	}
}

func TestDashboardsAskForWhatIsTold(t *testing.T) {
	boards, err := filepath.Glob("deploy/grafana/dashboards/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards (%v)", err)
	}
	for _, name := range boards {
		var board struct {
			UID    string
			Panels []struct {
				ID      int
				Title   string
				Type    string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(read(t, name)), &board); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if board.UID == "" || len(board.Panels) < 10 {
			t.Errorf("%s: uid %q, %d panels", name, board.UID, len(board.Panels))
		}
		ids := map[int]bool{}
		for _, p := range board.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the id %d", name, p.ID)
			}
			ids[p.ID] = true
			if p.Type != "row" && p.Type != "text" && len(p.Targets) == 0 {
				t.Errorf("%s: %s asks for nothing", name, p.Title)
			}
			for _, target := range p.Targets {
				for _, fault := range faultsOfQueries(target.Expr, toldMetrics(t)) {
					t.Errorf("%s: %s: %s", name, p.Title, fault)
				}
			}
		}
	}
}

// Misspelt settings are warned of at start, where nobody reads it.
func TestDeploymentsNameSettingsThatExist(t *testing.T) {
	parser, err := newParser(&commandLine{}, io.Discard, io.Discard, kong.Resolvers(&environment{}))
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"compose.yaml", ".env.example"}
	for _, root := range []string{"deploy", "docs"} {
		err := fs.WalkDir(os.DirFS("."), root, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasSuffix(name, ".png") {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := 0
	for _, name := range files {
		values := map[string]string{}
		for _, setting := range regexp.MustCompile(`EXPORTD_[A-Z0-9][A-Z0-9_]*[A-Z0-9]`).FindAllString(read(t, name), -1) {
			values[setting], named = "", named+1
		}
		for _, setting := range (&environment{values: values}).unknown(parser.Model.Node) {
			if setting != "EXPORTD_E2E_FULL" && setting != "EXPORTD_SCREENSHOTS" { // of the tests
				t.Errorf("%s: there is no setting %s", name, setting)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d settings are named", named)
	}
}

func TestTasksAreKilledOnlyAfterTheirDrain(t *testing.T) {
	for _, name := range []string{"api", "consumer"} {
		var task struct {
			ContainerDefinitions []struct {
				StopTimeout int
				Environment []struct{ Name, Value string }
			}
		}
		if err := json.Unmarshal([]byte(read(t, "deploy/ecs/task-"+name+".json")), &task); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		drained := false
		for _, c := range task.ContainerDefinitions {
			for _, e := range c.Environment {
				if e.Name != "EXPORTD_DRAIN_TIMEOUT" {
					continue
				}
				drain, err := time.ParseDuration(e.Value)
				drained = err == nil && drain+5*time.Second <= time.Duration(c.StopTimeout)*time.Second && c.StopTimeout <= 120
			}
		}
		if !drained {
			t.Errorf("%s is killed before its drain is over, or says nothing of it", name)
		}
	}
	var policy struct {
		CustomizedMetricSpecification struct{ Metrics []struct{ ID string } }
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/ecs/scaling-policy.json")), &policy); err != nil || len(policy.CustomizedMetricSpecification.Metrics) != 3 {
		t.Errorf("the scaling policy: %v %+v", err, policy)
	}
}

func TestCommandsOfTheDocumentsAreUnderstood(t *testing.T) {
	line, inline := regexp.MustCompile(`(?m)^exportd ([^#\n]+)`), regexp.MustCompile("`exportd ([^`\n]+)`")
	tried := 0
	for _, name := range []string{"README.md", "docs/operations.md", "docs/activemq.md", "docs/security.md", "docs/scale.md"} {
		text := read(t, name)
		found := inline.FindAllStringSubmatch(text, -1)
		for i, part := range strings.Split(text, "```") {
			if i%2 == 1 && !strings.HasPrefix(part, "ini") {
				found = append(found, line.FindAllStringSubmatch(part, -1)...)
			}
		}
		for _, m := range found {
			args := strings.Fields(m[1])
			if len(args) == 1 || slices.Contains(args, "--help") || strings.Contains(m[1], "·") { // names of commands, and of several
				continue
			}
			if err := understood(t, args); err != nil {
				t.Errorf("%s: exportd %s: %v", name, m[1], err)
			}
			tried++
		}
	}
	if tried < 20 {
		t.Errorf("only %d commands were tried", tried)
	}
	if understood(t, []string{"jobs", "--stat", "FAILED"}) == nil {
		t.Error("what is no flag is understood")
	}
}

func understood(t *testing.T, args []string) error {
	parser, err := newParser(&commandLine{}, io.Discard, io.Discard, kong.Resolvers(&environment{}), kong.Exit(func(int) {}), inOrder())
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return err
}
