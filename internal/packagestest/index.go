package packagestest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// An Index serves packages as PyPI does, on this machine.
type Index struct {
	*httptest.Server
	// Auth, where it is not empty, is the user and password that it asks for, as
	// user:password.
	Auth string

	mu       sync.Mutex
	files    map[string][]byte // by name
	fetched  map[string]int    // how often each was
	blocking chan struct{}     // what files wait for, or nil
	asked    chan struct{}     // closed when one waits
}

// NewIndex makes an index, and has the test's installers know no other. Layers are
// kept in a folder of the test's own.
func NewIndex(t testing.TB) *Index {
	x := &Index{files: make(map[string][]byte), fetched: make(map[string]int)}
	x.Server = httptest.NewServer(x)
	t.Cleanup(x.Close)
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PIP_") || strings.HasPrefix(name, "UV_") || strings.HasSuffix(strings.ToLower(name), "_proxy") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	t.Setenv("PIP_INDEX_URL", x.URL+"/simple/")
	t.Setenv("PIP_RETRIES", "0")
	cache := t.TempDir()
	for dir := cache; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // for programs of root's, which are another user
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", cache)
	return x
}

// Fetched is how often a file was fetched.
func (x *Index) Fetched(name string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fetched[name]
}

// Block has files wait until release is called; asked is closed when one does.
func (x *Index) Block() (asked <-chan struct{}, release func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	blocking := make(chan struct{})
	x.blocking, x.asked = blocking, make(chan struct{})
	return x.asked, sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.blocking = nil
		close(blocking)
	})
}

// ServeHTTP implements [http.Handler].
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); x.Auth != "" && user+":"+password != x.Auth {
		w.Header().Set("WWW-Authenticate", `Basic realm="packages"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if project, ok := strings.CutPrefix(r.URL.Path, "/simple/"); ok {
		x.list(w, r, strings.Trim(project, "/"))
		return
	}
	name, _ := strings.CutPrefix(r.URL.Path, "/files/")
	x.mu.Lock()
	data, ok := x.files[name]
	x.fetched[name]++
	blocking := x.blocking
	if blocking != nil && x.asked != nil {
		close(x.asked)
		x.asked = nil
	}
	x.mu.Unlock()
	if blocking != nil {
		select {
		case <-blocking:
		case <-r.Context().Done():
			return
		}
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(data) // the client may have gone
}

func (x *Index) list(w http.ResponseWriter, r *http.Request, project string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	page := "<!DOCTYPE html><html><body>\n"
	found := false
	for _, name := range slices.Sorted(maps.Keys(x.files)) {
		if distribution, _, _ := strings.Cut(name, "-"); strings.ToLower(strings.ReplaceAll(distribution, "_", "-")) == project {
			page += fmt.Sprintf("<a href=\"/files/%s#sha256=%x\">%[1]s</a>\n", name, sha256.Sum256(x.files[name]))
			found = true
		}
	}
	if !found {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, page+"</body></html>\n")
}

// Data gives a file that is served.
func (x *Index) Data(name string) ([]byte, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	data, ok := x.files[name]
	return data, ok
}

// Add has the index serve a file.
func (x *Index) Add(name string, data []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.files[name] = data
}

// A Wheel is a package in the form that is installed without running it.
type Wheel struct {
	Name, Version string
	Tag           string            // empty means py3-none-any
	Requires      []string          // other packages
	Files         map[string]string // by name
	Links         map[string]string // symbolic links, by name
	Scripts       []string          // console scripts, as name=module:function
	// RawRecord replaces the list of files.
	RawRecord string
	// RawMetadata replaces what the wheel says of itself.
	RawMetadata string
}

// AddWheel has the index serve a wheel, and gives its file name.
func (x *Index) AddWheel(t testing.TB, w Wheel) (name string) {
	t.Helper()
	tag := w.Tag
	if tag == "" {
		tag = "py3-none-any"
	}
	info := fmt.Sprintf("%s-%s.dist-info/", w.Name, w.Version)
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.Name, w.Version)
	for _, r := range w.Requires {
		metadata += "Requires-Dist: " + r + "\n"
	}
	if w.RawMetadata != "" {
		metadata = w.RawMetadata
	}
	files := maps.Clone(w.Files)
	if files == nil {
		files = make(map[string]string)
	}
	files[info+"METADATA"] = metadata
	files[info+"WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: " + tag + "\n"
	if len(w.Scripts) > 0 {
		files[info+"entry_points.txt"] = "[console_scripts]\n" + strings.ReplaceAll(strings.Join(w.Scripts, "\n"), "=", " = ") + "\n"
	}
	record := w.RawRecord
	if record == "" {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			sum := sha256.Sum256([]byte(files[name]))
			record += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
		}
		record += info + "RECORD,,\n"
	}
	files[info+"RECORD"] = record
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	put := func(name, text string, mode fs.FileMode) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode)
		f, err := z.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		put(name, files[name], 0o644)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Links)) {
		put(name, w.Links[name], fs.ModeSymlink|0o777)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("%s-%s-%s.whl", w.Name, w.Version, tag)
	x.Add(name, b.Bytes())
	return name
}

// AddSource has the index serve a package as source, which is built by running it.
func (x *Index) AddSource(t testing.TB, name, version string, files map[string]string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	base := name + "-" + version + "/"
	files = maps.Clone(files)
	files["PKG-INFO"] = fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: base + file, Mode: 0o644, Size: int64(len(files[file]))})
		if err == nil {
			_, err = w.Write([]byte(files[file]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	x.Add(name+"-"+version+".tar.gz", b.Bytes())
}

// Numpy is a stand-in of that name, which can add.
var Numpy = Wheel{
	Name: "numpy", Version: "2.1.0", Scripts: []string{"f2py=numpy:main"},
	Files: map[string]string{"numpy/__init__.py": `"""A stand-in."""
__version__ = "2.1.0"
class array(list):
    def __add__(self, other): return array(a + b for a, b in zip(self, other))
    def sum(self): return sum(self)
def arange(n): return array(range(n))
def main(): print("f2py of the stand-in")
`},
}
