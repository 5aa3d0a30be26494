package runnertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

// RunSessions checks that the interpreters of the runners made by newRunner keep
// the promises of [interpreter.Session]. It is to [interpreter.Open] what [Run]
// is to [fnloop.Runner]; newRunner and Lacks mean the same. Beside those of Run a
// runner may lack
//
//   - copy: a cell that has to be killed leaves the variables as they were
//   - files: the work folder is that of the code
//   - any single case, by its name
//
// Cases about matplotlib, pandas and PIL are skipped where the runner's
// [fnloop.Environment] does not name them.
func RunSessions(t *testing.T, newRunner func(*testing.T) fnloop.Runner) {
	for _, group := range [][]sessionCase{stopping, deaths, results, printing, showing, processes, folder, attacks, sharing} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, newRunner(t))
			})
		}
	}
}

// A sessionCase is a row of cells in one session, and what is right about each
// Execution.
type sessionCase struct {
	name string
	why  string   // the rule that is broken if the case fails
	lack []string // what a runner may say it lacks, beside execution
	need []string // packages

	config interpreter.Config // a zero time means timeLimit, zero memory 256 MiB
	cells  []cell

	// do replaces or, where there are cells, follows them.
	do func(*testing.T, *notebook)
}

// A cell is one of a case.
type cell struct {
	source string
	limit  time.Duration // zero means the session's
	wait   time.Duration // before it
	check  func(*outcome)
}

// A notebook is an open session.
type notebook struct {
	*interpreter.Session
	runner fnloop.Runner
}

// sessionMemory is that of sessions that name none.
const sessionMemory = 256 << 20

func (c sessionCase) run(t *testing.T, r fnloop.Runner) {
	t.Helper()
	testCase{why: c.why, lack: append(slices.Clone(c.lack), c.name)}.skip(t, r)
	if len(c.need) > 0 {
		d, ok := fnloop.RunnerAs[fnloop.Describer](r)
		for _, p := range c.need {
			if !ok || !slices.ContainsFunc(d.Environment().Packages, func(has string) bool {
				name, rest, _ := strings.Cut(has, " ")
				return name == p || strings.HasSuffix(rest, "(import "+p+")")
			}) {
				t.Skipf("the runner does not have %s", p)
			}
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the rule: %s", c.why)
		}
	})
	n := openNotebook(t, r, c.config)
	for i, cell := range c.cells {
		time.Sleep(cell.wait)
		limit := cell.limit
		begin := time.Now()
		e, err := n.Run(t.Context(), interpreter.Cell{Source: cell.source, Limits: fnloop.Limits{Time: limit}})
		took := time.Since(begin)
		if err != nil {
			t.Fatalf("cell %d: Run() error = %v", i+1, err)
		}
		failed := t.Failed()
		o := &outcome{T: t, Execution: e, took: took}
		o.sane()
		cell.check(o)
		if t.Failed() && !failed {
			t.Logf("cell %d:\n%s\nthe execution: %s\ncause %q restored %v loss %+v after %v", i+1, abridge(cell.source), abridge(e.Text()), e.Cause, e.Restored, e.Loss, took)
		}
	}
	if c.do != nil {
		c.do(t, n)
	}
}

func openNotebook(t *testing.T, r fnloop.Runner, c interpreter.Config) *notebook {
	t.Helper()
	if c.Limits.Time == 0 {
		c.Limits.Time = timeLimit
	}
	if c.Limits.Memory == 0 {
		c.Limits.Memory = sessionMemory
	}
	s, err := interpreter.Open(t.Context(), r, c)
	if err != nil {
		t.Fatalf("Open() error = %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	})
	return &notebook{s, r}
}

// run runs a cell that the runner must not fail.
func (n *notebook) run(t *testing.T, source string) *outcome {
	t.Helper()
	begin := time.Now()
	e, err := n.Run(t.Context(), interpreter.Cell{Source: source})
	if err != nil {
		t.Fatalf("Run(%.100q) error = %v", source, err)
	}
	return &outcome{T: t, Execution: e, took: time.Since(begin)}
}

// An outcome is an Execution under judgement.
type outcome struct {
	*testing.T
	interpreter.Execution
	took time.Duration
}

// sane checks what holds for every Execution.
func (o *outcome) sane() {
	o.Helper()
	if o.Status == interpreter.StatusLost && o.Loss == nil {
		o.Errorf("lost without a Loss")
	}
	if o.Restored && o.Cause == "" {
		o.Errorf("restored without a cause")
	}
	if o.Error != nil && strings.Contains(o.Error.Traceback, "fnloop") {
		o.Errorf("the traceback has a frame of ours: %s", o.Error.Traceback)
	}
	if text := o.Text(); len(text) > fnloop.DefaultMaxOutput {
		o.Errorf("Text() has %d bytes", len(text))
	}
	if o.Count == 0 || o.Limits.Time <= 0 {
		o.Errorf("Count = %d, Limits.Time = %v", o.Count, o.Limits.Time)
	}
}

func (o *outcome) is(want interpreter.Status) {
	o.Helper()
	if o.Status != want {
		o.Errorf("status = %q, want %q", o.Status, want)
	}
}

// main is the text of the last expression's value.
func (o *outcome) main() string {
	d, _ := o.Main()
	return string(d.Data["text/plain"])
}

// images are the PNGs that were shown.
func (o *outcome) images() (found [][]byte) {
	for _, d := range o.Displays {
		if b, ok := d.Data["image/png"]; ok {
			found = append(found, b)
		}
	}
	return found
}

// fine is the check of a cell of which nothing more is asked.
func fine(o *outcome) { o.Helper(); o.is(interpreter.StatusOK) }

// gives is the check of a cell whose last expression has a value of this text.
func gives(want string) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		o.is(interpreter.StatusOK)
		if got := o.main(); got != want {
			o.Errorf("the result is %q, want %q", abridge(got), abridge(want))
		}
	}
}

// writes is the check of a cell that prints just this.
func writes(want string) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		o.is(interpreter.StatusOK)
		if o.Stdout != want || o.Stderr != "" {
			o.Errorf("stdout = %q, stderr = %q; want %q alone", abridge(o.Stdout), abridge(o.Stderr), abridge(want))
		}
	}
}

// raises is the check of a cell that an exception ends, with these in its
// traceback.
func raises(name string, want ...string) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		o.is(interpreter.StatusError)
		if o.Error == nil || o.Error.Name != name {
			o.Errorf("error = %+v, want %s", o.Error, name)
			return
		}
		for _, w := range want {
			if !strings.Contains(o.Error.Traceback, w) {
				o.Errorf("the traceback is %q, want %q in it", o.Error.Traceback, w)
			}
		}
	}
}

// stopped is the check of a cell that its time limit ends, with its interpreter
// kept.
func stopped(o *outcome) {
	o.Helper()
	o.is(interpreter.StatusTimeout)
	if o.Restored || o.Loss != nil || o.Cause != "" {
		o.Errorf("the interpreter was not kept: cause %q", o.Cause)
	}
	if most := o.Limits.Time + time.Second; o.took > most {
		o.Errorf("it took %v, want at most %v", o.took, most)
	}
}

// restored is the check of a cell that ended its interpreter.
func restored(status interpreter.Status, cause interpreter.Cause) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		o.is(status)
		if !o.Restored || o.Loss != nil || o.Cause != cause {
			o.Errorf("restored = %v, loss = %+v, cause = %q; want restored after %q", o.Restored, o.Loss, o.Cause, cause)
		}
		if !strings.Contains(o.Notice(), "as they were before this cell") {
			o.Errorf("the notice is %q", o.Notice())
		}
	}
}

// loses is the check of a cell that costs the session its variables.
func loses(status interpreter.Status, cause interpreter.Cause, names ...string) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		o.is(status)
		if o.Restored || o.Loss == nil || o.Loss.Cause != cause || !o.Loss.FilesKept {
			o.Errorf("restored = %v, loss = %+v; want a loss by %q that keeps the files", o.Restored, o.Loss, cause)
			return
		}
		for _, n := range names {
			if !slices.Contains(o.Loss.Names, n) || !strings.Contains(o.Notice(), n) {
				o.Errorf("%q is not among the names that are gone: %q", n, o.Loss.Names)
			}
		}
	}
}

// and is all of some checks.
func and(checks ...func(*outcome)) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		for _, c := range checks {
			c(o)
		}
	}
}

func printed(want string) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		if o.Stdout != want {
			o.Errorf("stdout = %q, want %q", abridge(o.Stdout), want)
		}
	}
}

// changed is the check of the files that a cell changed.
func changed(want ...interpreter.FileChange) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		if !slices.Equal(o.Files, want) {
			o.Errorf("files = %+v, want %+v", o.Files, want)
		}
	}
}

// within is the check of how long a call took.
func within(most time.Duration) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		if o.took-o.Startup > most {
			o.Errorf("it took %v, want at most %v", o.took, most)
		}
	}
}

func repeat(n int, cells func(int) []cell) (all []cell) {
	for i := range n {
		all = append(all, cells(i)...)
	}
	return all
}

var noCopy = interpreter.Config{NoCopy: true, Grace: time.Second}

// hang is native code that does not return.
const hang = `import hashlib; hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)`

var stopping = []sessionCase{
	{
		name: "stop/await", why: "a time limit stops what is awaited, and keeps the interpreter",
		cells: []cell{
			{source: "import asyncio, os; x = 41; p = os.getpid()", check: fine},
			{source: "await asyncio.sleep(60)", limit: time.Second, check: stopped},
			{source: "x + 1, os.getpid() == p", check: gives("(42, True)")},
			{source: "await asyncio.sleep(0.01)\n'done'", check: gives("'done'")},
		},
	},
	{
		name: "stop/sleep", why: "a time limit stops a sleep, and keeps the interpreter, every time",
		cells: append([]cell{{source: "import os, time; p = os.getpid()", check: fine}}, repeat(5, func(int) []cell {
			return []cell{
				{source: "time.sleep(60)", limit: 300 * time.Millisecond, check: stopped},
				{source: "1 + 1, os.getpid() == p", check: gives("(2, True)")},
			}
		})...),
	},
	{
		name: "stop/children", why: "what a stopped cell started ends with it, what an earlier one started stays",
		cells: []cell{
			{source: "import subprocess, os; x = 1; q = subprocess.Popen(['sleep', '303'])\n" +
				"def command(p):\n try: return open(f'/proc/{p}/cmdline').read()\n except OSError: return '' # it has just ended", check: fine},
			{source: "subprocess.run(['sh', '-c', 'sleep 301 & sleep 302'])", limit: time.Second, check: stopped},
			{source: "sorted(c for p in os.listdir('/proc') if p.isdigit() for c in [command(p)] if 'sleep' in c), q.poll(), x",
				check: gives(`(['sleep\x00303\x00'], None, 1)`)},
		},
	},
	{
		name: "stop/system", why: "a command of os.system keeps the signal from Python; the cell stops all the same",
		cells: []cell{
			{source: "import os; x = 1", check: fine},
			{source: "while True: os.system('sleep 60')", limit: 500 * time.Millisecond, check: func(o *outcome) {
				o.Helper()
				o.is(interpreter.StatusTimeout)
				if o.Restored || o.took > 3*time.Second {
					o.Errorf("restored = %v after %v", o.Restored, o.took)
				}
			}},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "stop/ignored", why: "a cell that ignores the signal stops by the other one",
		cells: []cell{
			{source: "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)", limit: 300 * time.Millisecond, check: func(o *outcome) {
				o.Helper()
				o.is(interpreter.StatusTimeout)
				if o.Restored {
					o.Errorf("it was killed")
				}
			}},
			{source: "time.sleep(60)", limit: 300 * time.Millisecond, check: stopped},
		},
	},
	{
		name: "stop/first-cause", why: "the limit that passed is the cause, whatever the cell makes of the signal",
		cells: []cell{
			{source: "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: raise ValueError('cleanup')", limit: 500 * time.Millisecond, check: stopped},
			{source: "try: time.sleep(60)\nexcept KeyboardInterrupt: pass", limit: 500 * time.Millisecond, check: stopped},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "stop/native", why: "native code that cannot be interrupted is killed, and costs no variable", lack: []string{"copy"},
		config: interpreter.Config{Grace: time.Second},
		cells: []cell{
			{source: "x = [1]", check: fine},
			{source: "x.append(2)\n" + hang, limit: time.Second, check: and(restored(interpreter.StatusTimeout, interpreter.CauseTimeout), within(4*time.Second), func(o *outcome) {
				o.Helper()
				if !strings.Contains(o.Stderr, "line 2 in <module>") || strings.Contains(o.Stderr, "fnloop") || strings.Contains(o.Stderr, "importlib") {
					o.Errorf("stderr = %q, want the line in which it hung and no frame of ours", o.Stderr)
				}
			})},
			{source: "x", check: gives("[1]")},
		},
	},
	{
		name: "stop/native-without-copy", why: "what is gone is told by name, once",
		config: noCopy,
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: hang, limit: time.Second, check: loses(interpreter.StatusTimeout, interpreter.CauseTimeout, "x")},
			{source: "'x' in globals()", check: and(gives("False"), untold)},
		},
	},
	{
		name: "stop/output", why: "what was printed before the limit comes back, flushed or not",
		cells: []cell{
			{source: "print('a', flush=True); import time; time.sleep(60)", limit: 500 * time.Millisecond, check: and(stopped, printed("a\n"))},
			{source: "import sys; sys.stdout.write('b'); time.sleep(60)", limit: 500 * time.Millisecond, check: and(stopped, printed("b"))},
		},
	},
	{
		name: "stop/late", why: "a stopped cell changes nothing any more",
		cells: []cell{
			{source: "import time\nfor i in range(100):\n    open('n', 'a').write('x'); time.sleep(.1)", limit: 500 * time.Millisecond, check: stopped},
			{source: "n = len(open('n').read())", check: fine},
			{source: "len(open('n').read()) == n", wait: time.Second, check: gives("True")},
		},
	},
	{
		name: "stop/loops", why: "a loop without end stops, in code and in a repr",
		cells: []cell{
			{source: "x = 1\nwhile True: pass", limit: 300 * time.Millisecond, check: stopped},
			{source: "class R:\n    def __repr__(self):\n        while True: pass\nR()", limit: 300 * time.Millisecond, check: stopped},
			{source: "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E", limit: 300 * time.Millisecond, check: func(o *outcome) { o.Helper(); o.is(interpreter.StatusTimeout) }},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "stop/interrupt", why: "an interrupt returns at once and ends the cell; between two cells it does nothing",
		do: interrupts,
	},
	{
		name: "stop/early", why: "an interrupt that comes as the cell begins ends it as soon as any", lack: []string{"fast"},
		do: earlyInterrupts,
	},
	{
		name: "stop/context", why: "the end of the caller's context ends the cell and not the session",
		do: contexts,
	},
	{
		name: "stop/queue", why: "a cell's limit does not touch those that wait; the end of their context does",
		do: queues,
	},
	{
		name: "stop/print-without-end", why: "a cell that prints without end is stopped, and its output bounded",
		config: interpreter.Config{Limits: fnloop.Limits{Time: time.Minute}},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "while True: print('x' * 1000)", check: func(o *outcome) {
				o.Helper()
				o.is(interpreter.StatusError)
				if o.Restored || o.Error == nil || o.Error.Name != "OutputLimit" || !o.Truncated || len(o.Stdout) > fnloop.DefaultMaxOutput {
					o.Errorf("error = %+v, %d bytes", o.Error, len(o.Stdout))
				}
			}},
			{source: "x", check: gives("1")},
		},
	},
}

// untold is the check of a cell that follows one that told of a loss.
func untold(o *outcome) {
	o.Helper()
	if o.Loss != nil {
		o.Errorf("loss = %+v, want none: it was told", o.Loss)
	}
}

var deaths = []sessionCase{
	{
		name: "death/exit", why: "an end of the interpreter costs no variable", lack: []string{"copy"},
		cells: []cell{
			{source: "df_total = 5", check: fine},
			{source: "df_total = 6; print('once'); import os; os._exit(3)", check: and(restored(interpreter.StatusError, interpreter.CauseExit), printed("once\n"), func(o *outcome) {
				o.Helper()
				if o.Error == nil || !strings.Contains(o.Error.Value, "3") {
					o.Errorf("error = %+v, want the exit status", o.Error)
				}
			})},
			{source: "df_total", check: and(gives("5"), untold)},
		},
	},
	{
		name: "death/exit-without-copy", why: "what is gone is told by name, once, and the session goes on",
		config: noCopy,
		cells: append([]cell{
			{source: "df_total = 5\ndef clean(): pass", check: fine},
			{source: "import os; os._exit(3)", check: loses(interpreter.StatusLost, interpreter.CauseExit, "df_total", "clean")},
			{source: "df_total", check: and(raises("NameError"), untold)},
		}, repeat(20, func(i int) []cell { return []cell{{source: fmt.Sprint(i), check: gives(fmt.Sprint(i))}} })...),
	},
	{
		name: "death/not-twice", why: "a cell that ended the interpreter is not run again", lack: []string{"copy"},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "open('n', 'a').write('x'); import os; os.kill(os.getpid(), 9)", check: restored(interpreter.StatusError, interpreter.CauseSignal)},
			{source: "open('n').read(), x", check: gives("('x', 1)")},
		},
	},
	{
		name: "death/signals", why: "every way to die is met alike, time after time", lack: []string{"copy"},
		cells: append([]cell{{source: "import os; x = [0]", check: fine}}, repeat(3, func(int) []cell {
			var all []cell
			for _, sig := range []string{"11", "15", "6", "9"} {
				all = append(all,
					cell{source: "x[0] = 1; os.kill(os.getpid(), " + sig + ")", check: restored(interpreter.StatusError, interpreter.CauseSignal)},
					cell{source: "x", check: gives("[0]")})
			}
			return all
		})...),
	},
	{
		name: "death/again", why: "a copy takes over each time, however soon after the one before", lack: []string{"copy"},
		cells: append([]cell{{source: "import os; x = 0", check: fine}}, repeat(40, func(i int) []cell {
			return []cell{
				{source: "x += 1", check: fine},
				{source: "os._exit(1)", check: restored(interpreter.StatusError, interpreter.CauseExit)},
				{source: "x", check: gives(fmt.Sprint(i + 1))},
			}
		})...),
	},
	{
		name: "death/random", why: "what comes back is what was there, the state of random numbers too", lack: []string{"copy"},
		cells: []cell{
			{source: "import random, os; random.seed(7); s = random.getstate()", check: fine},
			{source: "os._exit(1)", check: restored(interpreter.StatusError, interpreter.CauseExit)},
			{source: "random.getstate() == s", check: gives("True")},
		},
	},
	{
		name: "death/stack", why: "an overflow of the stack in native code costs no variable", lack: []string{"copy"},
		cells: []cell{
			{source: "x = 1; import sys, ctypes", check: fine},
			{source: "ctypes.string_at(0)", check: restored(interpreter.StatusError, interpreter.CauseSignal)},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "death/memory", why: "a cell that runs out of memory is ended with the reason, and costs no variable", lack: []string{"copy", "memory", "oom"},
		config: interpreter.Config{Limits: fnloop.Limits{Time: 30 * time.Second}},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "a = []\nwhile True: a.append(bytearray(10_000_000))", check: and(restored(interpreter.StatusError, interpreter.CauseMemory), func(o *outcome) {
				o.Helper()
				if o.Error == nil || !strings.Contains(o.Error.Value, "256 MiB") {
					o.Errorf("error = %+v, want the limit", o.Error)
				}
			})},
			{source: "x, 'a' in globals()", check: gives("(1, False)")},
		},
	},
	{
		name: "death/memory-without-copy", why: "a loss for want of memory says so", lack: []string{"memory", "oom"},
		config: interpreter.Config{NoCopy: true, Limits: fnloop.Limits{Time: 30 * time.Second}},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "a = []\nwhile True: a.append(bytearray(10_000_000))", check: and(loses(interpreter.StatusLost, interpreter.CauseMemory, "x"), func(o *outcome) {
				o.Helper()
				if n := o.Notice(); !strings.Contains(n, "memory") || !strings.Contains(n, "256 MiB") {
					o.Errorf("the notice is %q, want the limit", n)
				}
			})},
			{source: "1 + 1", check: gives("2")},
		},
	},
	{
		name: "death/memory-of-a-child", why: "a child that runs out of memory is no loss, and is told of", lack: []string{"memory", "oom"},
		config: interpreter.Config{Limits: fnloop.Limits{Time: 30 * time.Second}},
		cells: []cell{
			{source: "x = 1; import subprocess, sys", check: fine},
			{source: `subprocess.run([sys.executable, "-c", "b = bytearray(10**9); b[::4096] = b'1' * len(b[::4096])"]).returncode`, check: func(o *outcome) {
				o.Helper()
				gives("-9")(o)
				if o.MemoryKills != 1 || o.Cause != "" || !strings.Contains(o.Notice(), "memory") {
					o.Errorf("%d kills, cause %q, notice %q", o.MemoryKills, o.Cause, o.Notice())
				}
			}},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "death/threads", why: "where other threads keep a copy from being made, a loss is told", lack: []string{"copy"},
		cells: []cell{
			{source: "import threading, time, os; x = 1\nt = threading.Thread(target=time.sleep, args=(60,), daemon=True); t.start()", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if o.Threads != 1 || !strings.Contains(o.Notice(), "1 thread") {
					o.Errorf("%d threads, notice %q", o.Threads, o.Notice())
				}
			}},
			{source: "os._exit(1)", check: loses(interpreter.StatusLost, interpreter.CauseExit, "x", "t")},
			{source: "y = 2", check: untold},
			{source: "os = __import__('os'); os._exit(1)", check: restored(interpreter.StatusError, interpreter.CauseExit)},
			{source: "y", check: gives("2")},
		},
	},
	{
		name: "death/between", why: "an interpreter that ends between two cells costs no variable either", lack: []string{"copy"},
		cells: []cell{
			{source: "x = 1; import os, subprocess; p = os.getpid()\nq = subprocess.Popen(['sh', '-c', f'sleep .3; kill -9 {p}'], start_new_session=True)", check: fine},
			{source: "x, os.getpid() == p", wait: time.Second, check: and(gives("(1, False)"), untold)},
		},
	},
	{
		name: "death/between-without-copy", why: "an interpreter that ended between two cells is told of by the next", config: noCopy,
		cells: []cell{
			{source: "x = 1; import os, subprocess\nq = subprocess.Popen(['sh', '-c', f'sleep .3; kill -9 {os.getpid()}'], start_new_session=True)", check: fine},
			{source: "'x' in globals()", wait: time.Second, check: and(gives("False"), loses(interpreter.StatusOK, interpreter.CauseSignal, "x"))},
			{source: "1", check: untold},
		},
	},
	{
		name: "death/killed-copy", why: "a copy that code has killed is a loss, and is told", lack: []string{"copy"},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "import os\nfor p in os.listdir('/proc'):\n    if p.isdigit() and int(p) not in (1, os.getpid()): os.kill(int(p), 9)\nos._exit(1)", check: loses(interpreter.StatusLost, interpreter.CauseExit, "x")},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "death/all", why: "a signal to everybody does not reach the copy", lack: []string{"copy"},
		cells: []cell{
			{source: "x = 1; import os, signal", check: fine},
			{source: "os.kill(-1, signal.SIGTERM); os.kill(os.getpid(), 15)", check: restored(interpreter.StatusError, interpreter.CauseSignal)},
			{source: "x", check: gives("1")},
			{source: "x = 2; os.kill(-1, signal.SIGINT)", check: func(*outcome) {}},
			{source: "x", check: gives("2")},
		},
	},
	{
		name: "death/group", why: "a kill of the interpreter's process group does not reach the copy, however early it comes", lack: []string{"copy"},
		cells: append([]cell{{source: "import os; x = 0", check: fine}}, repeat(20, func(i int) []cell {
			return []cell{
				{source: "x += 1", check: fine},
				{source: "os.kill(0, 9)", check: restored(interpreter.StatusError, interpreter.CauseSignal)},
				{source: "x, os.getpgid(0) == os.getpid()", check: gives(fmt.Sprintf("(%d, True)", i+1))},
			}
		})...),
	},
	{
		name: "death/error", why: "an exception leaves what the cell did until then",
		cells: []cell{
			{source: "a = []", check: fine},
			{source: "a.append(1); 1/0", check: raises("ZeroDivisionError")},
			{source: "print('once'); a[5]", check: and(raises("IndexError"), printed("once\n"))},
			{source: "a", check: gives("[1]")},
		},
	},
	{
		name: "death/restart", why: "a restart keeps the files and tells of the variables",
		do: func(t *testing.T, n *notebook) {
			n.run(t, "x = 1; open('f', 'w').write('a')")
			if err := n.Restart(t.Context()); err != nil {
				t.Fatalf("Restart() error = %v", err)
			}
			loses(interpreter.StatusOK, interpreter.CauseRestart, "x")(n.run(t, "'x' in globals(), open('f').read()"))
			o := n.run(t, "'x' in globals(), open('f').read()")
			and(gives("(False, 'a')"), untold)(o)
		},
	},
	{
		name: "death/restart-at-once", why: "a restart soon after an end costs no cell that follows", config: noCopy,
		do: func(t *testing.T, n *notebook) {
			for range 20 {
				n.run(t, "import os; os._exit(3)")
				if err := n.Restart(t.Context()); err != nil {
					t.Fatalf("Restart() error = %v", err)
				}
				gives("2")(n.run(t, "1 + 1"))
			}
		},
	},
}
