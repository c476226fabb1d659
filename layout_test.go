package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// Who may import what. The rules are about the folder of a file; a rule for a folder holds for everything below it.
var (
	// vendors are the libraries that one adapter hides from all others, by import path prefix.
	vendors = map[string]string{
		"github.com/gin-gonic/gin":        "api",
		"github.com/danielgtaylor/huma":   "api",
		"github.com/jackc/pgx":            "db",
		"github.com/pressly/goose":        "db",
		"github.com/go-stomp/stomp":       "broker",
		"github.com/aws/aws-sdk-go-v2":    "s3out",
		"github.com/aws/smithy-go":        "s3out",
		"github.com/johannesboyne/gofake": "s3out",
		"github.com/versity/versitygw":    "s3out",
		"github.com/testcontainers":       "containertest",
		"github.com/moby":                 "containertest",
		"go.opentelemetry.io":             "traces",
		"github.com/chromedp":             "e2e",
	}

	// vendorsOfDemo: the demo loads sample data into a database of its own; the tests of the whole and the chaos program look into theirs.
	vendorsOfDemo = []string{"github.com/jackc/pgx"}

	// wiring may import every package of ours, and its tests every vendor.
	wiring = []string{".", "demo", "e2e", "chaos"}

	// callers may import what calls the HTTP API as well as the leaves: the console shows what the API tells.
	callers = map[string]string{"console": "client"}

	// consumer stands between the adapters, so its tests from outside run it on the real ones.
	testedWhole = "consumer_test"

	// containers is what the helpers of the adapters' tests start their services with.
	containers = "containertest"

	// leaves import the standard library only, so that all others may import them.
	leaves = []string{"export", "migrations", "activemq"}

	vagueNames = []string{"util", "utils", "common", "helpers", "mock", "mocks", "misc"}
)

// checkLayout returns one line for each breach in the Go files of tree.
func checkLayout(tree fs.FS) (breaches []string, err error) {
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() && name != "." && hasModule(tree, name):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		breaches = append(breaches, checkFile(name, file)...)
		return nil
	})
	return breaches, err
}

// hasModule says whether the folder is a module of its own, whose imports are no concern of ours.
func hasModule(tree fs.FS, folder string) bool {
	_, err := fs.Stat(tree, path.Join(folder, "go.mod"))
	return err == nil
}

func checkFile(name string, file *ast.File) (breaches []string) {
	breach := func(format string, args ...any) {
		breaches = append(breaches, name+": "+fmt.Sprintf(format, args...))
	}
	folder := path.Dir(name)
	top, _, _ := strings.Cut(folder, "/")
	isTest := strings.HasSuffix(name, "_test.go")
	if slices.Contains(vagueNames, strings.TrimSuffix(file.Name.Name, "_test")) {
		breach("a package called %s says nothing about what is in it", file.Name.Name)
	}
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		ours, isOurs := strings.CutPrefix(imported, "exportd/")
		target, _, _ := strings.Cut(ours, "/")
		whole := isTest && (slices.Contains(wiring, top) || file.Name.Name == testedWhole)
		switch {
		case slices.Contains(wiring, top) || whole:
		case isOurs && target == top:
		case slices.Contains(leaves, top) && !isTest && (isOurs || !standard(imported)):
			breach("%s imports the standard library only, not %s", top, imported)
		case target == containers && strings.HasSuffix(folder, "test"):
		case isOurs && !slices.Contains(leaves, target) && callers[top] != target:
			breach("%s must not import %s: adapters import export and never each other", top, imported)
		}
		for prefix, owner := range vendors {
			excepted := (top == "demo" || top == "e2e" || top == "chaos") && slices.Contains(vendorsOfDemo, prefix) || whole
			if strings.HasPrefix(imported, prefix) && top != owner && !excepted {
				breach("%s belongs to %s; nobody else may import it", imported, owner)
			}
		}
	}
	if path.Base(name) == "main.go" && file.Name.Name == "main" {
		return breaches
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && isTest && f.Name.Name == "TestMain" {
			continue // ends with os.Exit by its contract
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Exit" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "os" {
					breach("os.Exit belongs to main.go: deferred work is skipped here")
				}
			}
			return true
		})
	}
	return breaches
}

// standard says whether an import path is of the standard library: its first part has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

func TestPackagesKeepToTheirLayer(t *testing.T) {
	breaches, err := checkLayout(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range breaches {
		t.Error(b)
	}
}

func TestLayoutCheckFindsEachKindOfBreach(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"export/a.go", `package export; import "github.com/google/uuid"`, "standard library only"},
		{"export/a.go", `package export; import "exportd/db"`, "standard library only"},
		{"db/a.go", `package db; import "exportd/broker"`, "never each other"},
		{"broker/brokertest/a.go", `package brokertest; import "exportd/db/dbtest"`, "never each other"},
		{"db/a_test.go", `package db_test; import "exportd/s3out"`, "never each other"},
		{"consumer/a.go", `package consumer; import "exportd/demo"`, "never each other"},
		{"console/a.go", `package console; import "exportd/db"`, "never each other"},
		{"consumer/a_test.go", `package consumer; import "exportd/db"`, "never each other"},
		{"api/a.go", `package api; import "github.com/jackc/pgx/v5/pgxpool"`, "belongs to db"},
		{"consumer/a.go", `package consumer; import "github.com/aws/aws-sdk-go-v2/service/s3"`, "belongs to s3out"},
		{"wire.go", `package main; import "github.com/go-stomp/stomp/v3"`, "belongs to broker"},
		{"demo/a.go", `package demo; import "github.com/aws/aws-sdk-go-v2/aws"`, "belongs to s3out"},
		{"db/a.go", `package db; import "os"; func f() { os.Exit(1) }`, "os.Exit"},
		{"cmd_api.go", `package main; import "os"; func f() { os.Exit(1) }`, "os.Exit"},
		{"db/helpers/a.go", `package helpers`, "says nothing"},
		{"db/a.go", `package db; import "exportd/containertest"`, "never each other"},
		{"db/dbtest/a.go", `package dbtest; import "github.com/testcontainers/testcontainers-go"`, "belongs to containertest"},
	} {
		breaches, err := checkLayout(fstest.MapFS{c.name: {Data: []byte(c.source)}})
		if err != nil || len(breaches) != 1 || !strings.Contains(breaches[0], c.want) {
			t.Errorf("%s with %s: got %q, %v; want one breach with %q", c.name, c.source, breaches, err, c.want)
		}
	}
}

func TestLayoutCheckAllowsWhatIsMeant(t *testing.T) {
	tree := fstest.MapFS{}
	for name, source := range map[string]string{
		"main.go":            `package main; import "os"; func main() { os.Exit(0) }`,
		"wire.go":            `package main; import ("exportd/api"; "exportd/db"; "exportd/demo")`,
		"whole_test.go":      `package main; import "github.com/jackc/pgx/v5"`,
		"demo/demo.go":       `package demo; import ("exportd/db/pglocal"; "exportd/broker/embedded"; "github.com/jackc/pgx/v5")`,
		"console/a.go":       `package console; import ("exportd/client"; "exportd/export")`,
		"db/a.go":            `package db; import ("exportd/export"; "exportd/migrations"; "github.com/jackc/pgx/v5")`,
		"db/dbtest/a.go":     `package dbtest; import ("exportd/containertest"; "exportd/db"; "github.com/jackc/pgx/v5")`,
		"db/a_test.go":       `package db_test; import ("os"; "testing"); func TestMain(m *testing.M) { os.Exit(m.Run()) }`,
		"export/a_test.go":   `package export_test; import ("exportd/export"; "pgregory.net/rapid")`,
		"consumer/a_test.go": `package consumer_test; import ("exportd/db/dbtest"; "github.com/jackc/pgx/v5")`,
		"e2e/a_test.go":      `package e2e; import ("exportd/s3out/s3test"; "github.com/jackc/pgx/v5")`,
		"testdata/bad/a.go":  `package util`,
		"bench/go.mod":       `module exportd/bench`,
		"bench/bench.go":     `package bench; import ("exportd/db"; "exportd/s3out"; "github.com/jackc/pgx/v5")`,
	} {
		tree[name] = &fstest.MapFile{Data: []byte(source)}
	}
	if breaches, err := checkLayout(tree); err != nil || len(breaches) > 0 {
		t.Errorf("got %q, %v", breaches, err)
	}
}
