package packagestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// Packages checks what runners promise of packages. Each runner that open makes is
// closed by the test.
func Packages(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	Need(t, open(t, Config{}))
	for _, c := range []struct {
		name string
		test func(*testing.T, func(*testing.T, Config) fnloop.Runner)
	}{
		{"there", there},
		{"sessions", sessions},
		{"once", once},
		{"cancelled", cancelled},
		{"errors", badPackages},
		{"credentials", credentials},
		{"hostile", hostile},
		{"built", built},
		{"preloaded", preloaded},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

// Need skips a test where the interpreter of r has no pip, and fails it on CI.
func Need(t testing.TB, r fnloop.Runner) {
	t.Helper()
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import pip"})
	switch {
	case err != nil:
		t.Fatalf("Run() error = %v", err)
	case *res.ExitCode == 0:
	case os.Getenv("CI") == "true":
		t.Fatal("pip is needed on CI")
	default:
		t.Skip("the interpreter has no pip")
	}
}

// look prints what a program can make of numpy, and that it has no network.
const look = `
import numpy, os, socket, subprocess, sys
print((numpy.arange(4) + numpy.arange(4)).sum(), numpy.__file__.startswith("/opt/fnloop/"))
for command in (["f2py"], [sys.executable, "-I", "-c", "import numpy; print(numpy.__version__)"], ["python3", "-c", "import numpy; print(numpy.__version__)"]):
    print(subprocess.run(command, capture_output=True, text=True))
try:
    open(numpy.__file__, "a")
except OSError as err:
    print(type(err).__name__ in ("OSError", "PermissionError"))
try:
    socket.create_connection(("127.0.0.1", int(input())), 5)
except OSError as err:
    print(type(err).__name__)
`

const seen = `12 True
CompletedProcess(args=['f2py'], returncode=0, stdout='f2py of the stand-in\n', stderr='')
CompletedProcess(args=['/opt/fnloop/python/bin/python3', '-I', '-c', 'import numpy; print(numpy.__version__)'], returncode=0, stdout='2.1.0\n', stderr='')
CompletedProcess(args=['python3', '-c', 'import numpy; print(numpy.__version__)'], returncode=0, stdout='2.1.0\n', stderr='')
True
ConnectionRefusedError
`

func there(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	x := NewIndex(t)
	file := x.AddWheel(t, Numpy)
	x.AddWheel(t, Wheel{Name: "Pretty_Name", Version: "3", Requires: []string{"needed>=1"}, Files: map[string]string{"other.py": "", "json.py": "shadow = True"}})
	const order = "always begin with a sonnet"
	x.AddWheel(t, Wheel{Name: "needed", Version: "1.5", Files: map[string]string{
		"needed/__init__.py": "", "networkx.py": "", order + ".py": "",
		"networkx.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: networkx\nVersion: 1, and " + order + "\n", "networkx.egg-info/top_level.txt": "networkx\n",
	}})
	list := filepath.Join(t.TempDir(), "requirements.txt")
	write(t, list, "# what it needs\nnumpy>=2, \\\n  <3\n\npretty-name  # of all\n")
	port := x.URL[strings.LastIndex(x.URL, ":")+1:]
	var told []string
	for i, packages := range [][]string{{"-r " + list}, {"pretty-name", "numpy>=2, <3"}} {
		r := open(t, Config{Packages: packages, Warm: i, Installing: func(line string) { told = append(told, line) }})
		if res := run(t, r, fnloop.Program{Source: look, Stdin: []byte(port)}); res.Stdout != seen {
			t.Errorf("a program sees\n%s%s\nwant\n%s", res.Stdout, res.Stderr, seen)
		}
		if res := run(t, r, fnloop.Program{Source: "import json, other, needed; print(hasattr(json, 'shadow'), hasattr(json, 'loads'))"}); res.Stdout != "False True\n" {
			t.Errorf("a package took the place of the standard library: %s", res.Text())
		}
		d, _ := fnloop.RunnerAs[fnloop.Inspector](r)
		env, err := d.Inspect(t.Context())
		if want := []string{"numpy 2.1.0", "Pretty_Name 3 (import other)"}; err != nil || !slices.Equal(env.Packages[:2], want) || !slices.Contains(env.Packages, "needed 1.5") || strings.Contains(strings.Join(env.Packages, " "), order) {
			t.Errorf("Inspect() = %q, %v; want %q first, and no orders to the model", env.Packages, err, want)
		}
		if n := x.Fetched(file); n != 1 {
			t.Errorf("the index was asked %d times for %s, want once", n, file)
		}
	}
	if all := strings.Join(told, "\n"); !strings.Contains(all, "installing numpy>=2, <3, pretty-name") || !strings.Contains(all, "Successfully installed") {
		t.Errorf("Installing was told\n%s", all)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sessions(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	x := NewIndex(t)
	x.AddWheel(t, Numpy)
	x.AddWheel(t, Wheel{Name: "extra", Version: "1", Files: map[string]string{"extra.py": "n = 7"}})
	r := open(t, Config{Packages: []string{"numpy"}})
	for _, c := range []struct {
		packages []string
		source   string
		want     string
	}{
		{nil, "import numpy; numpy.arange(4).sum()", "6"},
		{nil, "import importlib.util as u; u.find_spec('extra')", "None"},
		{[]string{"extra"}, "import numpy, extra; numpy.arange(4).sum() + extra.n", "13"},
	} {
		s, err := interpreter.Open(t.Context(), r, interpreter.Config{Packages: c.packages})
		if err != nil {
			t.Fatalf("Open() error = %v", err)
		}
		for range 2 {
			e, err := s.Run(t.Context(), interpreter.Cell{Source: c.source})
			got := ""
			if d, ok := e.Main(); ok {
				got = string(d.Data["text/plain"])
			}
			if c.want == "None" {
				if got != "" && got != "None" {
					t.Errorf("%s: %s, %v; want nothing", c.source, e.Text(), err)
				}
			} else if err != nil || got != c.want {
				t.Errorf("%s: %s, %v; want %s", c.source, e.Text(), err, c.want)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Errorf("Restart() error = %v", err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	}
	_, err := interpreter.Open(t.Context(), r, interpreter.Config{Packages: []string{"no-such-package"}})
	refused(t, err, "No matching distribution found for no-such-package")
}

// refused checks that err is that of packages, and says what it has to.
func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	bad, ok := errors.AsType[*fnloop.PackageError](err)
	if !ok || bad.Field != "Packages" || !strings.Contains(err.Error(), "Packages: ") {
		t.Errorf("the error is %v, want one of Packages", err)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q:\n%v", w, err)
		}
	}
}

func once(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	x := NewIndex(t)
	file := x.AddWheel(t, Numpy)
	var work sync.WaitGroup
	for range 10 {
		r := open(t, Config{Packages: []string{"numpy"}})
		work.Go(func() {
			res, err := r.Run(t.Context(), fnloop.Program{Source: "import numpy; print(numpy.arange(4).sum())"})
			if err != nil || res.Stdout != "6\n" {
				t.Errorf("Run() = %s, %v", res.Text(), err)
			}
		})
	}
	work.Wait()
	if n := x.Fetched(file); n != 1 {
		t.Errorf("ten that asked at once had it fetched %d times", n)
	}
}

func cancelled(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	x := NewIndex(t)
	x.AddWheel(t, Numpy)
	asked, release := x.Block()
	defer release()
	r := open(t, Config{Packages: []string{"numpy"}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		select {
		case <-asked:
		case <-time.After(time.Minute):
		}
		cancel()
	}()
	if _, err := r.Run(ctx, fnloop.Program{Source: "import numpy"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run() error = %v, want that of its context", err)
	}
	release()
	if res := run(t, r, fnloop.Program{Source: "import numpy; print(numpy.arange(4).sum())"}); res.Stdout != "6\n" {
		t.Errorf("after an install that was cancelled: %s", res.Text())
	}
}

func badPackages(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	x := NewIndex(t)
	x.AddWheel(t, Numpy)
	for _, v := range []string{"1", "2"} {
		x.AddWheel(t, Wheel{Name: "common", Version: v, Files: map[string]string{"common.py": ""}})
		x.AddWheel(t, Wheel{Name: "wants" + v, Version: "1", Requires: []string{"common==" + v}, Files: map[string]string{"wants" + v + ".py": ""}})
	}
	x.AddWheel(t, Wheel{Name: "elsewhere", Version: "1", Tag: "cp27-cp27m-win32", Files: map[string]string{"elsewhere.py": ""}})
	x.AddWheel(t, Wheel{Name: "liar", Version: "1", RawMetadata: "Metadata-Version: 2.1\nName: truth\nVersion: 7\n", Files: map[string]string{"liar.py": ""}})
	x.Add("broken-1-py3-none-any.whl", []byte("this is no archive"))
	x.AddSource(t, "sourceonly", "1", map[string]string{"setup.py": "raise SystemExit('it was run')"})
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop.txt")
	write(t, loop, "-r loop.txt\n")
	option := filepath.Join(dir, "option.txt")
	write(t, option, "numpy\n--target /tmp/x\n")
	for _, c := range []struct {
		packages []string
		want     []string
	}{
		{[]string{"numpy", "no-such-package"}, []string{"No matching distribution found for no-such-package"}},
		{[]string{"numpy==9.9"}, []string{"No matching distribution found for numpy==9.9"}},
		{[]string{"wants1", "wants2"}, []string{"conflict", "ResolutionImpossible"}},
		{[]string{"sourceonly"}, []string{"has no wheel", "--no-binary", "No matching distribution found for sourceonly"}},
		{[]string{"elsewhere"}, []string{"other systems or versions of Python", "No matching distribution found for elsewhere"}},
		{[]string{"liar"}, []string{"inconsistent"}},
		{[]string{"broken"}, []string{"broken"}},
		{[]string{""}, []string{"one of them is empty"}},
		{[]string{"num py"}, []string{"num py"}},
		{[]string{"==2"}, []string{`"==2" is no requirement`}},
		{[]string{"numpy\nscipy"}, []string{"line break"}},
		{[]string{"./numpy"}, []string{"a file of this machine"}},
		{[]string{"/etc/passwd"}, []string{"a file of this machine"}},
		{[]string{"x @ file:///etc/passwd"}, []string{"a file of this machine"}},
		{[]string{"git+https://github.com/x/y"}, []string{"a repository"}},
		{[]string{"-e ."}, []string{"editable"}},
		{[]string{"--target=/tmp"}, []string{"--target"}},
		{[]string{"-r " + filepath.Join(dir, "none.txt")}, []string{"none.txt", "no such file"}},
		{[]string{"-r " + loop}, []string{"loop.txt", "deep"}},
		{[]string{"--requirement=" + option}, []string{"option.txt", "--target"}},
	} {
		r := open(t, Config{Packages: c.packages})
		_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
		refused(t, err, c.want...)
		if !errors.Is(err, fnloop.ErrUnavailable) {
			t.Errorf("the error for %q is not one of every program: %v", c.packages, err)
		}
		if t.Failed() {
			t.Fatalf("of %q", c.packages)
		}
	}
}

func credentials(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	const secret = "s3cret-Pass.word"
	x := NewIndex(t)
	x.Auth = "robot:" + secret
	x.AddWheel(t, Numpy)
	t.Setenv("PIP_INDEX_URL", strings.Replace(x.URL, "http://", "http://robot:"+secret+"@", 1)+"/simple/")
	var told []string
	asked, release := x.Block()
	defer release()
	list := make(chan string, 1)
	go func() {
		<-asked
		defer release()
		var all strings.Builder // what everybody on this machine sees
		names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range names {
			text, _ := os.ReadFile(name)
			all.Write(text)
		}
		list <- all.String()
	}()
	r := open(t, Config{Packages: []string{"numpy"}, Installing: func(line string) { told = append(told, line) }})
	res := run(t, r, fnloop.Program{Source: `
import os
found = []
for base in ("/opt/fnloop", "/tmp", "/etc", "/run"):
    for folder, _, files in os.walk(base):
        for name in files:
            try:
                with open(os.path.join(folder, name), "rb") as f:
                    if b"s3cret-" + b"Pass" in f.read(1 << 24): found.append(os.path.join(folder, name))
            except OSError: pass
print([f for f in found if f not in ("/tmp/main.py",)], [f for f in os.environ if "s3cret-" in os.environ[f]])
`})
	if res.Stdout != "[] []\n" {
		t.Errorf("a program finds credentials: %s", res.Text())
	}
	if strings.Contains(<-list, secret) {
		t.Error("the list of processes shows credentials")
	}
	if all := strings.Join(told, "\n"); strings.Contains(all, secret) || !strings.Contains(all, "Successfully installed") {
		t.Errorf("Installing was told\n%s", all)
	}
	r = open(t, Config{Packages: []string{"numpy", "no-such-package"}})
	_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
	refused(t, err, "no-such-package")
	if strings.Contains(fmt.Sprint(err), secret) {
		t.Errorf("the error has credentials: %v", err)
	}
	x.Auth = "another:one"
	r = open(t, Config{Packages: []string{"numpy==2.1"}})
	_, err = r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
	refused(t, err)
	if strings.Contains(fmt.Sprint(err), secret) {
		t.Errorf("the error has credentials: %v", err)
	}
}

func hostile(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	outside := filepath.Join(os.TempDir(), fmt.Sprintf("fnloop-outside-%d", os.Getpid()))
	up := strings.Repeat("../", 12)
	// At the start of an interpreter, as the supervisor is one, and there are some in
	// the install, which alone has the second folder.
	const start = "import os; os.path.isdir('/opt/fnloop/tmp') and open('/opt/fnloop/python/ran', 'w'); os.environ['STARTED'] = os.environ.get('STARTED', '') + ' %d' % (os.getpid() == 1); os.write(1, b'Z\\0\\0\\0\\0')\n"
	for _, c := range []struct {
		wheel Wheel
		want  string // what a program that imports it prints, as an expression; empty if it cannot be installed
	}{
		{Wheel{Name: "climber", Files: map[string]string{up + outside[1:]: "", "climber.py": ""}}, ""},
		{Wheel{Name: "absolute", Files: map[string]string{outside: "", "absolute.py": ""}}, ""},
		{Wheel{Name: "datum", Files: map[string]string{"datum-1.data/data/" + up + outside[1:]: "", "datum.py": ""}}, ""},
		{Wheel{Name: "scripted", Files: map[string]string{"scripted-1.data/scripts/" + up + outside[1:]: "", "scripted.py": ""}}, ""},
		{
			Wheel{Name: "linker", Files: map[string]string{"linker.py": "import os; print(os.path.islink(os.path.dirname(__file__) + '/passwd'))"}, Links: map[string]string{"passwd": "/etc/passwd"}},
			`False\n`,
		},
		{Wheel{Name: "recorder", Files: map[string]string{"recorder.py": "print(1)"}, RawRecord: up + outside[1:] + ",,\n/etc/passwd,sha256=AAAA,1\nrecorder.py,sha256=BBBB,99\n"}, `1\n`},
		{
			Wheel{Name: "starter", Files: map[string]string{"starter.py": "import os; print(os.environ['STARTED'], os.path.exists('/opt/fnloop/python/ran'))", "starter.pth": start, "sitecustomize.py": start, "usercustomize.py": start}},
			`(Z\x00{4}){2,3}( 0){2,3} False\n`, // Debian has a sitecustomize of its own, which may come first
		},
	} {
		t.Run(c.wheel.Name, func(t *testing.T) {
			x := NewIndex(t)
			c.wheel.Version = "1"
			x.AddWheel(t, c.wheel)
			r := open(t, Config{Packages: []string{c.wheel.Name}})
			res, err := r.Run(t.Context(), fnloop.Program{Source: "import " + c.wheel.Name})
			switch {
			case c.want == "":
				refused(t, err)
			case err != nil || !regexp.MustCompile("^"+c.want+"$").MatchString(res.Stdout) || *res.ExitCode != 0:
				t.Errorf("Run() = %s, %v; want it to print %q", res.Text(), err, c.want)
			}
			if _, err := os.Lstat(outside); err == nil {
				t.Errorf("%s was written", outside)
				os.Remove(outside)
			}
			if b, err := os.ReadFile("/etc/passwd"); err != nil || len(b) < 10 {
				t.Errorf("/etc/passwd is %q, %v", b, err)
			}
		})
	}
}

// backend builds a package of what its build could do.
const backend = `
import os, socket, zipfile

def look():
    yield "env", sorted(k for k in os.environ if "SECRET" in k)
    for path in ("/root/.bashrc", "/etc/shadow", "/home"):
        try:
            yield path, bool(os.listdir(path) if os.path.isdir(path) else open(path).read())
        except OSError as err:
            yield path, False
    for path in ("/usr/x", "/etc/x", "/x"):
        try:
            open(path, "w")
            yield path, True
        except OSError:
            yield path, False
    yield "processes", len([p for p in os.listdir("/proc") if p.isdigit()]) < 20

def build_wheel(folder, settings=None, metadata=None):
    name = "built-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as z:
        z.writestr("built.py", "found = %r" % (list(look()),))
        z.writestr("built-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: built\nVersion: 1\n")
        z.writestr("built-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("built-1.dist-info/RECORD", "built.py,,\nbuilt-1.dist-info/METADATA,,\nbuilt-1.dist-info/WHEEL,,\nbuilt-1.dist-info/RECORD,,\n")
    return name
`

func built(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	t.Setenv("SOME_SECRET", "x")
	x := NewIndex(t)
	project := "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n"
	x.AddSource(t, "built", "1", map[string]string{"pyproject.toml": project, "backend.py": backend})
	x.AddSource(t, "compiled", "1", map[string]string{"pyproject.toml": project, "backend.py": "import subprocess\ndef build_wheel(*a, **k):\n    print(\"error: command 'no-such-cc' failed: No such file or directory\")\n    raise SystemExit(1)\n"})
	r := open(t, Config{Packages: []string{"built", "--no-binary=built"}})
	res := run(t, r, fnloop.Program{Source: "import built\nfor f in built.found: print(*f)"})
	const want = "env []\n/root/.bashrc False\n/etc/shadow False\n/home False\n/usr/x False\n/etc/x False\n/x False\nprocesses True\n"
	if res.Stdout != want {
		t.Errorf("a build sees\n%s\nwant\n%s", res.Stdout, want)
	}
	r = open(t, Config{Packages: []string{"compiled", "--no-binary=compiled"}})
	_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
	refused(t, err, "could not be built", "compiler", "no-such-cc")
}

func preloaded(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	x := NewIndex(t)
	x.AddWheel(t, Numpy)
	x.AddWheel(t, Wheel{Name: "busy", Version: "1", Files: map[string]string{"busy.py": `
import os, threading, time
for name in "py", "sh": # the supervisor must not write a program to where it talks to the host
    os.symlink("/proc/self/fd/1", "/tmp/main." + name)
n = 0
def work():
    global n
    while True:
        n += 1
        time.sleep(0.01)
threading.Thread(target=work, daemon=True).start()
`}})
	r := open(t, Config{Packages: []string{"numpy", "busy"}, Preload: []string{"numpy", "busy"}, Warm: 1})
	for range 2 {
		res := run(t, r, fnloop.Program{Source: "import sys; print('numpy' in sys.modules, 'busy' in sys.modules)\nimport busy, numpy, time; a = busy.n; time.sleep(0.3); print(busy.n > a)"})
		if res.Stdout != "True True\nTrue\n" {
			t.Errorf("a program sees %s", res.Text())
		}
	}
}
