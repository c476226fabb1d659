// Licences looks at the licence texts of all modules that exportd is made of and refuses what is not on the list of allowed ones. It reads the module
// cache and asks nobody.
//
//	go -C .ci/licences run .              also fails when docs/dependencies.md is not what it finds
//	go -C .ci/licences run . -write       writes docs/dependencies.md
//	go -C .ci/licences run . -texts FILE  writes the texts of all that is in the binary, which go with it
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed in what is handed on: they ask for their text to go along, and for nothing else. In tests only, allowedInTests too.
var (
	allowed        = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}
	allowedInTests = append([]string{"MPL-2.0"}, allowed...)
)

// read by a person, because no program recognises them: the file's words decide, not its name.
var read = map[string]struct{ licence, words string }{
	"github.com/xi2/xz": {"public domain", "have been put into the public domain"},
}

// released are the platforms of .goreleaser.yaml: what is compiled in differs.
var released = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"}

const (
	root = "../.."
	list = "docs/dependencies.md"
)

func main() {
	write := flag.Bool("write", false, "write "+list)
	texts := flag.String("texts", "", "write the licence texts of what is in the binary to this `file`")
	flag.Parse()
	if err := run(*write, *texts); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(write bool, texts string) error {
	inBinary, inTests, err := modules()
	if err != nil {
		return err
	}
	var table, all bytes.Buffer
	table.WriteString(heading)
	var faults []error
	for _, part := range []struct {
		name    string
		modules map[string]*module
		allowed []string
	}{{"binary", inBinary, allowed}, {"tests", inTests, allowedInTests}} {
		for _, path := range slices.Sorted(maps.Keys(part.modules)) {
			m := part.modules[path]
			licences, err := m.licences(part.allowed)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s (%s): %w", path, part.name, err))
				continue
			}
			fmt.Fprintf(&table, "| %s | %s | %s |\n", path, licences, part.name)
			if part.name == "binary" {
				m.write(&all)
			}
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	if texts != "" {
		if err := addScripts(&all); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, texts), all.Bytes(), 0o644)
	}
	if write {
		return os.WriteFile(filepath.Join(root, list), table.Bytes(), 0o644)
	}
	there, err := os.ReadFile(filepath.Join(root, list))
	if err == nil && !bytes.Equal(there, table.Bytes()) {
		err = errors.New(list + " is not what is used now: make licences writes it; look at what has come")
	}
	return err
}

const heading = `# Dependencies

Every module that is compiled into exportd on some platform, or used by its tests only, with the licences of its texts. ` + "`make licences`" + ` writes this list; ` + "`make verify`" + `
fails when it is not what is used, and when a licence is not on the list of [.ci/licences](../.ci/licences/main.go). The versions are in go.mod, and in the SBOM of each release.
What is not a Go module has its licence beside it: [console/static](../console/static/VENDORED), [e2e/testdata](../e2e/testdata/VENDORED).

| module | licence | in |
|---|---|---|
`

// module is a module with its licence files, by path inside of it.
type module struct {
	path, version, dir string
	files              map[string][]byte
}

// modules are those of the program on all platforms, and those that only its tests need.
func modules() (inBinary, inTests map[string]*module, err error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go env: %w", err)
	}
	library := strings.Fields(string(out)) // folder, version
	inBinary, inTests = map[string]*module{}, map[string]*module{}
	for _, platform := range released {
		if err := add(inBinary, library, platform, "."); err != nil {
			return nil, nil, err
		}
	}
	if err := add(inTests, library, released[0], "-test", "./..."); err != nil {
		return nil, nil, err
	}
	for path := range inBinary {
		delete(inTests, path)
	}
	return inBinary, inTests, nil
}

// add notes the module of each package that is needed, and the licence files in the package's folder and those around it.
func add(to map[string]*module, library []string, platform string, args ...string) error {
	system, machine, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Standard,Module"}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for packages := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := packages.Decode(&p); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		m := &module{path: "Go's standard library", version: library[1], dir: library[0], files: map[string][]byte{}}
		switch {
		case p.Module != nil && p.Module.Main:
			continue
		case p.Module != nil:
			m.path, m.version, m.dir = p.Module.Path, p.Module.Version, p.Module.Dir
		case p.Standard:
			p.Dir = m.dir // crypto/internal/boring has the licence of what is compiled in by GOEXPERIMENT=boringcrypto only
		default: // the generated main of a test
			continue
		}
		if there := to[m.path]; there != nil {
			m = there
		}
		to[m.path] = m
		if err := m.addFiles(p.Dir); err != nil {
			return err
		}
	}
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|unlicense)([.-].*)?$`)

func (m *module) addFiles(dir string) error {
	for ; len(dir) >= len(m.dir); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := strings.TrimPrefix(filepath.Join(dir, e.Name()), m.dir+string(filepath.Separator))
			if e.IsDir() || !licenceName.MatchString(e.Name()) || filepath.Ext(name) == ".go" || m.files[name] != nil {
				continue
			}
			if m.files[name], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// licences names those of all files. A text that is not wholly recognised is an error, and so is one that is not allowed.
func (m *module) licences(allowed []string) (string, error) {
	if r, ok := read[m.path]; ok {
		for _, text := range m.files {
			if strings.Contains(strings.Join(strings.Fields(string(text)), " "), r.words) {
				return r.licence, nil
			}
		}
		return "", errors.New("its licence does not say any more what was read in it")
	}
	found := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if base := strings.ToLower(filepath.Base(name)); strings.HasPrefix(base, "notice") || strings.HasSuffix(base, ".docs") {
			continue // the one goes along and licenses nothing, the other licenses no code
		}
		cover := licensecheck.Scan(m.files[name])
		if cover.Percent < 75 {
			return "", fmt.Errorf("%s: only %.0f%% of the text is that of a known licence: read it, and say so in .ci/licences", name, cover.Percent)
		}
		for _, match := range cover.Match {
			if !slices.Contains(allowed, match.ID) {
				return "", fmt.Errorf("%s: %s is not allowed", name, match.ID)
			}
			found[match.ID] = true
		}
	}
	if len(found) == 0 {
		return "", errors.New("it has no licence")
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", "), nil
}

// addScripts adds the texts of what the console has from elsewhere.
func addScripts(to *bytes.Buffer) error {
	names, err := filepath.Glob(filepath.Join(root, "console/static/*.LICENSE"))
	if err != nil || len(names) == 0 {
		return errors.Join(err, errors.New("console/static has no licences"))
	}
	m := module{path: "console/static", files: map[string][]byte{}}
	for _, name := range names {
		if m.files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			return err
		}
	}
	m.write(to)
	return nil
}

func (m *module) write(to *bytes.Buffer) {
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		fmt.Fprintf(to, "%s\n%s: %s\n\n%s\n\n", strings.Repeat("=", 78), strings.TrimSpace(m.path+" "+m.version), name, bytes.TrimSpace(m.files[name]))
	}
}
