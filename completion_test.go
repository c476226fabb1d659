package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// complete has bash itself complete a line at its end.
func complete(t *testing.T, script string, words ...string) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	cmd := exec.Command(bash, "--norc", "-c", script+`
		COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _exportd; printf '%s\n' "${COMPREPLY[@]}"`, "bash")
	cmd.Args = append(cmd.Args, append([]string{"exportd"}, words...)...)
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(cmd.Dir+"/chunks.csv", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := run(t.Context(), []string{"completion", "bash"}, nil, &out, io.Discard, nil); code != 0 {
		t.Fatalf("code %d", code)
	}
	for _, c := range []struct{ line, want string }{
		{"wat", "[watch]"},
		{"re", "[redrive]"},
		{"redrive --err", "[--error-code]"},
		{"redrive --status ", "[FAILED CANCELLED]"},
		{"redrive --status = C", "[CANCELLED]"},
		{"redrive --status =", "[FAILED CANCELLED]"},
		{"--log-level info jobs --status COMP", "[COMPLETED]"},
		{"submit --compression G", "[GZIP]"},
		{"submit --from ch", "[chunks.csv]"},
		{"submit --key ", "[]"},
		{"submit --no-r", "[--no-reuse]"},
		{"completion ", "[bash zsh fish]"},
		{"migrate ", "[up status]"},
		{"api --stop", "[]"},
	} {
		words := strings.Split(c.line, " ")
		if got := fmt.Sprint(complete(t, out.String(), words...)); got != c.want {
			t.Errorf("%q completes to %s, want %s", c.line, got, c.want)
		}
	}
	if got := complete(t, out.String(), ""); !slices.Contains(got, "submit") || !slices.Contains(got, "api") || slices.Contains(got, "--help") {
		t.Errorf("nothing completes to %q", got)
	}
}

func TestEveryCommandIsInEveryCompletion(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commandLine{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"completion", shell}, nil, &out, io.Discard, nil); code != 0 {
			t.Fatalf("%s: code %d", shell, code)
		}
		for _, node := range parser.Model.Children {
			if !strings.Contains(out.String(), node.Name) {
				t.Errorf("%s does not complete %s", shell, node.Name)
			}
		}
		if program, err := exec.LookPath(shell); err == nil {
			check := exec.Command(program, "-n")
			check.Stdin = &out
			if said, err := check.CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("%s -n: %v %s", shell, err, said)
			}
		}
	}
}

// Examples are what people copy: each must be a command line that is read.
func TestExamplesOfTheHelpAreRead(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commandLine{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_ = kong.Visit(parser.Model.Node, func(node kong.Visitable, next kong.Next) error {
		if n, ok := node.(*kong.Node); ok && n.Type == kong.CommandNode {
			for line := range strings.Lines(n.Detail) {
				_, args, found := strings.Cut(line, "exportd ")
				if !strings.HasPrefix(line, "  ") || !found {
					continue
				}
				args, _, _ = strings.Cut(strings.NewReplacer(")", " |", "&&", "|", ">", "|").Replace(args), "|")
				if strings.HasSuffix(strings.TrimSpace(args), "cancel") || strings.HasSuffix(strings.TrimSpace(args), "redrive") {
					args += " J1"
				}
				var errs bytes.Buffer
				if loaded, _ := load(strings.Fields(args), io.Discard, &errs, []string{"EXPORTD_BROKER_URLS=stomp://h:61613"}); loaded == nil {
					t.Errorf("%s: %s%s", n.Name, line, &errs)
				}
			}
		}
		return next(nil)
	})
}
