package runnertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

func interrupts(t *testing.T, n *notebook) {
	if ran, err := n.Interrupt(t.Context()); ran || err != nil {
		t.Errorf("Interrupt() between cells = %v, %v", ran, err)
	}
	n.run(t, "x = 1")
	done := make(chan *outcome)
	out := new(recorder)
	go func() {
		e, err := n.Run(t.Context(), interpreter.Cell{Source: "print('on', flush=True)\nwhile True: pass", Stdout: out})
		if err != nil {
			t.Errorf("Run() error = %v", err)
		}
		done <- &outcome{T: t, Execution: e}
	}()
	for deadline := time.Now().Add(3 * time.Second); len(out.all()) == 0 && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	begin := time.Now()
	ran, err := n.Interrupt(t.Context())
	if took := time.Since(begin); !ran || err != nil || took > 200*time.Millisecond {
		t.Errorf("Interrupt() = %v, %v after %v", ran, err, took)
	}
	o := <-done
	o.is(interpreter.StatusInterrupted)
	if o.Restored || o.Loss != nil {
		t.Errorf("an interrupt cost the interpreter")
	}
	gives("1")(n.run(t, "x"))
}

func earlyInterrupts(t *testing.T, n *notebook) {
	n.run(t, "import time; x = 1")
	var late []time.Duration
	for i := range 40 {
		done := make(chan *outcome, 1)
		go func() {
			e, err := n.Run(t.Context(), interpreter.Cell{Source: "time.sleep(60)", Limits: fnloop.Limits{Time: 10 * time.Second}})
			if err != nil {
				t.Errorf("Run() error = %v", err)
			}
			done <- &outcome{T: t, Execution: e}
		}()
		time.Sleep(time.Duration(i) * 50 * time.Microsecond)
		begin := time.Now()
		for {
			ran, err := n.Interrupt(t.Context())
			if err != nil {
				t.Fatalf("Interrupt() error = %v", err)
			}
			if ran {
				break
			}
			time.Sleep(50 * time.Microsecond) // it waits to begin
		}
		o := <-done
		o.is(interpreter.StatusInterrupted)
		if o.Restored || o.Loss != nil {
			t.Errorf("an interrupt cost the interpreter")
		}
		if took := time.Since(begin); took > 400*time.Millisecond {
			late = append(late, took)
		}
	}
	if len(late) > 3 { // a few are the machine's
		t.Errorf("%d of 40 took long: %v", len(late), late)
	}
	gives("1")(n.run(t, "x"))
}

func contexts(t *testing.T, n *notebook) {
	n.run(t, "x = 1")
	for _, source := range []string{"while True: pass", "import time; time.sleep(60)"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		e, err := n.Run(ctx, interpreter.Cell{Source: "print('begun', flush=True)\n" + source})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || e.Status != interpreter.StatusInterrupted || e.Stdout != "begun\n" {
			t.Errorf("Run() = %+v, %v", e, err)
		}
		gives("1")(n.run(t, "x"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := n.Run(ctx, interpreter.Cell{Source: "x = 2"}); !errors.Is(err, context.Canceled) || e.Status != "" {
		t.Errorf("Run() = %+v, %v; want a cell that was not started", e, err)
	}
	gives("1")(n.run(t, "x"))
}

func queues(t *testing.T, n *notebook) {
	n.run(t, "import time; log = []")
	shared, cancel := context.WithCancel(t.Context())
	defer cancel()
	var work sync.WaitGroup
	var mu sync.Mutex
	var got []string
	begin := func(ctx context.Context, source string, limit time.Duration) {
		work.Go(func() {
			e, err := n.Run(ctx, interpreter.Cell{Source: source, Limits: fnloop.Limits{Time: limit}})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got = append(got, string(e.Status))
			case strings.Contains(err.Error(), "not started"):
				got = append(got, "not started")
			default:
				got = append(got, err.Error())
			}
		})
		time.Sleep(50 * time.Millisecond) // the order of the calls
	}
	begin(t.Context(), "time.sleep(60)", 600*time.Millisecond)
	begin(t.Context(), "log.append(1)", 0)
	begin(shared, "log.append('never')", 0)
	begin(t.Context(), "log.append(2)", 0)
	cancel()
	work.Wait()
	if want := []string{"not started", "timeout", "ok", "ok"}; !slices.Equal(got, want) {
		t.Errorf("the cells ended as %q, want %q", got, want)
	}
	gives("[1, 2]")(n.run(t, "log"))
}

var results = []sessionCase{
	{
		name: "result/scope", why: "functions and comprehensions see what other cells defined",
		cells: []cell{
			{source: "import math\ndef f(r): return math.pi * r", check: fine},
			{source: "[round(f(k), 2) for k in range(2)]", check: gives("[0.0, 3.14]")},
			{source: "def fact(n): return 1 if n < 2 else n * fact(n - 1)\nfact(5)", check: gives("120")},
		},
	},
	{
		name: "result/main", why: "the usual guard is true",
		cells: []cell{{source: "if __name__ == \"__main__\":\n    print(\"ran\")", check: writes("ran\n")}},
	},
	{
		name: "result/lines", why: "a source is run to the letter",
		cells: []cell{{source: "s = \"\"\"a\n\n\nb\"\"\"\nlen(s)", check: gives("5")}},
	},
	{
		name: "result/syntax", why: "a syntax error names its line, and nothing runs",
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "x = 2\ndef (", check: raises("SyntaxError", "line 2", "^")},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "result/repr", why: "the text of a value is its repr",
		cells: []cell{
			{source: "\"1\"", check: gives("'1'")},
			{source: "1", check: gives("1")},
			{source: "None", check: gives("")},
			{source: "'é😀\\n'", check: gives("'é😀\\n'")},
		},
	},
	{
		name: "result/traceback", why: "a traceback has the cell's lines and no frame of ours",
		cells: []cell{
			{source: "1/0", check: and(raises("ZeroDivisionError", "1/0"), func(o *outcome) {
				o.Helper()
				if n := strings.Count(o.Error.Traceback, "File "); n != 1 {
					o.Errorf("%d frames in %q", n, o.Error.Traceback)
				}
			})},
			{source: "def g():\n    raise ValueError('of cell 2')", check: fine},
			{source: "# another\n\n\ng()", check: raises("ValueError", "raise ValueError('of cell 2')", "g()", "line 4", "line 2")},
			{source: "try:\n    1/0\nexcept Exception as e:\n    raise KeyError('k') from e", check: raises("KeyError", "direct cause", "1/0")},
			{source: "import json\njson.loads('{')", check: raises("json.decoder.JSONDecodeError", "decoder.py")},
			{source: "def deep(n): return deep(n + 1)\ndeep(0)", check: and(raises("RecursionError"), func(o *outcome) {
				o.Helper()
				if len(o.Error.Traceback) > 9000 {
					o.Errorf("the traceback has %d bytes", len(o.Error.Traceback))
				}
			})},
			{source: "class E(Exception):\n    def __str__(self): 1/0\nraise E", check: raises("E")},
			{source: "import inspect; inspect.getsource(g)", check: gives(`"def g():\n    raise ValueError('of cell 2')\n"`)},
		},
	},
	{
		name: "result/large-error", why: "an error of any size is told, cut, and costs nothing",
		cells: []cell{
			{source: "x = 1; raise ValueError('😀' * 1_000_000)", check: and(raises("ValueError", "raise ValueError"), func(o *outcome) {
				o.Helper()
				if o.Cause != "" || len(o.Error.Value) > 20_000 || len(o.Error.Traceback) > 40_000 {
					o.Errorf("cause %q, %d and %d bytes", o.Cause, len(o.Error.Value), len(o.Error.Traceback))
				}
			})},
			{source: "raise type('😀' * 1_000_000, (Exception,), {})('\\ud800')", check: func(o *outcome) {
				o.Helper()
				if o.Status != interpreter.StatusError || o.Cause != "" || o.Error.Value != `\ud800` {
					o.Errorf("status %q, cause %q, value %.100q", o.Status, o.Cause, o.Error.Value)
				}
			}},
			{source: "globals()['n' * 100_000] = 1; globals()['a\\nb'] = 2; x", check: gives("1")},
		},
	},
	{
		name: "stop/displays", why: "a stop in the middle of a display leaves the interpreter whole",
		cells: append([]cell{{source: "class H:\n    def _repr_html_(self): return 'x' * 200_000\nx = 1", check: fine}}, repeat(5, func(int) []cell {
			return []cell{
				{source: "while True: display(H())", limit: 200 * time.Millisecond, check: stopped},
				{source: "x", check: gives("1")},
			}
		})...),
	},
	{
		name: "result/semicolon", why: "a semicolon keeps the value to itself, and only one that ends the code",
		cells: []cell{
			{source: "5;", check: gives("")},
			{source: "\"a;b\"", check: gives("'a;b'")},
			{source: "5 # x;", check: gives("5")},
			{source: "(5)  ; # x", check: gives("")},
			{source: "x = 3; x", check: gives("3")},
			{source: "'''\n;'''", check: gives(`'\n;'`)},
			{source: "[1,\n 2]", check: gives("[1, 2]")},
		},
	},
	{
		name: "result/large", why: "large values are neither kept nor shown whole", lack: []string{"memory"},
		cells: append(repeat(20, func(int) []cell {
			return []cell{{source: "[0] * 5_000_000", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if n := len(o.main()); n == 0 || n > 20_000 {
					o.Errorf("the result has %d bytes", n)
				}
			}}}
		}), []cell{
			{source: "bytearray(60_000_000)", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if n := len(o.main()); n == 0 || n > 20_000 {
					o.Errorf("the result has %d bytes", n)
				}
			}},
			{source: "{'a': ['b' * 50_000_000]}", check: fine},
			{source: "list(range(5))", check: gives("[0, 1, 2, 3, 4]")},
		}...),
	},
	{
		name: "result/shadowed", why: "a cell can rebind what it likes",
		cells: []cell{
			{source: "print = open = list = len = None; import json; json.dumps = None", check: fine},
			{source: "1 + 1", check: gives("2")},
			{source: "del print", check: fine},
			{source: "print(\"x\")", check: writes("x\n")},
			{source: "import os, sys, time; os.write = os.read = os.getpid = time.time = None; sys.modules.clear()", check: fine},
			{source: "1 + 1", check: gives("2")},
			{source: "1/0", check: raises("ZeroDivisionError")},
			{source: "import builtins\nfor n in ('len', 'isinstance', 'repr', 'str', 'type', 'list', 'hasattr', 'getattr'): setattr(builtins, n, None)", check: fine},
			{source: "1 + 1", check: gives("2")},
		},
	},
	{
		name: "result/deleted", why: "what a cell deletes of the interpreter's own is there again", lack: []string{"fast"},
		cells: []cell{
			{source: "import builtins\nfor n in list(vars(builtins)): builtins.__dict__.pop(n)", check: anyEnd},
			{source: "import json; display(json.dumps([len('abc')])); 1 + 1", check: gives("2")},
			{source: "1/0", check: raises("ZeroDivisionError", "1/0")},
			{source: "import sys\nfor n in list(vars(sys)): delattr(sys, n)", check: within(2 * time.Second)},
			{source: "import csv, sys; print(len(sys.argv)); sys.path[0]", check: and(gives("'/tmp/workspace'"), printed("1\n"))},
			{source: "sys.__dict__.clear(); sys.__stdout__ = 5", check: within(2 * time.Second)},
			{source: "print(1)", check: writes("1\n")},
			{source: "globals().clear()", check: fine},
			{source: "1 + 1", check: gives("2")},
			{source: "import os; os.chdir('/'); os.rmdir('/tmp/workspace')", check: anyEnd},
			{source: "1 + 1", check: gives("2")},
		},
	},
	{
		name: "result/deep-error", why: "an error out of very many frames is told as soon as any", lack: []string{"fast"},
		config: interpreter.Config{Limits: fnloop.Limits{Time: 60 * time.Second, Memory: 1 << 30}},
		cells: []cell{
			{source: "import sys, time; sys.setrecursionlimit(200_000)\ndef f(n): return f(n + 1)\nt = time.monotonic()\ntry: f(0)\nexcept RecursionError: took = time.monotonic() - t", check: anyEnd},
			{source: "sys.setrecursionlimit(20_000) if 'took' in globals() else sys.setrecursionlimit(1000)\nf(0)", check: raises("RecursionError", "return f(n + 1)")},
		},
	},
	{
		name: "result/underscore", why: "the last value is at hand, unless the name is taken",
		cells: []cell{
			{source: "41", check: fine},
			{source: "_ + 1", check: gives("42")},
			{source: "_ = 'mine'", check: fine},
			{source: "7", check: fine},
			{source: "_", check: gives("'mine'")},
		},
	},
	{
		name: "result/future", why: "a statement about the future holds for the cells that follow",
		cells: []cell{
			{source: "from __future__ import annotations", check: fine},
			{source: "def f(x: Nowhere): pass\nf.__annotations__", check: gives("{'x': 'Nowhere'}")},
		},
	},
	{
		name: "result/classes", why: "the namespace is a module, as pickle and dataclasses expect",
		cells: []cell{
			{source: "import pickle\nclass P: pass\npickle.loads(pickle.dumps(P())).__class__ is P", check: gives("True")},
			{source: "import dataclasses, typing\n@dataclasses.dataclass\nclass D:\n    a: 'int'\ntyping.get_type_hints(D)", check: gives("{'a': <class 'int'>}")},
			{source: "import sys; sys.modules['__main__'].__dict__ is globals()", check: gives("True")},
		},
	},
	{
		name: "result/warnings", why: "a warning comes each time",
		cells: []cell{
			{source: "import warnings; warnings.warn(\"w\")", check: warns},
			{source: "import warnings; warnings.warn(\"w\")", check: warns},
		},
	},
	{
		name: "result/magic", why: "what notebooks understand beside Python is understood, and Python first",
		config: interpreter.Config{Limits: fnloop.Limits{Time: time.Minute}}, // pip takes its time
		cells: []cell{
			{source: "%matplotlib inline\nx = 1", check: fine},
			{source: "!echo hi", check: writes("hi\n")},
			{source: "a = 7 %2\na", check: gives("1")},
			{source: "x = '''\n!echo no\n'''\n!echo yes\nx", check: and(printed("yes\n"), gives(`'\n!echo no\n'`))},
			{source: "if x:\n    !echo deep", check: writes("deep\n")},
			{source: "    y = 5\n    y", check: gives("5")},
			{source: "```python\ny + 1\n```", check: gives("6")},
			{source: "y\u00a0= 8\ny", check: gives("8")},
			{source: "%nonsense", check: raises("SyntaxError")},
			{source: "%pip --version", check: fine},
			{source: "v = [1, 2]\n!echo {v} {v[1]} $v '{a,b}' {nobody} $0{v[9]}", check: printed("[1, 2] 2 [1, 2] {a,b} {nobody} /bin/sh{v[9]}\n")},
			{source: "if v:\n    lines = !printf 'one\\ntwo\\n'\nlines", check: gives("['one', 'two']")},
			{source: "%%bash\nfor i in 1 2; do echo $i; done", check: writes("1\n2\n")},
			{source: "%%writefile made.py\ndef f():\n    return 42", check: fine},
			{source: "%%writefile -a made.py\nz = f()", check: fine},
			{source: "from made import z\n%run made.py\nz, f.__module__", check: gives("(42, '__main__')")},
			{source: "%env NAME = value\nimport os; os.environ['NAME']", check: gives("'value'")},
			{source: "len?", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if !strings.Contains(o.Stdout, "len") {
					o.Errorf("stdout = %q, want help", o.Stdout)
				}
			}},
			{source: "pip install --help", check: func(o *outcome) {
				o.Helper()
				if o.Status == interpreter.StatusError {
					o.Errorf("the command is a %s", o.Error.Name)
				}
			}},
		},
	},
	{
		name: "result/module", why: "a module that a cell wrote can be imported",
		cells: []cell{
			{source: "import os; os.listdir('.')", check: gives("[]")},
			{source: "try: import mine\nexcept ImportError: open('mine.py', 'w').write('z = 3')", check: fine},
			{source: "import mine; mine.z", check: gives("3")},
		},
	},
	{
		name: "result/displays", why: "a value is shown in the forms that it has, and only those",
		cells: []cell{
			{source: "class H:\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): raise ValueError\n    def __repr__(self): return 'H'\nH()", check: func(o *outcome) {
				o.Helper()
				d, _ := o.Main()
				if string(d.Data["text/html"]) != "<b>" || string(d.Data["text/plain"]) != "H" || len(d.Data) != 2 {
					o.Errorf("the forms are %q", d.Data)
				}
			}},
			{source: "print('a'); display(1, 'b'); print('c'); 2", check: func(o *outcome) {
				o.Helper()
				if o.Stdout != "a\nc\n" || len(o.Displays) != 3 || o.main() != "2" || string(o.Displays[1].Data["text/plain"]) != "'b'" || o.Displays[1].Main {
					o.Errorf("stdout %q, displays %v", o.Stdout, o.Displays)
				}
			}},
			{source: "from IPython.display import display, HTML, Image, clear_output\ndisplay(HTML('<i>'))", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if len(o.Displays) != 1 || string(o.Displays[0].Data["text/html"]) != "<i>" {
					o.Errorf("displays %v", o.Displays)
				}
			}},
			{source: "from unittest.mock import MagicMock; MagicMock(name='m')", check: fine},
			{source: "class B:\n    def _repr_png_(self): return b'no picture'\nB()", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if len(o.images()) != 0 {
					o.Errorf("what is no picture was shown as one")
				}
			}},
		},
	},
	{
		name: "result/raising-repr", why: "a value whose text fails is an error, and what the cell did stands",
		cells: []cell{
			{source: "class R:\n    def __repr__(self): 1/0\nx = 1\nR()", check: raises("ZeroDivisionError", "__repr__")},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "result/names", why: "the names that there are now are told",
		cells: []cell{{source: "import os\nx = 1\n_y = 2\ndef f(): pass\nclass C: pass", check: func(o *outcome) {
			o.Helper()
			if want := []string{"x", "f", "C"}; !slices.Equal(o.Names, want) {
				o.Errorf("names = %q, want %q", o.Names, want)
			}
		}}},
	},
}

func warns(o *outcome) {
	o.Helper()
	fine(o)
	if strings.Count(o.Stderr, "UserWarning: w") != 1 {
		o.Errorf("stderr = %q, want the warning", o.Stderr)
	}
}

var printing = []sessionCase{
	{
		name: "print/frames", why: "what a cell prints is never taken for anything else",
		cells: []cell{
			{source: "import os; n = os.write(1, b'{\"status\":\"ok\"}\\n')", check: writes("{\"status\":\"ok\"}\n")},
			{source: "import subprocess; r = subprocess.run([\"echo\", '{\"id\":1}'])", check: writes("{\"id\":1}\n")},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "print/each", why: "each cell has its own output, whole", lack: []string{"fast"},
		do: func(t *testing.T, n *notebook) {
			for i := range 1000 {
				if o := n.run(t, fmt.Sprintf("print(%d)", i)); o.Stdout != fmt.Sprintf("%d\n", i) || o.Background != "" {
					t.Fatalf("cell %d printed %q", i, o.Stdout)
				}
			}
		},
	},
	{
		name: "print/nothing", why: "a cell that shows nothing is as fast as any, and the text says that it showed nothing", lack: []string{"fast"},
		do: func(t *testing.T, n *notebook) {
			for i := range 200 {
				o := n.run(t, "x = 1")
				fine(o)
				if o.Text() == "" || !strings.Contains(o.Text(), "showed nothing") {
					t.Fatalf("cell %d: the text is %q", i, o.Text())
				}
			}
		},
	},
	{
		name: "print/child", why: "a child that holds the output does not hold up the cell; what it prints later is background",
		cells: []cell{
			{source: "import subprocess; p = subprocess.Popen([\"sh\", \"-c\", \"sleep 1; echo late\"])", check: and(fine, within(500*time.Millisecond))},
			{source: "import time; time.sleep(2)", check: func(o *outcome) {
				o.Helper()
				if strings.Count(o.Stdout+o.Background, "late") != 1 {
					o.Errorf("stdout %q, background %q", o.Stdout, o.Background)
				}
			}},
		},
	},
	{
		name: "print/background", why: "what is printed between two cells is neither's",
		cells: []cell{
			{source: "import threading, time\nthreading.Timer(.3, print, ['t1']).start()", check: fine},
			{source: "\"x\"", wait: time.Second, check: func(o *outcome) {
				o.Helper()
				gives("'x'")(o)
				if o.Stdout != "" || o.Background != "t1\n" {
					o.Errorf("stdout %q, background %q", o.Stdout, o.Background)
				}
			}},
			{source: "threading.Timer(.1, print, ['t2']).start(); time.sleep(.5)", check: printed("t2\n")},
		},
	},
	{
		name: "print/closed", why: "a stream that a cell closed or replaced is there again",
		cells: []cell{
			{source: "import sys; sys.stdout.close()", check: fine},
			{source: "print(\"back\")", check: writes("back\n")},
			{source: "import io; sys.stdout = io.StringIO(); print('lost')", check: fine},
			{source: "print(\"b\")", check: writes("b\n")},
			{source: "import os; os.close(1); os.close(2); os.close(0)", check: fine},
			{source: "print(\"c\")", check: writes("c\n")},
			{source: "b = sys.stdout.detach()", check: fine},
			{source: "print(\"d\")", check: writes("d\n")},
		},
	},
	{
		name: "print/live", why: "output and displays come while the cell runs", lack: []string{"live"},
		do: func(t *testing.T, n *notebook) {
			out := new(recorder)
			shown := make(chan time.Time, 1)
			e, err := n.Run(t.Context(), interpreter.Cell{
				Source: "import time; print('now', flush=True); display(7); time.sleep(1); print('later')",
				Stdout: out, Display: func(interpreter.Display) { shown <- time.Now() },
			})
			end := time.Now()
			if err != nil || e.Stdout != "now\nlater\n" || strings.Join(out.all(), "") != e.Stdout {
				t.Fatalf("Run() = %+v, %v; live %q", e, err, out.all())
			}
			if early := end.Sub(out.first); early < 700*time.Millisecond {
				t.Errorf("the output came only %v before the end", early)
			}
			if early := end.Sub(<-shown); early < 700*time.Millisecond {
				t.Errorf("the display came only %v before the end", early)
			}
		},
	},
	{
		name: "print/much", why: "much output is cut, counted, and fast", lack: []string{"fast"},
		cells: []cell{
			{source: "print('x' * 1_000_000)", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if !o.Truncated || len(o.Stdout) > fnloop.DefaultMaxOutput || !strings.Contains(o.Stdout, "bytes left out") {
					o.Errorf("truncated %v, %d bytes", o.Truncated, len(o.Stdout))
				}
			}},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "print/endless-background", why: "whoever prints without end between two cells holds up nobody",
		cells: []cell{
			{source: "import subprocess; p = subprocess.Popen(['yes'])", check: fine},
			{source: "1", wait: time.Second, check: gives("1")},
			{source: "p.kill(); p.wait()", check: fine},
			{source: "2", check: gives("2")},
		},
	},
}

var plot = []string{"matplotlib"}

// figures is the check of a cell that shows so many pictures, none of them
// blank or too large.
func figures(want int) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		fine(o)
		found := o.images()
		if len(found) != want {
			o.Errorf("%d pictures, want %d; stderr %q", len(found), want, o.Stderr)
		}
		for _, b := range found {
			img, err := png.Decode(bytes.NewReader(b))
			if err != nil {
				o.Errorf("a picture: %v", err)
				continue
			}
			size := img.Bounds()
			if size.Dx() > 4096 || size.Dy() > 4096 || len(b) > 1<<20 {
				o.Errorf("a picture of %v in %d bytes", size, len(b))
			}
			blank := true
			first := img.At(0, 0)
			for y := size.Min.Y; y < size.Max.Y && blank; y++ {
				for x := size.Min.X; x < size.Max.X && blank; x++ {
					blank = img.At(x, y) == first
				}
			}
			if blank {
				o.Errorf("a picture is blank")
			}
		}
	}
}

// pictures is the check of a cell that shows so many pictures, blank or not.
func pictures(want int) func(*outcome) {
	return func(o *outcome) {
		o.Helper()
		fine(o)
		if got := len(o.images()); got != want {
			o.Errorf("%d pictures, want %d", got, want)
		}
	}
}

// slow is for the first import of a large library.
var slow = interpreter.Config{Limits: fnloop.Limits{Time: 2 * time.Minute, Memory: 512 << 20}}

var showing = []sessionCase{
	{
		name: "figure/returned", why: "a figure that is left open and returned is shown once", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt\ndef make():\n    fig, ax = plt.subplots(); ax.plot([1, 2]); return fig\nmake()", check: figures(1)},
			{source: "1", check: figures(0)},
		},
	},
	{
		name: "figure/saved-and-shown", why: "a figure that is saved and shown is shown once, and neither is blank", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig('a.png'); plt.show()", check: and(figures(1), func(o *outcome) {
				o.Helper()
				if len(o.Files) != 1 || o.Files[0].Name != "a.png" || o.Files[0].Change != interpreter.FileNew || o.Files[0].Size < 5000 {
					o.Errorf("files = %+v", o.Files)
				}
			})},
			{source: "plt.plot([1, 2]); plt.show(); plt.savefig('b.png')", check: and(figures(1), func(o *outcome) {
				o.Helper()
				if len(o.Files) != 1 || o.Files[0].Size < 5000 {
					o.Errorf("files = %+v", o.Files)
				}
			})},
		},
	},
	{
		name: "figure/shown", why: "pictures come in the order in which they were shown", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt\nplt.plot([1,2]); plt.show(); 7", check: func(o *outcome) {
				o.Helper()
				figures(1)(o)
				gives("7")(o)
				if len(o.Displays) != 2 || !o.Displays[1].Main || o.Stderr != "" {
					o.Errorf("displays %d, stderr %q", len(o.Displays), o.Stderr)
				}
			}},
			{source: "plt.plot([1]); plt.show(); plt.plot([2]); plt.show()", check: figures(2)},
			{source: "f, a = plt.subplots(); a.plot([1]); f.show(); a", check: figures(1)},
			{source: "f, a = plt.subplots(); a.plot([1]); display(f)", check: figures(1)},
			{source: "f, a = plt.subplots(); a.plot([1]); plt.close(f); f", check: figures(1)},
			{source: "plt.figure()", check: figures(0)},
			{source: "plt.plot([3]); 1/0", check: func(o *outcome) {
				o.Helper()
				if o.Status != interpreter.StatusError || len(o.images()) != 1 {
					o.Errorf("status %q with %d pictures, want what was drawn before the error", o.Status, len(o.images()))
				}
			}},
		},
	},
	{
		name: "figure/backend", why: "a figure is shown whatever the code chose to draw with", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib; matplotlib.use(\"Agg\"); import matplotlib.pyplot as plt; plt.plot([1,2])", check: figures(1)},
			{source: "matplotlib.use(\"Agg\"); plt.plot([1,2]); plt.show()", check: figures(1)},
			{source: "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import matplotlib.pyplot as p; p.plot([1]); p.show()'], check=True).returncode", check: gives("0")},
		},
	},
	{
		name: "figure/left", why: "a figure that is left open is shown with its cell, and with no other", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt; l = plt.plot([1,2])", check: figures(1)},
			{source: "1", check: figures(0)},
		},
	},
	{
		name: "figure/glyphs", why: "what a font lacks is said in a few lines", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt; l = plt.plot([1]); t = plt.title('日本語文字化け図表示')", check: and(figures(1), func(o *outcome) {
				o.Helper()
				if strings.Count(o.Stderr, "\n") > 8 {
					o.Errorf("stderr = %q", o.Stderr)
				}
			})},
		},
	},
	{
		name: "figure/huge", why: "the size of a figure is bounded before it is drawn", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt; plt.figure(figsize=(400, 400)); plt.plot([1]); t = plt.text(1e6, 1e6, \"far\")", check: func(o *outcome) {
				o.Helper()
				figures(len(o.images()))(o)
				if o.Cause != "" {
					o.Errorf("it cost the interpreter: %q", o.Cause)
				}
			}},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "figure/many", why: "too many figures are counted and closed", need: plot, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt, warnings; warnings.simplefilter('ignore')\nfor i in range(30): plt.figure(figsize=(2, 2)); l = plt.plot([i])", check: and(figures(8), func(o *outcome) {
				o.Helper()
				if o.Omitted != 22 || !strings.Contains(o.Notice(), "22 more") {
					o.Errorf("omitted %d, notice %q", o.Omitted, o.Notice())
				}
			})},
			{source: "plt.get_fignums()", check: gives("[]")},
		},
	},
	{
		name: "figure/restored", why: "figures are shown by an interpreter that took over as by any", need: plot, lack: []string{"copy"}, config: slow,
		cells: []cell{
			{source: "import matplotlib.pyplot as plt, os", check: fine},
			{source: "os._exit(1)", check: restored(interpreter.StatusError, interpreter.CauseExit)},
			{source: "l = plt.plot([1, 2])", check: figures(1)},
		},
	},
	{
		name: "table/wide", why: "a table has all its columns and says its size", need: []string{"pandas"}, config: slow,
		cells: []cell{
			{source: "import pandas as pd; df = pd.DataFrame({f'name{i}': range(5) for i in range(30)}); df", check: func(o *outcome) {
				o.Helper()
				fine(o)
				for i := range 30 {
					if !strings.Contains(o.main(), fmt.Sprintf("name%d ", i)) && !strings.Contains(o.main(), fmt.Sprintf("name%d\n", i)) {
						o.Errorf("no name%d in %q", i, o.main())
					}
				}
				if strings.Contains(o.main(), "...") || !strings.Contains(o.main(), "5 rows × 30 columns") {
					o.Errorf("the text is %q", o.main())
				}
				d, _ := o.Main()
				if len(d.Data["text/html"]) == 0 || len(d.Data["application/vnd.dataresource+json"]) == 0 {
					o.Errorf("the forms are %d", len(d.Data))
				}
			}},
			{source: "pd.DataFrame({c: range(500) for c in 'abc'})", check: func(o *outcome) {
				o.Helper()
				for _, want := range []string{"\n0 ", "\n499 ", "500 rows × 3 columns"} {
					if !strings.Contains(o.main(), want) {
						o.Errorf("no %q in %q", want, o.main())
					}
				}
			}},
			{source: "before = pd.get_option('display.max_rows'); display(df)\npd.get_option('display.max_rows') == before", check: gives("True")},
			{source: "pd.Series([1, 2], name='s')", check: func(o *outcome) {
				o.Helper()
				if !strings.Contains(o.main(), "2 rows × 1 column\n") {
					o.Errorf("the text is %q", o.main())
				}
			}},
			{source: "pd.DataFrame()", check: fine},
			{source: "pd.DataFrame([[1, '<b>']], columns=['a', 'a'])", check: func(o *outcome) {
				o.Helper()
				d, _ := o.Main()
				if strings.Contains(string(d.Data["text/html"]), "<b>") {
					o.Errorf("the table has a tag of the data's: %q", d.Data["text/html"])
				}
			}},
		},
	},
	{
		name: "table/plot", why: "what a table draws is shown once", need: []string{"pandas", "matplotlib"}, config: slow,
		cells: []cell{{source: "import pandas as pd; pd.DataFrame({'a': [1, 2]}).plot()", check: figures(1)}},
	},
	{
		name: "picture", why: "a picture is shown, in a size that can be looked at", need: []string{"PIL"}, config: slow,
		cells: []cell{
			{source: "from PIL import Image, ImageDraw\ni = Image.new('RGB', (64, 32)); ImageDraw.Draw(i).line((0, 0, 9, 9), fill='red'); i", check: figures(1)},
			{source: "i.resize((9000, 4500))", check: figures(1)},
			{source: "modes = '1 L P RGB RGBA CMYK YCbCr LAB HSV I F LA RGBX RGBa La I;16'.split()\nfor m in modes[:8]: display(Image.new(m, (8, 8)))", check: pictures(8)},
			{source: "for m in modes[8:]: display(Image.new(m, (8, 8)))", check: pictures(8)},
		},
	},
}

var processes = []sessionCase{
	{
		name: "process/input", why: "nobody answers, and the code is told so at once",
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "name = input('name? ')", check: and(raises("EOFError", "no user"), within(3*time.Second))},
			{source: "breakpoint()", check: raises("EOFError")},
			{source: "import sys; sys.stdin.read()", check: gives("''")},
			{source: "import getpass; getpass.getpass()", check: and(raises("EOFError"), within(3*time.Second))},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "process/exit", why: "exit ends the cell and not the session",
		cells: []cell{
			{source: "x = 1; exit()\nprint('no')", check: writes("")},
			{source: "x", check: gives("1")},
			{source: "import sys; sys.exit(\"bad\")", check: raises("SystemExit", "bad")},
			{source: "sys.exit(0)", check: fine},
			{source: "quit(3)", check: raises("SystemExit", "3")},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "process/pool", why: "functions of a cell can be given to other processes",
		cells: []cell{
			{source: "def f(n): return n * n", check: fine},
			{source: "from multiprocessing import Pool\nwith Pool(2) as p: r = p.map(f, range(4))\nr", check: gives("[0, 1, 4, 9]")},
			{source: "from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor(2) as e: r = list(e.map(f, range(3)))\nr", check: gives("[0, 1, 4]")},
		},
	},
	{
		name: "process/fork", why: "a forked child that runs on to the end of the cell is not heard",
		cells: []cell{
			{source: "import os; pid = os.fork()\n\"parent\" if pid else \"child\"", check: func(o *outcome) {
				o.Helper()
				gives("'parent'")(o)
				if len(o.Displays) != 1 {
					o.Errorf("%d displays", len(o.Displays))
				}
			}},
			{source: "os.waitpid(pid, 0)[1]", check: gives("0")},
			{source: "pid = os.fork()\nif not pid: 1/0", check: fine},
			{source: "os.waitpid(pid, 0)[1] >> 8", check: gives("1")},
			{source: "try: os.wait()\nexcept ChildProcessError as e: print('none')", check: writes("none\n")},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "process/left", why: "what is left running is counted",
		cells: []cell{
			{source: "import subprocess; p = subprocess.Popen(['sleep', '60'])", check: func(o *outcome) {
				o.Helper()
				if o.Processes != 1 || !strings.Contains(o.Notice(), "1 process") {
					o.Errorf("%d processes, notice %q", o.Processes, o.Notice())
				}
			}},
			{source: "p.kill(); p.wait()", check: func(o *outcome) {
				o.Helper()
				if o.Processes != 0 {
					o.Errorf("%d processes", o.Processes)
				}
			}},
		},
	},
	{
		name: "process/asyncio", why: "asyncio works with and without a loop of one's own, and tasks are counted",
		cells: []cell{
			{source: "import asyncio\nasync def f(): await asyncio.sleep(0); return 5\nasyncio.run(f())", check: gives("5")},
			{source: "await f()", check: gives("5")},
			{source: "q = asyncio.Queue(); t = asyncio.create_task(q.get()); await asyncio.sleep(0)", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if o.Tasks != 1 || !strings.Contains(o.Notice(), "1 asyncio task") {
					o.Errorf("%d tasks, notice %q", o.Tasks, o.Notice())
				}
			}},
			{source: "await q.put(9); await t", check: gives("9")},
			{source: "async with asyncio.Lock(): pass\n[x async for x in (y async for y in g())]", check: raises("NameError")},
			{source: "await f()\n1/0", check: raises("ZeroDivisionError", "1/0")},
		},
	},
}

var folder = []sessionCase{
	{
		name: "file/put", why: "what is put is there for the code, to the byte", lack: []string{"files"},
		do: func(t *testing.T, n *notebook) {
			ctx := t.Context()
			big := bytes.Repeat([]byte("\x00\xff\r\n0123456789ab"), 1<<16) // 1 MiB
			for name, data := range map[string]string{"a.csv": "a", "b/c/d.bin": string(big), "ä ö.txt": "", ".hidden": "h"} {
				if err := n.Put(ctx, name, strings.NewReader(data)); err != nil {
					t.Fatalf("Put(%q) error = %v", name, err)
				}
				if got := read(t, n, name); got != data {
					t.Errorf("Get(%q) gave %d bytes, want %d", name, len(got), len(data))
				}
			}
			if err := n.Put(ctx, "a.csv", strings.NewReader("second")); err != nil {
				t.Fatal(err)
			}
			list, err := n.List(ctx)
			var names []string
			for _, f := range list {
				names = append(names, f.Name)
			}
			if want := []string{"a.csv", "b/c/d.bin", "ä ö.txt"}; err != nil || !slices.Equal(names, want) {
				t.Errorf("List() = %q, %v; want %q", names, err, want)
			}
			o := n.run(t, "import hashlib; open('a.csv').read(), len(open('b/c/d.bin', 'rb').read()), open('ä ö.txt').read()")
			gives("('second', 1048576, '')")(o)
			changed()(o)
			if err := n.Remove(ctx, "b"); err != nil {
				t.Errorf("Remove() error = %v", err)
			}
			o = n.run(t, "import os; sorted(os.listdir())")
			gives("['.hidden', 'a.csv', 'ä ö.txt']")(o)
			changed()(o)
		},
	},
	{
		name: "file/get", why: "what code writes can be fetched, to the byte", lack: []string{"files"},
		cells: []cell{{source: "import os; os.makedirs('out/deep'); open('out/deep/r.bin', 'wb').write(bytes(range(256)) * 5000)", check: changed(interpreter.FileChange{Name: "out/deep/r.bin", Size: 1280000, Change: interpreter.FileNew})}},
		do: func(t *testing.T, n *notebook) {
			var want []byte
			for i := range 256 {
				want = append(want, byte(i))
			}
			if got := read(t, n, "out/deep/r.bin"); got != string(bytes.Repeat(want, 5000)) {
				t.Errorf("Get() gave %d other bytes", len(got))
			}
			for _, name := range []string{"nothing", "out/nothing", "no/thing"} {
				if _, err := n.Get(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("Get(%q) error = %v", name, err)
				}
			}
			if _, err := n.Get(t.Context(), "out"); err == nil {
				t.Error("Get() gave a folder")
			}
			if err := n.Put(t.Context(), "out", strings.NewReader("x")); err == nil {
				t.Error("Put() replaced a folder")
			}
		},
	},
	{
		name: "file/changes", why: "what changed is told, whatever its size and time", lack: []string{"files"},
		cells: []cell{
			{source: "open('f', 'w').write('aaaa')", check: changed(interpreter.FileChange{Name: "f", Size: 4, Change: "new"})},
			{source: "open('f', 'w').write('bbbb')", check: changed(interpreter.FileChange{Name: "f", Size: 4, Change: "changed"})},
			{source: "open('f').read()", check: changed()},
			{source: "import os; os.remove('f')", check: changed(interpreter.FileChange{Name: "f", Change: "removed"})},
			{source: "os.makedirs('__pycache__'); open('__pycache__/x', 'w'); open('.h', 'w'); os.symlink('/etc/passwd', 'l'); os.mkfifo('p')", check: changed()},
			{source: "for i in range(500): open(f'n{i:03}', 'w').close()", check: func(o *outcome) {
				o.Helper()
				if len(o.Files) != interpreter.MaxChanges || o.MoreFiles != 300 || o.Files[0].Name != "n000" {
					o.Errorf("%d files and %d more", len(o.Files), o.MoreFiles)
				}
			}},
		},
	},
	{
		name: "file/links", why: "no path leads out of the work folder", lack: []string{"files"},
		cells: []cell{{source: "import os; os.symlink('/etc', 'etc'); os.symlink('/etc/passwd', 'passwd'); os.symlink('/tmp', 'tmp'); os.mkfifo('pipe'); os.mkdir('d'); os.symlink('..', 'd/up'); os.symlink('/tmp/target', 'target')", check: fine}},
		do: func(t *testing.T, n *notebook) {
			for _, name := range []string{"etc/passwd", "passwd", "d/up/x", "pipe", "tmp/.cells/cell-1.py"} {
				if f, err := n.Get(t.Context(), name); err == nil {
					b, _ := io.ReadAll(f)
					t.Errorf("Get(%q) gave %q", name, abridge(string(b)))
				}
			}
			for _, name := range []string{"tmp/planted", "d/up/planted", "etc/planted"} {
				if err := n.Put(t.Context(), name, strings.NewReader("x")); err == nil {
					t.Errorf("Put(%q) worked", name)
				}
			}
			// A link itself can be replaced and removed; what it leads to stays.
			if err := n.Put(t.Context(), "target", strings.NewReader("mine")); err != nil || read(t, n, "target") != "mine" {
				t.Errorf("Put() over a link error = %v", err)
			}
			if err := n.Remove(t.Context(), "tmp"); err != nil {
				t.Errorf("Remove() of a link error = %v", err)
			}
			gives("(False, True, False)")(n.run(t, "os.path.exists('/tmp/target'), os.path.exists('/tmp/.cells'), os.path.lexists('tmp')"))
			o := n.run(t, "os.chdir('/tmp'); import shutil; shutil.rmtree('/tmp/workspace'); os.symlink('/etc', '/tmp/workspace')")
			fine(o)
			if _, err := n.Get(t.Context(), "passwd"); err == nil {
				t.Error("Get() followed a link in the place of the work folder")
			}
			fine(n.run(t, "os.remove('/tmp/workspace')"))
			if err := n.Put(t.Context(), "again", strings.NewReader("x")); err != nil {
				t.Errorf("Put() into a new work folder error = %v", err)
			}
		},
	},
	{
		name: "file/full", why: "a file that does not fit is an error, and leaves nothing", lack: []string{"files"},
		do: func(t *testing.T, n *notebook) {
			if err := n.Put(t.Context(), "big", io.LimitReader(zeros{}, 1<<30)); err == nil {
				t.Error("Put() of 1 GiB worked")
			}
			if err := n.Put(t.Context(), "bad", io.MultiReader(strings.NewReader("x"), failing{})); !errors.Is(err, errFailing) {
				t.Errorf("Put() error = %v, want the reader's", err)
			}
			gives("[]")(n.run(t, "import os; os.listdir()"))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := n.Put(ctx, "late", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
				t.Errorf("Put() error = %v", err)
			}
			gives("[]")(n.run(t, "os.listdir()"))
		},
	},
	{
		name: "file/during", why: "files can be read and written while a cell runs", lack: []string{"files"},
		do: func(t *testing.T, n *notebook) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = n.Run(t.Context(), interpreter.Cell{Source: "import os, time\nwhile not os.path.exists('go'): time.sleep(.01)\nopen('came', 'w').write('1')"})
			}()
			time.Sleep(100 * time.Millisecond)
			if err := n.Put(t.Context(), "go", strings.NewReader("")); err != nil {
				t.Errorf("Put() error = %v", err)
			}
			<-done
			if got := read(t, n, "came"); got != "1" {
				t.Errorf("the cell wrote %q", got)
			}
		},
	},
}

func read(t *testing.T, n *notebook, name string) string {
	t.Helper()
	f, err := n.Get(t.Context(), name)
	if err != nil {
		t.Errorf("Get(%q) error = %v", name, err)
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Errorf("Get(%q): %v", name, err)
	}
	return string(b)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type failing struct{}

var errFailing = errors.New("the reader fails")

func (failing) Read([]byte) (int, error) { return 0, errFailing }

// alive is the check of a cell after one that did harm: whatever became of the
// variables, there is an interpreter, and it knows what it says.
var alive = cell{source: "1 + 1", check: gives("2")}

// anyEnd is the check of a cell that does harm: it ends, in time.
func anyEnd(o *outcome) {
	o.Helper()
	if o.Status == "" || o.took > o.Limits.Time+3*time.Second+8*time.Second {
		o.Errorf("status %q after %v", o.Status, o.took)
	}
}

// ended is the check of a cell that may do as it likes, and ends by itself with the
// variables as they are.
func ended(o *outcome) {
	o.Helper()
	if o.Status != interpreter.StatusOK && o.Status != interpreter.StatusError || o.Restored || o.Loss != nil {
		o.Errorf("status %q, restored %v, loss %v after %v", o.Status, o.Restored, o.Loss, o.took)
	}
}

var attacks = []sessionCase{
	{
		name: "attack/descriptors", why: "a cell that closes every descriptor ends its interpreter and costs no variable", lack: []string{"copy"},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "import os; os.closerange(0, 256)", check: restored(interpreter.StatusError, interpreter.CauseExit)},
			{source: "x", check: gives("1")},
		},
	},
	{
		name: "attack/forge", why: "what a cell says in the worker's place is bounded, and belongs to no other cell",
		config: interpreter.Config{Grace: 500 * time.Millisecond, Limits: fnloop.Limits{Time: time.Second}},
		cells: append([]cell{{source: forge, check: fine}}, repeat(8, func(i int) []cell {
			return []cell{
				{source: []string{
					"say(b'D', n(), b's' + b'\\0\\0\\0\\2ok')", "say(b'D', n() + 1, b'')", "say(b'V', n(), b'\\xff' * 70000)",
					"raw(b'\\xff' * 100000)", "say(b'V', n(), b'1\\nimage/png 5\\n\\nhello')", "say(b'r', 0, b''); say(b'k', 0, b'1')",
					"[say(b'v', n(), b'x' * 60000) for i in range(1000)]", "say(b'D', n(), b'g\\0\\1\\0\\0' + b'y\\n' * 32000); time.sleep(9)",
				}[i], check: anyEnd},
				{source: "1 + 1", check: func(o *outcome) {
					o.Helper()
					if o.Status == interpreter.StatusOK && o.main() != "2" && o.main() != "" || len(o.Names) > 200 {
						o.Errorf("status %q, result %q", o.Status, o.main())
					}
				}},
				{source: forge, check: fine},
				alive,
			}
		})...),
	},
	{
		name: "attack/supervisor", why: "the first process can be neither stopped nor looked into",
		cells: []cell{
			{source: "import os, signal, time\nfor s in (9, 15, 19, 2, 1, 10):\n    try: os.kill(1, s)\n    except OSError: pass", check: anyEnd},
			alive,
			{source: "for f in ('mem', 'environ', 'fd/0', 'maps'):\n    try: open(f'/proc/1/{f}', 'rb').close(); print(f)\n    except OSError: pass", check: writes("")},
			{source: "os.kill(-1, 9)", check: anyEnd},
			alive,
		},
	},
	{
		name: "attack/stop", why: "an interpreter that stops itself is ended at the limit",
		config: interpreter.Config{Grace: 500 * time.Millisecond},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", limit: 500 * time.Millisecond, check: func(o *outcome) { o.Helper(); o.is(interpreter.StatusTimeout) }},
			alive,
		},
	},
	{
		name: "attack/forks", why: "a cell that forks without end is stopped, and nothing of it stays", lack: []string{"pids"},
		config: interpreter.Config{Grace: time.Second, Limits: fnloop.Limits{Time: 2 * time.Second}},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", check: anyEnd},
			alive,
			{source: living, check: gives("True")},
		},
	},
	{
		name: "attack/children", why: "children that ignore signals end with a stopped cell",
		config: interpreter.Config{Grace: time.Second},
		cells: []cell{
			{source: "import subprocess, os, time", check: fine},
			{source: "[subprocess.Popen(['sh', '-c', 'trap \"\" INT TERM HUP; setsid sleep 400 & while :; do :; done']) for i in range(5)]; time.sleep(60)", limit: time.Second, check: anyEnd},
			{source: living, check: gives("True")},
		},
	},
	{
		name: "attack/handlers", why: "handlers and hooks of a cell do not reach the next one",
		cells: []cell{
			{source: "x = 1; import signal, sys, atexit, threading, gc, os", check: fine},
			{source: "def bad(*a): raise RuntimeError('late')\nsignal.signal(signal.SIGALRM, bad); signal.setitimer(signal.ITIMER_REAL, .05, .05)", check: anyEnd},
			{source: "1", wait: 300 * time.Millisecond, check: anyEnd},
			{source: "signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, signal.SIG_IGN)", check: anyEnd},
			{source: "signal.setitimer(signal.ITIMER_REAL, 0)", check: anyEnd},
			{source: "sys.settrace(bad)", check: anyEnd},
			{source: "sys.setprofile(bad)", check: anyEnd},
			{source: "sys.excepthook = sys.unraisablehook = sys.displayhook = bad; gc.disable()", check: anyEnd},
			{source: "x", check: gives("1")},
			{source: "os.register_at_fork(before=lambda: print('hook')); 5", check: gives("5")},
			{source: "x", check: and(gives("1"), printed(""))},
		},
	},
	{
		name: "attack/tracers", why: "what a cell has called at each event is not called while its end is told",
		cells: []cell{
			{source: "x = 1; import signal, sys\ndef bad(*a): raise RuntimeError('late')\nleft = 0\ndef later(*a):\n    global left\n    left -= 1\n    if left < 0: bad()", check: fine},
			{source: "sys.settrace(bad)", check: ended},
			{source: "sys.setprofile(bad)", check: ended},
			{source: "sys.settrace(bad); sys.setprofile(bad); 1 / 0", check: ended},
			{source: "left = 2; sys.settrace(later)", check: ended},
			{source: "left = 5; sys.setprofile(later)", check: ended},
			{source: "left = 9; sys.setprofile(later); 'shown'", check: ended},
			{source: "sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)", check: ended},
			{source: "sys.gettrace(), sys.getprofile()", check: gives("(None, None)")},
			{source: "x", check: gives("1")},
			{source: "signal.signal(signal.SIGALRM, bad); signal.setitimer(signal.ITIMER_REAL, .001, .001)", check: ended},
			{source: "while True: pass", check: ended},
			{source: "while True: print(1)", check: ended},
			{source: "raise ValueError(x)", check: ended},
		},
	},
	{
		name: "attack/stack", why: "an overflow of the stack is a crash like another",
		config: interpreter.Config{Limits: fnloop.Limits{Time: 10 * time.Second}},
		cells: []cell{
			{source: "x = 1", check: fine},
			{source: "import sys; sys.setrecursionlimit(10**9)\ndef f(): return f()\nf()", check: anyEnd},
			{source: "(" + strings.Repeat("(", 5000) + strings.Repeat(")", 5000) + ")", check: anyEnd},
			{source: strings.Repeat("-", 50000) + "1", check: anyEnd},
			alive,
		},
	},
	{
		name: "attack/displays", why: "displays without end are bounded",
		config: interpreter.Config{Limits: fnloop.Limits{Time: 20 * time.Second}},
		cells: []cell{
			{source: "for i in range(1000): display(i)", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if len(o.Displays) != interpreter.MaxDisplays || o.Omitted != 1000-interpreter.MaxDisplays {
					o.Errorf("%d displays, %d omitted", len(o.Displays), o.Omitted)
				}
			}},
			{source: "class B:\n    def _repr_html_(self): return 'x' * 3_000_000\nfor i in range(20): display(B())", check: func(o *outcome) {
				o.Helper()
				fine(o)
				if n := len(o.Displays); n > 6 || o.Omitted != 20-n {
					o.Errorf("%d displays, %d omitted", n, o.Omitted)
				}
			}},
			{source: "1", check: gives("1")},
		},
	},
	{
		name: "attack/claims-without-end", why: "a cell that speaks in the worker's place without end is stopped like one that prints",
		config: interpreter.Config{Grace: time.Second, Limits: fnloop.Limits{Time: 30 * time.Second}},
		cells: []cell{
			{source: forge, check: fine},
			{source: "while True: say(b'v', n(), b'x' * 60000)", check: func(o *outcome) {
				o.Helper()
				if o.Error == nil || o.Error.Name != "OutputLimit" || o.took > 20*time.Second {
					o.Errorf("error = %+v after %v", o.Error, o.took)
				}
			}},
			alive,
		},
	},
	{
		name: "attack/threads", why: "threads that show things at once do not disturb each other",
		cells: []cell{
			{source: "import threading\nclass H:\n    def _repr_html_(self): return 'x' * 100_000\nts = [threading.Thread(target=display, args=(H(),)) for i in range(20)]\n[t.start() for t in ts]; [t.join() for t in ts]; len(ts)", check: func(o *outcome) {
				o.Helper()
				gives("20")(o)
				if len(o.Displays) != 21 {
					o.Errorf("%d displays", len(o.Displays))
				}
			}},
		},
	},
	{
		name: "attack/tiny", why: "many tiny cells take no more room than few", lack: []string{"memory", "fast"},
		config: interpreter.Config{Limits: fnloop.Limits{Memory: 64 << 20}},
		do: func(t *testing.T, n *notebook) {
			for i := range 1500 {
				if o := n.run(t, "pass"); o.Status != interpreter.StatusOK || o.Loss != nil {
					t.Fatalf("cell %d: %s", i, o.Text())
				}
			}
			gives("(True, True)")(n.run(t, "import os, resource; len(os.listdir('/tmp/.cells')) < 110, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 40_000"))
		},
	},
	{
		name: "attack/source", why: "a source that cannot be run is refused, and a large one is run",
		config: interpreter.Config{Limits: fnloop.Limits{Time: 60 * time.Second, Memory: 1 << 30}},
		do: func(t *testing.T, n *notebook) {
			n.run(t, "x = 1")
			for _, source := range []string{"a\x00b", "'\xed\xa0\x80'", "\xff", strings.Repeat("#", fnloop.MaxSource+1)} {
				_, err := n.Run(t.Context(), interpreter.Cell{Source: source})
				if bad, ok := errors.AsType[*fnloop.ProgramError](err); !ok || bad.Field != "source" {
					t.Errorf("Run() error = %v, want one about the source", err)
				}
			}
			large := "y = 2\n#" + strings.Repeat("é", (fnloop.MaxSource-20)/2) + "\ny"
			gives("2")(n.run(t, large))
			gives("1")(n.run(t, "x"))
		},
	},
}

// living is true where no process is left but those of the session.
const living = `import os
def state(p):
    try: return open(f'/proc/{p}/stat').read().rpartition(')')[2].split()[0]
    except OSError: return 'X'
len([p for p in os.listdir('/proc') if p.isdigit() and state(p) not in 'ZX']) < 6`

// forge finds the descriptor over which the worker is heard.
const forge = `import os, time, sys, struct
def n(): return int(sys._getframe(1).f_code.co_filename.split('-')[-1].split('.')[0]) if 'cell-' in sys._getframe(1).f_code.co_filename else 0
def raw(b):
    for fd in range(3, 64):
        try:
            if os.readlink(f'/proc/self/fd/{fd}').startswith('pipe:') and not os.get_inheritable(fd): os.write(fd, b)
        except OSError: pass
def say(kind, cell, body): raw(kind + struct.pack('>II', cell, len(body)) + body)`

var sharing = []sessionCase{
	{
		name: "share/nothing", why: "sessions side by side see nothing of each other", lack: []string{"fast"},
		do: func(t *testing.T, n *notebook) {
			var work sync.WaitGroup
			for i := range 25 {
				work.Go(func() {
					s, err := interpreter.Open(t.Context(), n.runner, interpreter.Config{Limits: fnloop.Limits{Time: 20 * time.Second, Memory: 64 << 20}})
					if err != nil {
						t.Errorf("Open() error = %v", err)
						return
					}
					defer s.Close()
					for k := range 30 {
						e, err := s.Run(t.Context(), interpreter.Cell{Source: fmt.Sprintf("try: x\nexcept NameError: x = [%d]\nx.append(x[0])\nopen('f', 'a').write('%d,')\nlen(x), set(x), set(open('f').read().split(',')[:-1])", i, i)})
						want := fmt.Sprintf("(%d, {%d}, {'%d'})", k+2, i, i)
						if d, _ := e.Main(); err != nil || string(d.Data["text/plain"]) != want {
							t.Errorf("session %d, cell %d: %s, %v", i, k, e.Text(), err)
							return
						}
					}
				})
			}
			work.Wait()
		},
	},
	{
		name: "share/load", why: "a session that uses up what it may leaves the other one alone", lack: []string{"memory", "pids"},
		do: func(t *testing.T, n *notebook) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				other := openNotebook(t, n.runner, interpreter.Config{Grace: time.Second})
				for ctx.Err() == nil {
					_, _ = other.Run(ctx, interpreter.Cell{Source: "a = []\nwhile True: a.append(bytearray(10**7))"})
				}
			}()
			for ctx.Err() == nil {
				o := n.run(t, "1 + 1")
				gives("2")(o)
				within(time.Second)(o)
				time.Sleep(100 * time.Millisecond)
			}
			<-done
		},
	},
	{
		name: "share/close", why: "a session that is closed leaves no process",
		do: func(t *testing.T, n *notebook) {
			name := "fnloop-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + fmt.Sprint(time.Now().UnixNano())
			fine(n.run(t, "import subprocess; p = subprocess.Popen(['bash', '-c', 'exec -a "+name+" sleep 600'], start_new_session=True)"))
			go func() { _, _ = n.Run(t.Context(), interpreter.Cell{Source: "while True: pass"}) }()
			time.Sleep(200 * time.Millisecond)
			if err := n.Close(); err != nil {
				t.Errorf("Close() error = %v", err)
			}
			noneNamed(t, name)
			if _, err := n.Run(t.Context(), interpreter.Cell{Source: "1"}); !errors.Is(err, interpreter.ErrClosed) {
				t.Errorf("Run() error = %v, want ErrClosed", err)
			}
		},
	},
}
