//go:build linux

package bubblewrap_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
)

func TestSessions(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}

func TestSessionsWarm(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Warm: 2})
	runnertest.RunSessions(t, func(*testing.T) fnloop.Runner { return r })
}

// pythons are the interpreters of this machine that the runner takes, by version.
func pythons(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"/usr/bin/python3"}
	for minor := 8; minor < 30; minor++ {
		if path, err := exec.LookPath(fmt.Sprintf("python3.%d", minor)); err == nil {
			paths = append(paths, path)
		}
	}
	home, _ := os.UserHomeDir()
	more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/bin/python3"))
	found := make(map[string]string)
	for _, path := range append(paths, more...) {
		out, err := exec.Command(path, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)").Output()
		version, exe, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
		var minor int
		if _, scanned := fmt.Sscanf(version, "3.%d", &minor); err == nil && ok && scanned == nil && minor >= 8 {
			found[version] = exe // a shim would not be found in the sandbox
		}
	}
	return found
}

// The core of what a session promises, on each Python that is here.
func TestSessionsOfEachPython(t *testing.T) {
	need(t)
	for version, path := range pythons(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := open(t, &bubblewrap.Runner{Python: path})
			s := openSession(t, r, interpreter.Config{Limits: fnloop.Limits{Time: 20 * time.Second}, Grace: time.Second})
			assert.Equal(t, version, s.Info().Python)
			for _, c := range []struct {
				source string
				want   string // the value of the last expression, or the name of the error
				limit  time.Duration
			}{
				{source: "x = [1]\nx", want: "[1]"},
				{source: "x.append(2); print('out')", want: ""},
				{source: "def f(n): return n * n\n[f(k) for k in x]", want: "[1, 4]"},
				{source: "1/0", want: "ZeroDivisionError"},
				{source: "def (", want: "SyntaxError"},
				{source: "from __future__ import annotations\nimport dataclasses, pickle, asyncio, os, time, sys", want: ""},
				{source: "@dataclasses.dataclass\nclass D:\n    a: int\npickle.loads(pickle.dumps(D(1)))", want: "D(a=1)"},
				{source: "await asyncio.sleep(0)\n[i async for i in g()] if 'g' in globals() else 'none'", want: "'none'"},
				{source: "await asyncio.sleep(60)", want: "timeout", limit: 300 * time.Millisecond},
				{source: "time.sleep(60)", want: "timeout", limit: 300 * time.Millisecond},
				{source: "asyncio.run(asyncio.sleep(0, 7))", want: "7"},
				{source: "from multiprocessing import Pool\nwith Pool(2) as p: r = p.map(f, range(3))\nr", want: "[0, 1, 4]"},
				{source: "input()", want: "EOFError"},
				{source: "exit()", want: ""},
				{source: "sys.exit('bad')", want: "SystemExit"},
				{source: "os._exit(3)", want: "Exit"},
				{source: "x, os.getpid() > 1", want: "([1, 2], True)"},
				{source: "import ctypes; ctypes.string_at(0)", want: "Crash"},
				{source: "!echo hi", want: ""},
				{source: "def deep(n): return deep(n + 1)\ndeep(0)", want: "RecursionError"},
				{source: "import threading; t = threading.Thread(target=display, args=(5,)); t.start(); t.join(); x", want: "[1, 2]"},
				{source: "open('f', 'w').write('a' * 5);", want: ""},
				{source: "os.path.getsize('f')", want: "5"},
			} {
				e, err := s.Run(t.Context(), interpreter.Cell{Source: c.source, Limits: fnloop.Limits{Time: c.limit}})
				require.NoError(t, err)
				main, _ := e.Main()
				got := string(main.Data["text/plain"])
				switch {
				case e.Status == interpreter.StatusTimeout:
					got = string(e.Status)
				case e.Error != nil:
					got = e.Error.Name
				}
				assert.Equal(t, c.want, got, "%s\n%s", c.source, e.Text())
				assert.Nil(t, e.Loss, c.source)
			}
			res, err := r.Run(t.Context(), fnloop.Program{Source: "import sys; print('%d.%d.%d' % sys.version_info[:3])"})
			require.NoError(t, err)
			assert.Equal(t, version+"\n", res.Stdout)
		})
	}
}

// openSession opens a session that the test closes.
func openSession(t *testing.T, r fnloop.Runner, c interpreter.Config) *interpreter.Session {
	t.Helper()
	s, err := interpreter.Open(t.Context(), r, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func runCell(t *testing.T, s *interpreter.Session, source string) interpreter.Execution {
	t.Helper()
	e, err := s.Run(t.Context(), interpreter.Cell{Source: source})
	require.NoError(t, err)
	return e
}

// helpSession opens a session in which a process sleeps, runs a cell without
// end, and says so.
func helpSession() {
	s, err := interpreter.Open(context.Background(), &bubblewrap.Runner{Warm: 1}, interpreter.Config{})
	if err == nil {
		_, err = s.Run(context.Background(), interpreter.Cell{
			Source: "import subprocess, time\nsubprocess.Popen(['bash', '-c', 'exec -a " + os.Args[1] + " sleep 600'], start_new_session=True)\nprint('up', flush=True)\ntime.sleep(60)",
			Limits: fnloop.Limits{Time: time.Minute}, Stdout: os.Stdout,
		})
	}
	fmt.Println(err)
}

func TestSessionDiesWithTheHost(t *testing.T) {
	need(t)
	const name = "fnloop-test-session-orphan"
	cmd := exec.Command(os.Args[0], name)
	cmd.Env = append(os.Environ(), helper+"=session")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	assert.Equal(t, "up\n", line, "%v", err)
	sleeping := func() []string {
		return slices.DeleteFunc(processes(name), func(s string) bool { return !strings.Contains(s, name+" 600") })
	}
	eventually(t, "a process sleeps", func() bool { return len(sleeping()) == 1 })
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "it is gone", func() bool { return len(sleeping()) == 0 })
}

// kill kills everything that has mark in its command line.
func kill(mark string) (n int) {
	for _, p := range processes(mark) {
		var pid int
		_, _ = fmt.Sscanf(p, "/proc/%d ", &pid)
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

func TestSessionWhoseSandboxIsKilled(t *testing.T) {
	mark := venv(t)
	r := open(t, &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3")})
	s := openSession(t, r, interpreter.Config{})
	runCell(t, s, "x = 1; open('f', 'w').write('1')")
	for range 3 {
		// Between two cells.
		require.Positive(t, kill(mark))
		eventually(t, "all are dead", func() bool { return len(processes(mark)) == 0 })
		time.Sleep(300 * time.Millisecond) // until this side knows
		e := runCell(t, s, "'x' in globals()")
		d, _ := e.Main()
		assert.Equal(t, "False", string(d.Data["text/plain"]))
		require.NotNil(t, e.Loss)
		assert.Equal(t, interpreter.Loss{Cause: interpreter.CauseSandbox, Names: []string{"x"}}, *e.Loss)
		assert.Nil(t, runCell(t, s, "x = 1").Loss)

		// During one.
		go func() { time.Sleep(300 * time.Millisecond); kill(mark) }()
		e, err := s.Run(context.Background(), interpreter.Cell{Source: "print('begun', flush=True); import time; time.sleep(60)"})
		require.NoError(t, err)
		assert.Equal(t, interpreter.StatusLost, e.Status) // whatever the context is
		assert.Equal(t, "begun\n", e.Stdout)
		require.NotNil(t, e.Loss)
		assert.False(t, e.Loss.FilesKept)
		assert.Nil(t, runCell(t, s, "x = 1").Loss)
	}
	// By what is asked of files.
	require.Positive(t, kill(mark))
	require.NoError(t, s.Put(t.Context(), "g", strings.NewReader("2")))
	require.NotNil(t, runCell(t, s, "1").Loss)
}

func TestSessionOfAClosedRunner(t *testing.T) {
	need(t)
	r := new(bubblewrap.Runner)
	s, err := interpreter.Open(t.Context(), r, interpreter.Config{})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(context.Background(), interpreter.Cell{Source: "while True: pass"})
		done <- err
	}()
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, r.Close())
	<-done
	_, err = s.Run(t.Context(), interpreter.Cell{Source: "1"})
	assert.Error(t, err)
	assert.NoError(t, s.Close())
}

// The soak runs cells in many sessions at once, and does to them at random what
// can be done to a session. Each keeps a list whose content is known at any time.
// FNLOOP_TEST_CELLS is how many cells.
func TestSessionSoak(t *testing.T) {
	mark := venv(t)
	r := &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3"), Warm: 2}
	sessions := 8
	cells := drill(t, "FNLOOP_TEST_CELLS", 240)
	if cells >= 5000 {
		sessions = 50
	}
	var work sync.WaitGroup
	for i := range sessions {
		work.Go(func() { soak(t, r, i, cells/sessions, mark) })
	}
	work.Wait()
	assert.NoError(t, r.Close())
	eventually(t, "no process is left", func() bool { return len(processes(mark)) == 0 })
}

// soak is one session of the soak.
func soak(t *testing.T, r fnloop.Runner, id, cells int, mark string) {
	random := rand.New(rand.NewPCG(uint64(id), uint64(cells)))
	s, err := interpreter.Open(t.Context(), r, interpreter.Config{
		Limits: fnloop.Limits{Time: 20 * time.Second, Memory: 128 << 20}, Grace: 300 * time.Millisecond,
	})
	if !assert.NoError(t, err) {
		return
	}
	defer func() { assert.NoError(t, s.Close()) }()
	known := -1 // how long the list is; below zero there is none
	// cell runs one that makes the list longer by more if it comes to its end,
	// and reports whether it did.
	cell := func(ctx context.Context, c interpreter.Cell, more int) (interpreter.Execution, bool) {
		e, err := s.Run(ctx, c)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("session %d: Run(%q) error = %v", id, c.Source, err)
		}
		switch {
		case e.Loss != nil:
			known = -1
		case e.Status == interpreter.StatusOK:
			known += more
		case e.Restored || e.Status == "":
		case known >= 0:
			// Stopped, but nobody knows where.
			for range 3 {
				e, err := s.Run(t.Context(), interpreter.Cell{Source: "print(len(l))"})
				if err == nil && e.Loss == nil && e.Restored {
					continue // killed by another session
				}
				got := -1
				if err == nil && e.Loss == nil {
					_, _ = fmt.Sscan(e.Stdout, &got)
					assert.True(t, got == known || got == known+more, "session %d: %s after %d", id, e.Text(), known)
				}
				known = got
				break
			}
		}
		return e, e.Status == interpreter.StatusOK && e.Loss == nil
	}
	for range cells {
		if t.Failed() {
			return
		}
		e, done := cell(t.Context(), interpreter.Cell{Source: fmt.Sprintf("print(len(l) if 'l' in globals() else -1, %d)", id)}, 0)
		if done {
			assert.Equal(t, fmt.Sprintf("%d %d\n", known, id), e.Stdout, "%s", e.Text())
		}
		for known < 0 {
			if _, done := cell(t.Context(), interpreter.Cell{Source: "l = []"}, 0); done {
				known = 0
			}
		}
		switch n := random.IntN(20); n {
		case 0: // an end of the interpreter
			e, _ := cell(t.Context(), interpreter.Cell{Source: "l.append(1); import os; os._exit(1)"}, 0)
			assert.True(t, e.Restored || e.Loss != nil, "%s", e.Text())
		case 1: // native code that does not return
			e, _ := cell(t.Context(), interpreter.Cell{Limits: fnloop.Limits{Time: 100 * time.Millisecond},
				Source: "l.append(1); import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"}, 1)
			// On a busy machine the import may be all that it came to.
			assert.True(t, e.Restored || e.Loss != nil || e.Status == interpreter.StatusTimeout, "%s", e.Text())
		case 2, 3: // an interrupt, or the end of the context, at any point
			ctx, cancel := context.WithCancel(t.Context())
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				time.Sleep(time.Duration(10*random.IntN(20)) * time.Millisecond)
				if n == 2 {
					cancel()
				} else {
					_, _ = s.Interrupt(t.Context())
				}
			}()
			cell(ctx, interpreter.Cell{Source: "import time\nfor i in range(10): time.sleep(.01)\nl.append(1)"}, 1)
			<-stopped
			cancel()
		case 4:
			assert.NoError(t, s.Restart(t.Context()))
		case 5: // a process goes, of whichever session
			if all := processes(mark); len(all) > 0 && random.IntN(4) == 0 {
				var pid int
				_, _ = fmt.Sscanf(all[random.IntN(len(all))], "/proc/%d ", &pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		default:
			cell(t.Context(), interpreter.Cell{Source: "l.append(1); len(l)"}, 1)
		}
	}
}
