package runnertest

import (
	"strings"
	"testing"

	"github.com/fnloop/fnloop"
)

// python makes a case of a program that must be as under python3 main.py.
func python(name, source, want string) testCase {
	return testCase{
		name: "python/" + name, why: "a program is run as python3 /tmp/main.py would run it",
		source: source, check: ok(want),
	}
}

// exit makes a case of an exit status.
func exit(name, source string, want int) testCase {
	return testCase{
		name: "exit/" + name, why: "an exit status is the one that a shell would see",
		source: source, check: status(want),
	}
}

// language has the cases about the source and what runs it.
var language = []testCase{
	python("main", "print(__name__, __file__, __spec__, __package__, __doc__)", "__main__ /tmp/main.py None None None\n"),
	python("argv", "import sys\nprint(sys.argv, sys.path[0])", "['/tmp/main.py'] /tmp\n"),
	python("doc", "'''words'''\nfrom __future__ import annotations\nprint(__doc__)", "words\n"),
	python("globals", "print(sorted(k for k in globals() if k != '__annotations__'))",
		"['__builtins__', '__cached__', '__doc__', '__file__', '__loader__', '__name__', '__package__', '__spec__']\n"),
	python("outermost", "import sys\nprint(sys._getframe().f_back)", "None\n"),
	python("source", "import inspect\ndef g(): return 1\nprint(inspect.getsource(g), end='')", "def g(): return 1\n"),
	python("pickle", "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)", "True\n"),
	python("modules", "import sys\nprint(sys.modules['__main__'].__dict__ is globals(), hasattr(sys.modules.get('sitecustomize'), 'supervise'))", "True False\n"),
	python("cwd", "import os\nprint(os.getcwd(), os.path.expanduser('~'))", "/tmp /tmp\n"),
	python("import-beside", "open('/tmp/other.py', 'w').write('x = 1')\nimport other\nprint(other.x)", "1\n"),
	python("fork", pool("fork"), "[1, 4]\n"),
	python("spawn", pool("spawn"), "[1, 4]\n"),
	python("forkserver", pool("forkserver"), "[1, 4]\n"),
	python("subprocess", "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(1)'], capture_output=True, text=True).stdout, end='')", "1\n"),
	python("asyncio", "import asyncio\nasync def f():\n p = await asyncio.create_subprocess_exec('true')\n return await p.wait()\nprint(asyncio.run(f()))", "0\n"),
	python("signals", "import signal\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, signal.set_wakeup_fd(-1), signal.pthread_sigmask(signal.SIG_BLOCK, []))", "True True -1 set()\n"),
	python("localhost", `import asyncio, socket
from multiprocessing.managers import BaseManager
print(socket.gethostbyname('localhost'), socket.gethostbyname(socket.gethostname()).startswith('127.'))
async def serve():
    async def greet(r, w): w.write(b'hi'); w.close()
    server = await asyncio.start_server(greet, 'localhost', 0)
    r, w = await asyncio.open_connection('localhost', server.sockets[0].getsockname()[1])
    print(await r.read()); w.close()
    own = await asyncio.start_server(greet, socket.gethostname(), 0)
asyncio.run(serve())
if __name__ == '__main__':
    m = BaseManager(address=('localhost', 0)); m.start(); print(m.address[0]); m.shutdown()
`, "127.0.0.1 True\nb'hi'\n127.0.0.1\n"),
	{
		name: "python/services", why: "what is known by name on every system is known by name here", lack: []string{"services"},
		source: "import socket\nprint(socket.getservbyname('http'), socket.getservbyname('domain', 'udp'), socket.getservbyport(443), socket.getprotobyname('tcp'), socket.getprotobyname('udp'), socket.getprotobyname('icmp'))",
		check:  ok("80 53 https 6 17 1\n"),
	},
	python("text", "import sys\nprint('ä€😀', sys.stdout.encoding)", "ä€😀 utf-8\n"),
	python("crlf", "print(1)\r\nprint(2)\r\n", "1\n2\n"),
	python("bom", "\ufeffprint(1)\n", "1\n"),
	python("large", `x="`+strings.Repeat("a", 2<<20)+`"; print(len(x))`, "2097152\n"),
	python("empty", "", ""),
	python("fib", "def fib(n):\n a, b = 0, 1\n for _ in range(n): a, b = b, a + b\n return a\nprint(fib(40))", "102334155\n"),
	{
		name: "python/traceback", why: "a traceback names the user's line, shows it, and has no frame of ours",
		source: "#1\n#2\n#3\n#4\n#5\n#6\n1/0\n",
		check: func(v *verdict) {
			v.exits(1)
			// Later versions underline the expression.
			var got []string
			for line := range strings.Lines(v.Stderr) {
				if strings.Trim(line, " ~^\n") != "" {
					got = append(got, line)
				}
			}
			want := "Traceback (most recent call last):\n  File \"/tmp/main.py\", line 7, in <module>\n    1/0\nZeroDivisionError: division by zero\n"
			if strings.Join(got, "") != want {
				v.Errorf("stderr = %q, want %q", v.Stderr, want)
			}
		},
	},
	{
		name: "python/syntax-error", why: "a syntax error shows its line", source: "print(1)\nx = = 2\n",
		check: func(v *verdict) {
			v.exits(1)
			v.prints("")
			v.complains(`File "/tmp/main.py", line 2`)
			v.complains("SyntaxError")
		},
	},
	{
		name: "python/syntax-error-stdin", why: "input that nobody reads is no error", source: "x=", stdin: strings.Repeat("x", 1<<20), lack: []string{"stdin"},
		check: func(v *verdict) { v.exits(1); v.complains("SyntaxError") },
	},
	{
		name: "python/random", why: "two programs never draw the same numbers",
		do: func(t *testing.T, r fnloop.Runner) {
			seen := make(map[string]bool)
			for range 3 {
				res, err := r.Run(t.Context(), fnloop.Program{Source: "import os, random, secrets, ssl, tempfile, uuid\nprint(random.random(), uuid.uuid4(), os.urandom(8).hex(), secrets.token_hex(), ssl.RAND_bytes(8).hex(), tempfile.mktemp())"})
				if err != nil || res.Stdout == "" || seen[res.Stdout] {
					t.Errorf("Run() = %+v, %v", res, err)
				}
				for s := range strings.FieldsSeq(res.Stdout) {
					if seen[s] {
						t.Errorf("%s was drawn twice", s)
					}
					seen[s] = true
				}
			}
		},
	},
	{
		name: "stdin/none", why: "without input the end of the file comes at once", source: "print(input())", within: slack,
		check: func(v *verdict) { v.exits(1); v.complains("EOFError") },
	},
	{
		name: "stdin/line", why: "input reaches the program, and nothing is added to it", source: "import sys\nprint(repr(sys.stdin.read()))", stdin: "hi", lack: []string{"stdin"},
		check: ok("'hi'\n"),
	},
	{
		name: "stdin/bytes", why: "input is bytes", source: "import sys\nprint(sys.stdin.buffer.read())", stdin: "\x00\xff\r\n", lack: []string{"stdin"},
		check: ok(`b'\x00\xff\r\n'` + "\n"),
	},
	{
		name: "stdin/large", why: "input larger than a pipe arrives whole", source: "import sys\nprint(len(sys.stdin.buffer.read()))", stdin: strings.Repeat("0123456789", 300_000), lack: []string{"stdin"},
		check: ok("3000000\n"),
	},
	{
		name: "stdin/unread", why: "a program need not read its input", source: "print('x')", stdin: strings.Repeat("0123456789", 300_000), within: slack, lack: []string{"stdin"},
		check: ok("x\n"),
	},
	{
		name: "stdin/closed", why: "a program may close its input", source: "import os, time\nos.close(0); time.sleep(.2); print('x')", stdin: strings.Repeat("0123456789", 300_000), lack: []string{"stdin"},
		check: ok("x\n"),
	},
	exit("zero", "import sys; sys.exit()", 0),
	exit("none", "import sys; sys.exit(None)", 0),
	exit("one", "import sys; sys.exit(1)", 1),
	exit("minus-one", "import sys; sys.exit(-1)", 255),
	exit("256", "import sys; sys.exit(256)", 0),
	exit("300", "import sys; sys.exit(300)", 44),
	exit("float", "import sys; sys.exit(3.5)", 1),
	exit("raise", "raise SystemExit(9)", 9),
	exit("os", "import os; os._exit(7)", 7),
	exit("unhandled", "raise ValueError('no')", 1),
	{
		name: "exit/huge", why: "an exit status is the one that a shell would see", source: "import sys; sys.exit(2**40)",
		check: func(v *verdict) { // 0 up to Python 3.12, an overflow's -1 later
			if v.ExitCode == nil || *v.ExitCode != 0 && *v.ExitCode != 255 {
				v.Errorf("exit code = %s", code(v.Result))
			}
		},
	},
	{
		name: "exit/text", why: "a text given to sys.exit goes to stderr", source: "import sys; sys.exit('boom')",
		check: func(v *verdict) {
			v.exits(1)
			if v.Stderr != "boom\n" {
				v.Errorf("stderr = %q", v.Stderr)
			}
		},
	},
	{
		name: "exit/keyboard-interrupt", why: "an unhandled KeyboardInterrupt is a death by SIGINT", source: "raise KeyboardInterrupt",
		check: func(v *verdict) { v.signalled("SIGINT"); v.complains("KeyboardInterrupt") },
	},
	{
		name: "exit/flush", why: "output that cannot be written at the end is status 120",
		source: "import os, sys\nsys.stdout = open(1, 'w')\nprint('x')\nos.close(1)",
		check:  status(120),
	},
}

func pool(method string) string {
	return "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n m.set_start_method('" + method + "')\n with m.Pool(2) as p: print(p.map(f, [1, 2]))"
}
