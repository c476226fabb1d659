package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A client that a public generator makes of the served document, and a program that drives it: both in a copy of the folder generated, which is a module of
// its own, so that the generator is no dependency of exportd.
func TestAGeneratedClientDoesEverythingInTheContract(t *testing.T) {
	t.Parallel()
	w := setup(t, own{})
	api := w.startAPI("EXPORTD_TOKENS_FILE=" + tokensFile(t))
	w.startConsumer()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("generated")); err != nil {
		t.Fatal(err)
	}
	status, document := w.get(api, "/openapi.json")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, document)
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // the generator is built from source
	defer cancel()
	for _, args := range [][]string{
		{"tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", "client.go", "openapi.json"},
		{"run", ".", api.URL, "boss"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, output)
		}
	}
}
