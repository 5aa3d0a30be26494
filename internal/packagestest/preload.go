// Package packagestest checks what the runners of this module promise of Packages
// and Preload. It serves an index of its own, with wheels that it makes.
package packagestest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// A Config has the fields of a runner that the tests set.
type Config struct {
	Packages, Preload []string
	Warm              int
	Installing        func(line string)
}

// world prints what a program finds, but for its modules.
const world = `import os, random, resource, signal, sys, threading
print(sys.argv, os.getcwd(), sys.path, sorted(os.environ.items()), sys.executable, sys.prefix)
print(sorted(os.listdir("/proc/self/fd")), os.umask(0), threading.active_count(), __name__, sorted(globals()))
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)])
print(os.listdir("/tmp"), len([p for p in os.listdir("/proc") if p.isdigit()]), input())
`

// Preload checks what runners promise of modules that are imported ahead. Each
// runner that open makes is closed by the test.
func Preload(t *testing.T, open func(*testing.T, Config) fnloop.Runner) {
	t.Run("the same world", func(t *testing.T) {
		var worlds []string
		for _, modules := range [][]string{nil, {"decimal", "xml.dom"}} {
			r := open(t, Config{Preload: modules})
			res := run(t, r, fnloop.Program{Source: world, Stdin: []byte("typed\n")})
			worlds = append(worlds, res.Stdout+res.Stderr)
			res = run(t, r, fnloop.Program{Source: "import sys; print('decimal' in sys.modules, 'xml.dom' in sys.modules)"})
			if want := map[bool]string{true: "True True\n", false: "False False\n"}[modules != nil]; res.Stdout != want {
				t.Errorf("with %q there are the modules: %q, want %q", modules, res.Text(), want)
			}
		}
		if worlds[0] != worlds[1] {
			t.Errorf("a program sees a difference:\n%s\n%s", worlds[0], worlds[1])
		}
	})
	t.Run("warm", func(t *testing.T) {
		// The module this prints a poem when it is imported.
		r := open(t, Config{Preload: []string{"random", "this"}, Warm: 2})
		seen := make(map[string]bool)
		for range 4 {
			res := run(t, r, fnloop.Program{Source: "import random, this; print(random.random())"})
			if strings.Count(res.Stdout, "\n") != 1 || seen[res.Stdout] {
				t.Errorf("a program printed %q, which is more than it does, or what another has", res.Stdout)
			}
			seen[res.Stdout] = true
		}
	})
	t.Run("session", func(t *testing.T) {
		r := open(t, Config{Preload: []string{"decimal"}})
		s, err := interpreter.Open(t.Context(), r, interpreter.Config{Preload: []string{"xml.dom", "decimal"}})
		if err != nil {
			t.Fatalf("Open() error = %v", err)
		}
		defer s.Close() //nolint:errcheck // the runner's Close tells
		const look = "import sys, os; ('decimal' in sys.modules, 'xml.dom' in sys.modules, os.getcwd(), sys.argv)"
		const want = "(True, True, '/tmp/workspace', [''])"
		shows := func(source, want string) {
			t.Helper()
			e, err := s.Run(t.Context(), interpreter.Cell{Source: source, Limits: fnloop.Limits{Time: 30 * time.Second}})
			if d, _ := e.Main(); err != nil || string(d.Data["text/plain"]) != want {
				t.Errorf("%s: %s, %v; want %s", source, e.Text(), err, want)
			}
		}
		shows(look, want)
		shows("x = 7; x", "7")
		if e, err := s.Run(t.Context(), interpreter.Cell{Source: "import os; os._exit(1)"}); err != nil || !e.Restored {
			t.Errorf("a cell that ended the interpreter: %s, %v; want it restored", e.Text(), err)
		}
		shows("x", "7")
		if err := s.Restart(t.Context()); err != nil {
			t.Errorf("Restart() error = %v", err)
		}
		shows(look, want)
	})
	t.Run("errors", func(t *testing.T) {
		for _, c := range []struct{ module, want string }{
			{"no_such_module_anywhere", "Preload: ModuleNotFoundError: No module named 'no_such_module_anywhere'"},
			{"json.no_such_part", "Preload: ModuleNotFoundError: No module named 'json.no_such_part'"},
			{"scikit-learn", `Preload: "scikit-learn" is not the name of a module`},
			{"os; print(1)", `Preload: "os; print(1)" is not the name of a module`},
			{"", `Preload: "" is not the name of a module`},
		} {
			r := open(t, Config{Preload: []string{c.module}})
			_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
			bad, ok := errors.AsType[*fnloop.PackageError](err)
			if !ok || bad.Field != "Preload" || !strings.Contains(err.Error(), c.want) || !errors.Is(err, fnloop.ErrUnavailable) {
				t.Errorf("Preload %q: Run() error = %v, want one that can be met by no program and says %s", c.module, err, c.want)
			}
		}
		r := open(t, Config{})
		_, err := interpreter.Open(t.Context(), r, interpreter.Config{Preload: []string{"no_such_module_anywhere"}})
		if bad, ok := errors.AsType[*fnloop.PackageError](err); !ok || bad.Field != "Preload" {
			t.Errorf("Open() error = %v, want one of Preload", err)
		}
	})
}

// run runs a program that has to succeed.
func run(t *testing.T, r fnloop.Runner, p fnloop.Program) fnloop.Result {
	t.Helper()
	res, err := r.Run(t.Context(), p)
	if err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
		t.Fatalf("Run() = %s, %v\n%s", res.Text(), err, p.Source)
	}
	return res
}
