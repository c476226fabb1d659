package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// The tables of some documents name tests; those that they name must exist.
func TestDocsNameTestsThatExist(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		pkg := path.Base(path.Dir(name))
		if pkg == "." {
			pkg = "main"
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			there[pkg+"."+m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for doc, least := range map[string]int{"reliability": 100, "security": 60, "activemq": 1, "operations": 2} {
		named := regexp.MustCompile(`\b\w+\.(?:Test|Fuzz)\w+`).FindAllString(read(t, "docs/"+doc+".md"), -1)
		if len(named) < least {
			t.Errorf("docs/%s.md: only %d tests are named", doc, len(named))
		}
		for _, name := range named {
			if !there[name] {
				t.Errorf("docs/%s.md: there is no test %s", doc, name)
			}
		}
	}
}
