package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

//go:embed static
var staticFiles embed.FS

// asset is a file that pages link to, under an address that changes with its content.
type asset struct {
	content []byte
	version string
}

var assets = func() map[string]asset {
	list := map[string]asset{}
	entries, _ := fs.ReadDir(staticFiles, "static")
	for _, e := range entries {
		content, _ := staticFiles.ReadFile("static/" + e.Name())
		sum := sha256.Sum256(content)
		list[e.Name()] = asset{content, hex.EncodeToString(sum[:6])}
	}
	return list
}()

// assetURL is where a page finds the file.
func assetURL(name string) string { return "/console/static/" + name + "?v=" + assets[name].version }

func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	a, ok := assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", `"`+a.version+`"`)
	w.Header().Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if !strings.Contains(name, ".js") && !strings.Contains(name, ".css") && !strings.HasSuffix(name, ".svg") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
}
