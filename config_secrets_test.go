package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Whoever adds a setting that may hold a secret gives it the type that is never printed and the tag that lets it come from a file.
func TestEverySettingThatMayHoldASecretMayComeFromAFile(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&commandLine{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	tells := regexp.MustCompile(`(?i)password|passphrase|secret|token|credential|private-key|api-key`)
	none := map[string]string{
		"tokens-file": "holds hashes, and is a file", "broker-ca-file": "certificates are public", "webhook-allow-private": "a switch",
	}
	isSecret := reflect.TypeFor[secret]()
	seen := map[string]bool{}
	_ = kong.Visit(parser.Model.Node, func(node kong.Visitable, next kong.Next) error {
		flag, ok := node.(*kong.Flag)
		if !ok {
			return next(nil)
		}
		typed := flag.Target.Type() == isSecret
		if told := tells.MatchString(flag.Name) || strings.Contains(flag.Help, "password@"); told && none[flag.Name] == "" && !typed {
			t.Errorf("--%s is a %s; make it a secret", flag.Name, flag.Target.Type())
		}
		if typed && !(hasVariable(flag) && hasFile(flag)) {
			t.Errorf("--%s is a secret that no file can give: tag it file", flag.Name)
		}
		if typed && flag.HasDefault {
			t.Errorf("--%s is a secret with a default", flag.Name)
		}
		seen[flag.Name] = seen[flag.Name] || typed
		return next(nil)
	})
	for _, name := range []string{"database-url", "source-url", "broker-password", "webhook-secret", "token"} {
		if !seen[name] {
			t.Errorf("--%s is not among the secrets", name)
		}
	}
}

func TestAFileThatIsNoSecretIsRefusedInWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		write("empty", "", 0o600):                                "that file is empty",
		write("newlines", "\r\n\n", 0o600):                       "that file is empty",
		write("large", strings.Repeat("x", mostSecret+1), 0o600): "is no secret",
		"/dev/zero":                  "is no secret",
		dir:                          "is a directory",
		filepath.Join(dir, "absent"): "no such file",
	} {
		got, code, out := loadForTest([]string{"consumer"}, enough("EXPORTD_BROKER_USER=u", "EXPORTD_BROKER_PASSWORD_FILE="+path))
		if got != nil || code != exitUsage || !strings.Contains(out, want) || !strings.Contains(out, "EXPORTD_BROKER_PASSWORD") || strings.Count(out, "\n  EXPORTD_") != 1 {
			t.Errorf("%s: code %d, want %q in %s", path, code, want, out)
		}
	}
	// The rights of a file are the machine's to give; a secret mounted into a container is readable by its group, or by all.
	c := loadConsumer(t, enough("EXPORTD_BROKER_USER=u", "EXPORTD_BROKER_PASSWORD_FILE="+write("mounted", "two\nlines \n", 0o444)))
	if c.Broker.Password != "two\nlines " {
		t.Errorf("got %q", string(c.Broker.Password))
	}
	if os.Geteuid() != 0 {
		if got, _, out := loadForTest([]string{"consumer"}, enough("EXPORTD_BROKER_USER=u", "EXPORTD_BROKER_PASSWORD_FILE="+write("closed", "p", 0))); got != nil || !strings.Contains(out, "permission denied") {
			t.Errorf("a file that may not be read: %s", out)
		}
	}
}
