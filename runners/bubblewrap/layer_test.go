//go:build linux

package bubblewrap_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/packagestest"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// layered makes the runners of the tests of Packages and Preload.
func layered(t *testing.T, c packagestest.Config) fnloop.Runner {
	return open(t, &bubblewrap.Runner{Packages: c.Packages, Installing: c.Installing, Preload: c.Preload, Warm: c.Warm})
}

func TestPackages(t *testing.T) { packagestest.Packages(t, layered) }

func TestPreload(t *testing.T) { packagestest.Preload(t, layered) }

const sum = "import numpy; print(numpy.arange(4).sum())"

// computes checks that a runner's programs have the stand-in, and closes it.
func computes(t *testing.T, r *bubblewrap.Runner) {
	t.Helper()
	res, err := r.Run(t.Context(), fnloop.Program{Source: sum})
	require.NoError(t, err)
	assert.Equal(t, "6\n", res.Stdout, res.Stderr)
	assert.NoError(t, r.Close())
}

// store is where the test's layers are.
func store(*testing.T) string {
	return filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fnloop", "packages")
}

// layer is the folder of the only layer.
func layer(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(store(t), "*", "tree"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// numpy makes an index that has it.
func numpy(t *testing.T) (x *packagestest.Index, wheel string) {
	t.Helper()
	packagestest.Need(t, open(t, new(bubblewrap.Runner)))
	x = packagestest.NewIndex(t)
	return x, x.AddWheel(t, packagestest.Numpy)
}

func TestPackages_tampered(t *testing.T) {
	x, wheel := numpy(t)
	computes(t, open(t, &bubblewrap.Runner{Packages: []string{"numpy"}}))
	site := func(t *testing.T) string {
		found, err := filepath.Glob(filepath.Join(layer(t), "lib", "python3*", "site-packages"))
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found[0]
	}
	for i, c := range []struct {
		what   string
		change func(t *testing.T) error
		again  bool
	}{
		{"a file of the same size and time", func(t *testing.T) error {
			name := filepath.Join(site(t), "numpy", "__init__.py")
			info, err := os.Stat(name)
			require.NoError(t, err)
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			text = []byte(strings.Replace(string(text), "range(n)", "range(9)", 1))
			require.NoError(t, os.WriteFile(name, text, 0o644))
			return os.Chtimes(name, info.ModTime(), info.ModTime())
		}, true},
		{"another file", func(t *testing.T) error { return os.WriteFile(filepath.Join(site(t), "evil.py"), nil, 0o644) }, true},
		{"a file that is gone", func(t *testing.T) error { return os.Remove(filepath.Join(site(t), "numpy", "__init__.py")) }, true},
		{"a link in place of a file", func(t *testing.T) error {
			name := filepath.Join(site(t), "numpy", "__init__.py")
			require.NoError(t, os.Remove(name))
			return os.Symlink("/etc/passwd", name)
		}, true},
		{"a pipe", func(t *testing.T) error { return unix.Mkfifo(filepath.Join(site(t), "pipe"), 0o644) }, true},
		{"half of the layer", func(t *testing.T) error { return os.RemoveAll(filepath.Join(layer(t), "lib")) }, true},
		{"no record", func(t *testing.T) error { return os.Remove(filepath.Join(filepath.Dir(layer(t)), "layer.json")) }, true},
		{"a record that is nonsense", func(t *testing.T) error {
			return os.WriteFile(filepath.Join(filepath.Dir(layer(t)), "layer.json"), []byte("{"), 0o644)
		}, true},
		{"other times alone, as after a copy", func(t *testing.T) error {
			return filepath.WalkDir(layer(t), func(name string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					err = os.Chtimes(name, time.Now(), time.Now())
				}
				return err
			})
		}, false},
	} {
		before := x.Fetched(wheel)
		require.NoError(t, c.change(t), c.what)
		var told []string
		computes(t, open(t, &bubblewrap.Runner{Packages: []string{"numpy"}, Installing: func(line string) { told = append(told, line) }}))
		assert.Equal(t, c.again, x.Fetched(wheel) > before, "row %d: %s: %q", i, c.what, told)
		if c.again {
			assert.Contains(t, strings.Join(told, "\n"), "the packages are made again", c.what)
		}
	}
}

// A layer is removed when nobody has used it for long, and never while a runner
// does.
func TestPackages_unused(t *testing.T) {
	x, wheel := numpy(t)
	x.AddWheel(t, packagestest.Wheel{Name: "other", Version: "1", Files: map[string]string{"other.py": ""}})
	long := time.Now().Add(-31 * 24 * time.Hour)
	user := open(t, &bubblewrap.Runner{Packages: []string{"numpy"}})
	require.NoError(t, user.Probe(t.Context()))
	record := filepath.Join(filepath.Dir(layer(t)), "layer.json")
	require.NoError(t, os.Chtimes(record, long, long))
	other := func() {
		r := open(t, &bubblewrap.Runner{Packages: []string{"other"}})
		require.NoError(t, r.Probe(t.Context()))
		require.NoError(t, r.Close())
	}
	other()
	computes(t, user) // and is closed
	require.FileExists(t, record)
	left := filepath.Join(store(t), "0123.part")
	require.NoError(t, os.Mkdir(left, 0o755))
	require.NoError(t, os.Chtimes(record, long, long))
	require.NoError(t, os.Chtimes(left, long, long))
	other() // puts it aside
	other() // and removes it
	assert.NoFileExists(t, record)
	entries, err := os.ReadDir(store(t))
	require.NoError(t, err)
	for _, e := range entries {
		assert.NotContains(t, e.Name(), ".old-")
		assert.NotContains(t, e.Name(), ".part")
	}
	computes(t, open(t, &bubblewrap.Runner{Packages: []string{"numpy"}}))
	assert.Equal(t, 2, x.Fetched(wheel))
}

// A process that is killed while it installs leaves nothing that is used, and
// nothing that runs.
func TestPackages_killed(t *testing.T) {
	if os.Getenv("FNLOOP_INSTALL") != "" {
		r := &bubblewrap.Runner{Packages: []string{"numpy"}}
		_, err := r.Run(t.Context(), fnloop.Program{Source: sum})
		t.Fatalf("Run() error = %v", err)
	}
	x, _ := numpy(t)
	asked, release := x.Block()
	defer release()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=TestPackages_killed")
	cmd.Env = append(os.Environ(), "FNLOOP_INSTALL=1")
	require.NoError(t, cmd.Start())
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Error("it never asked for the package")
	}
	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
	release()
	parts, _ := filepath.Glob(filepath.Join(store(t), "*.part"))
	assert.Len(t, parts, 1, "the test is of no use if nothing is left")
	made, _ := filepath.Glob(filepath.Join(store(t), "*", "layer.json"))
	assert.Empty(t, made)
	computes(t, open(t, &bubblewrap.Runner{Packages: []string{"numpy"}}))
	layer(t)
}

func TestPackages_fullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	x, _ := numpy(t)
	x.AddWheel(t, packagestest.Wheel{Name: "large", Version: "1", Files: map[string]string{"large.py": "", "large.bin": strings.Repeat("x", 40<<20)}})
	require.NoError(t, os.MkdirAll(store(t), 0o755))
	if err := unix.Mount("tmpfs", store(t), "tmpfs", 0, "size=16m,mode=0755"); err != nil {
		t.Skipf("nothing can be mounted: %v", err)
	}
	defer unix.Unmount(store(t), unix.MNT_DETACH) //nolint:errcheck // the next tests do not use it
	r := open(t, &bubblewrap.Runner{Packages: []string{"large"}})
	_, err := r.Run(t.Context(), fnloop.Program{Source: "import large"})
	bad, ok := errors.AsType[*fnloop.PackageError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "Packages", bad.Field)
	assert.Contains(t, bad.Reason, "the disk is full")
	entries, err := filepath.Glob(filepath.Join(store(t), "*", "*"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// The choice of uv is tried with a stand-in: it makes a module of what it was
// given.
func TestPackages_uv(t *testing.T) {
	x, _ := numpy(t)
	t.Setenv("PIP_INDEX_URL", strings.Replace(x.URL, "http://", "http://robot:pass-word@", 1)+"/simple/")
	t.Setenv("PIP_EXTRA_INDEX_URL", "https://second.invalid/simple")
	dir := filepath.Dir(os.Getenv("XDG_CACHE_HOME"))
	uv := filepath.Join(dir, "uv")
	require.NoError(t, os.WriteFile(uv, []byte(`#!/usr/bin/python3
import glob, os, sys
site, = glob.glob("/opt/fnloop/python/lib/python3*/site-packages")
with open(site + "/proof.py", "w") as f:
    f.write("args = %r\nenv = %r\nnetrc = %r\nlist = %r\n" % (sys.argv[1:-1], {k: v for k, v in os.environ.items() if k.startswith("UV_")}, len(open(os.environ["NETRC"]).read()), open(sys.argv[-1]).read()))
print("stand-in of uv")
`), 0o755))
	require.NoError(t, os.Chmod(uv, 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var told []string
	r := open(t, &bubblewrap.Runner{Packages: []string{"numpy"}, Installing: func(line string) { told = append(told, line) }})
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import proof\nprint(proof.args)\nfor k in sorted(proof.env): print(k, proof.env[k])\nprint(proof.netrc > 0, repr(proof.list))"})
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf(`['pip', 'install', '--python', '/opt/fnloop/python/bin/python3', '--only-binary', ':all:', '-r']
UV_EXTRA_INDEX_URL https://second.invalid/simple
UV_INDEX_URL %s/simple/
UV_LINK_MODE copy
UV_NO_CACHE 1
UV_NO_CONFIG 1
UV_NO_PROGRESS 1
UV_PYTHON_DOWNLOADS never
True 'numpy\n'
`, x.URL), res.Stdout, res.Stderr)
	assert.Contains(t, strings.Join(told, "\n"), "stand-in of uv")
}

// Folders with wheels that the configuration names are read, and an interpreter
// that is itself one of a virtual environment keeps its own packages.
func TestPackages_places(t *testing.T) {
	x, wheel := numpy(t)
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Dir(os.Getenv("XDG_CACHE_HOME"))
	wheels := filepath.Join(dir, "wheels")
	require.NoError(t, os.Mkdir(wheels, 0o755))
	data, ok := x.Data(wheel)
	require.True(t, ok)
	require.NoError(t, os.WriteFile(filepath.Join(wheels, wheel), data, 0o644))
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", wheels)

	own := filepath.Join(dir, "own")
	out, err := exec.Command(python, "-m", "venv", "--without-pip", "--system-site-packages", own).CombinedOutput()
	require.NoError(t, err, "%s", out)
	site, err := filepath.Glob(filepath.Join(own, "lib", "python3*", "site-packages"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(site[0], "mine.py"), []byte("n = 1\n"), 0o644))
	r := open(t, &bubblewrap.Runner{Python: filepath.Join(own, "bin", "python3"), Packages: []string{"numpy"}})
	res, err := r.Run(t.Context(), fnloop.Program{Source: sum + `
import mine, subprocess, sys
print(mine.n)
print(subprocess.run([sys.executable, "-c", "import mine, numpy; print(mine.n, numpy.arange(3).sum())"], capture_output=True, text=True).stdout)`})
	require.NoError(t, err)
	assert.Equal(t, "6\n1\n1 3\n\n", res.Stdout, res.Stderr)
}

// A folder that others can write to is not taken.
func TestPackages_store(t *testing.T) {
	numpy(t)
	require.NoError(t, os.MkdirAll(store(t), 0o777))
	require.NoError(t, os.Chmod(store(t), 0o777))
	r := open(t, &bubblewrap.Runner{Packages: []string{"numpy"}})
	err := r.Probe(t.Context())
	bad, ok := errors.AsType[*fnloop.PackageError](err)
	require.True(t, ok, "%v", err)
	assert.Contains(t, bad.Reason, "others can write")
}
