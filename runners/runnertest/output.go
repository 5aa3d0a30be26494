package runnertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// output has the cases about the bytes that a program prints.
var output = []testCase{
	{
		name: "output/nothing", why: "nobody but the program writes to its streams", source: "pass", check: ok(""),
	},
	{
		name: "output/exact", why: "not a byte is added or lost", source: "print('Hello, World')", check: ok("Hello, World\n"),
	},
	{
		name: "output/no-newline", why: "no newline is added", source: "print('a', end='')", check: ok("a"),
	},
	{
		name: "output/interleaved", why: "the streams are never mixed up",
		source: "import sys\nfor i in range(1000): print('o'); print('e', file=sys.stderr)",
		check: func(v *verdict) {
			v.exits(0)
			v.prints(strings.Repeat("o\n", 1000))
			if v.Stderr != strings.Repeat("e\n", 1000) {
				v.Errorf("stderr = %q", abridge(v.Stderr))
			}
		},
	},
	{
		name: "output/large", why: "output that fills a pipe does not block the program, and is counted in full",
		source: "import sys; sys.stdout.write('x' * 1_000_000); sys.stderr.write('y' * 1_000_000)", within: 3 * time.Second,
		check: func(v *verdict) {
			v.exits(0)
			if v.StdoutBytes != 1_000_000 || v.StderrBytes != 1_000_000 || !v.StdoutTruncated || !v.StderrTruncated {
				v.Errorf("%d and %d bytes, truncated: %v, %v", v.StdoutBytes, v.StderrBytes, v.StdoutTruncated, v.StderrTruncated)
			}
		},
	},
	{
		name: "output/head-and-tail", why: "both ends of long output are kept, and the marker says what is not",
		source: "print('HEAD' + 'x' * 10**6 + 'TAIL')",
		check: func(v *verdict) {
			v.exits(0)
			if !strings.HasPrefix(v.Stdout, "HEADxxx") || !strings.HasSuffix(v.Stdout, "xxxTAIL\n") || !v.StdoutTruncated || v.StdoutBytes != 1_000_009 {
				v.Errorf("stdout = %q, truncated: %v, of %d bytes", abridge(v.Stdout), v.StdoutTruncated, v.StdoutBytes)
			}
			shown := int64(strings.Count(v.Stdout, "x")) + 9
			if want := fmt.Sprint(1_000_009 - shown); !strings.Contains(v.Stdout, want) {
				v.Errorf("the marker does not say that %s bytes are missing", want)
			}
		},
	},
	{
		name: "output/runes", why: "output is cut between runes", source: "print('€' * 100_000)",
		check: func(v *verdict) {
			v.exits(0)
			if strings.ContainsRune(v.Stdout, '\uFFFD') || !v.StdoutTruncated {
				v.Errorf("stdout = %q", abridge(v.Stdout))
			}
		},
	},
	{
		name: "output/invalid", why: "bytes that are not UTF-8 become U+FFFD each, and the others stay",
		source: `import sys; sys.stdout.buffer.write(b"ok\xff\xfe\x00end")`,
		check:  ok("ok\uFFFD\uFFFD\x00end"),
	},
	{
		name: "output/escapes", why: "the document is bounded after its escapes", source: "print('<' * 70000)",
		check: func(v *verdict) { v.exits(0) },
	},
	{
		name: "output/nuls", why: "the document is bounded after its escapes", source: `import sys; sys.stdout.buffer.write(b"\0" * 70000)`,
		check: func(v *verdict) { v.exits(0) },
	},
	{
		name: "output/surrogate", why: "what Python cannot encode is Python's error", source: "print(chr(0xD800))",
		check: func(v *verdict) { v.exits(1); v.complains("UnicodeEncodeError") },
	},
	{
		name: "output/surrogate-pass", why: "bytes that are no text stay harmless",
		source: "import sys; sys.stdout.reconfigure(errors='surrogatepass'); print(chr(0xD800))",
		check:  func(v *verdict) { v.exits(0) },
	},
	{
		name: "output/unbuffered", why: "what was printed before a crash is there",
		source: "import os; print('before'); os.abort()",
		check:  func(v *verdict) { v.signalled("SIGABRT"); v.prints("before\n") },
	},
	{
		name: "output/flood-child", why: "output of children counts as the program's",
		source: "import os, time\nif os.fork() == 0:\n while True: os.write(1, b'y' * 65536)\ntime.sleep(.3); print('end')",
		check: func(v *verdict) {
			v.ends(fnloop.EndExit, fnloop.EndOutput)
		},
	},
	{
		name: "output/always", why: "output is never lost to a race at the end", lack: []string{"fast"},
		do: func(t *testing.T, r fnloop.Runner) {
			n := 200
			if testing.Short() {
				n = 40
			}
			each(t, n, 4, func() {
				res, err := r.Run(t.Context(), fnloop.Program{Source: "print('x')", Limits: fnloop.Limits{Time: 30 * time.Second}})
				if err != nil || res.Stdout != "x\n" || res.Stderr != "" || res.End != fnloop.EndExit {
					t.Errorf("Run() = %+v, %v", res, err)
				}
			})
		},
	},
}
