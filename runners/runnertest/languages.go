package runnertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// A dialect is the programs of the core table in one language.
type dialect struct {
	name string // of the language
	file string // that a complaint about a program names

	hello     string // prints "hello ä€😀"
	exit      string // ends with status 7
	exception string // prints "before", then complains that "no" in its line 3 and fails
	syntax    string // no program
	loop      string // never ends
	memory    string // takes memory without end
	flood     string // prints without end
	stdin     string // prints what it reads
	network   string // connects to 192.0.2.1 or fails
	neighbour string // prints "alone" unless there is /tmp/mine, and makes that
}

// dialects are the languages that have a core table. Python has all the others.
var dialects = []dialect{
	{
		name: fnloop.LanguageBash, file: "main.sh",
		hello:     "echo 'hello ä€😀'",
		exit:      "exit 7",
		exception: "set -e\necho before\ncd /tmp/no\necho after",
		syntax:    "echo before; if then",
		loop:      "while :; do :; done",
		memory:    "x=0123456789abcdef; while :; do x=$x$x; done",
		flood:     "yes AAAAAAAAAAAAAAAAAAAAAAAA",
		stdin:     "cat",
		network:   "exec 3<>/dev/tcp/192.0.2.1/80",
		neighbour: "[ -e /tmp/mine ] || echo alone; touch /tmp/mine; sleep .3",
	},
	{
		name: fnloop.LanguageJavaScript, file: "main.js",
		hello:     "console.log('hello ä€😀')",
		exit:      "process.exit(7)",
		exception: "console.log('before')\nfunction f() {\n  throw new Error('no')\n}\nf()",
		syntax:    "console.log('before')\nlet = = 2",
		loop:      "for (;;);",
		memory:    "const all = []; for (;;) all.push(new Array(1e5).fill(1.5))",
		flood:     "const fs = require('fs'), s = 'A'.repeat(10000) + '\\n'; for (;;) fs.writeSync(1, s)",
		stdin:     "process.stdout.write(require('fs').readFileSync(0))",
		network:   "require('net').connect(80, '192.0.2.1')",
		neighbour: "const fs = require('fs'); if (!fs.existsSync('/tmp/mine')) console.log('alone'); fs.writeFileSync('/tmp/mine', ''); setTimeout(() => {}, 300)",
	},
	{
		name: fnloop.LanguageTypeScript, file: "main.ts",
		hello:     "const s: string = 'hello ä€😀'; console.log(s)",
		exit:      "const code: number = 7; process.exit(code)",
		exception: "console.log('before')\nfunction f(s: string): never {\n  throw new Error(s)\n}\nf('no')",
		syntax:    "console.log('before')\nlet x: = 2",
		loop:      "for (;;);",
		memory:    "const all: number[][] = []; for (;;) all.push(new Array(1e5).fill(1.5))",
		flood:     "import * as fs from 'fs'; const s: string = 'A'.repeat(10000) + '\\n'; for (;;) fs.writeSync(1, s)",
		stdin:     "import { readFileSync } from 'node:fs'; process.stdout.write(readFileSync(0) as Uint8Array)",
		network:   "import * as net from 'net'; net.connect(80, '192.0.2.1')",
		neighbour: "import * as fs from 'fs'; if (!fs.existsSync('/tmp/mine')) console.log('alone'); fs.writeFileSync('/tmp/mine', ''); setTimeout((): void => {}, 300)",
	},
	{
		name:      fnloop.LanguageR,
		hello:     `cat("hello ä€😀\n")`,
		exit:      "quit(status = 7)",
		exception: "cat('before\\n')\nf <- function()\n  stop('no')\nf()",
		syntax:    "cat('before\\n')\nx <- = 2",
		loop:      "while (TRUE) {}",
		memory:    "all <- list(); while (TRUE) all[[length(all) + 1]] <- numeric(1e6) + 1",
		flood:     "s <- strrep('A', 10000); while (TRUE) cat(s, '\\n')",
		stdin:     "writeLines(readLines(file('stdin'), warn = FALSE))",
		network:   "socketConnection('192.0.2.1', 80, timeout = 5)",
		neighbour: "if (!file.exists('/tmp/mine')) cat('alone\\n'); ok <- file.create('/tmp/mine'); Sys.sleep(.3)",
	},
	{
		name: fnloop.LanguageJava, file: "Main.java",
		hello:     java(`System.out.println("hello ä€😀");`),
		exit:      java(`System.exit(7);`),
		exception: java("System.out.println(\"before\");\nthrow new IllegalStateException(\"no\");"),
		syntax:    java(`System.out.println("before"); int x = ;`),
		loop:      java(`while (true);`),
		memory:    java(`var all = new java.util.ArrayList<long[]>(); while (true) all.add(new long[100_000]);`),
		flood:     java(`var s = "A".repeat(10_000); while (true) System.out.println(s);`),
		stdin:     java(`System.in.transferTo(System.out);`),
		network:   java(`new java.net.Socket("192.0.2.1", 80);`),
		neighbour: java(`var f = new java.io.File("/tmp/mine"); if (!f.exists()) System.out.println("alone"); f.createNewFile(); Thread.sleep(300);`),
	},
	{
		name: fnloop.LanguageGo, file: "main.go",
		hello:     golang(`fmt.Println("hello ä€😀")`),
		exit:      golang(`os.Exit(7)`),
		exception: "package main; import \"fmt\"; func main() {\nfmt.Println(\"before\")\npanic(\"no\")\n}",
		syntax:    golang(`fmt.Println("before"); x := `),
		loop:      golang(`for {}`),
		memory:    golang(`var all [][]int64; for { b := make([]int64, 100_000); for i := range b { b[i] = 1 }; all = append(all, b) }`),
		flood:     golang(`s := strings.Repeat("A", 10000); for { fmt.Println(s) }`),
		stdin:     golang(`io.Copy(os.Stdout, os.Stdin)`),
		network:   golang(`if _, err := net.Dial("tcp", "192.0.2.1:80"); err != nil { panic(err) }`),
		neighbour: golang(`if _, err := os.Stat("/tmp/mine"); err != nil { fmt.Println("alone") }; os.Create("/tmp/mine"); time.Sleep(300 * time.Millisecond)`),
	},
}

// java is a program whose class is not named after its file.
func java(body string) string {
	return "public class Table { public static void main(String[] args) throws Exception {\n" + body + "\n} }\nrecord Other(int x) {}\n"
}

// golang is a program with the imports that its body names.
func golang(body string) string {
	s := "package main\n"
	for _, name := range []string{"fmt", "io", "net", "os", "strings", "time"} {
		if strings.Contains(body, name+".") {
			s += "import \"" + name + "\"\n"
		}
	}
	return s + "func main() { " + body + " }\n"
}

// compileTime is the limit of programs that may have to be compiled on a machine
// that does much else.
const compileTime = time.Minute

// cases are the core table.
func (d dialect) cases() []testCase {
	limits := fnloop.Limits{Time: compileTime}
	return []testCase{
		{
			name: "hello", why: "a program of the language runs, and its text arrives as it is",
			source: d.hello, limits: limits, check: ok("hello ä€😀\n"),
		},
		{name: "exit", why: "an exit status is the program's own", source: d.exit, limits: limits, check: status(7)},
		{
			name: "exception", why: "what the program does not catch is on stderr, with the program's file and line, and it fails",
			source: d.exception, limits: limits,
			check: func(v *verdict) {
				v.prints("before\n")
				v.complains("no")
				if d.file != "" {
					v.complains(d.file)
					v.complains("3")
				}
				d.fails(v)
			},
		},
		{
			name: "syntax", why: "an error in the source is a result", source: d.syntax, limits: limits,
			check: func(v *verdict) { v.complains(d.file); d.fails(v) },
		},
		{name: "time", why: "the time limit holds", source: d.loop, limits: fnloop.Limits{Time: 3 * time.Second}, check: timeout},
		{
			name: "memory", why: "a program that takes too much memory fails and says why", lack: []string{"memory"},
			source: d.memory, limits: fnloop.Limits{Time: compileTime, Memory: 256 << 20},
			check: func(v *verdict) {
				if v.End == fnloop.EndExit {
					d.fails(v)
				} else {
					v.ends(fnloop.EndMemory, fnloop.EndHostMemory, fnloop.EndSignal)
				}
				if !strings.Contains(strings.ToLower(v.Stderr), "memory") && !strings.Contains(v.Stderr, "alloc") {
					v.Errorf("stderr = %q, want a word of memory", abridge(v.Stderr))
				}
			},
		},
		{
			name: "flood", why: "output without end is cut, and ends the program", source: d.flood,
			limits: fnloop.Limits{Time: 20 * time.Second},
			check: func(v *verdict) {
				v.ends(fnloop.EndOutput, fnloop.EndTimeout)
				if !v.StdoutTruncated {
					v.Errorf("stdout was not cut: %d bytes", v.StdoutBytes)
				}
			},
		},
		{name: "stdin", why: "input arrives", lack: []string{"stdin"}, source: d.stdin, stdin: "ä\nb\n", limits: limits, check: ok("ä\nb\n")},
		{name: "stdin/none", why: "without input the end of the file comes at once", source: d.stdin, limits: limits, within: compileTime, check: ok("")},
		{
			name: "network", why: "there is no network", lack: []string{"isolation"}, source: d.network, limits: limits, within: compileTime,
			check: func(v *verdict) { d.fails(v) },
		},
		{
			name: "neighbour", why: "programs do not see each other, at the same time or one after the other",
			do: func(t *testing.T, r fnloop.Runner) {
				for range 2 {
					p := fnloop.Program{Source: d.neighbour, Language: d.name, Limits: limits}
					for _, c := range []<-chan answer{start(t.Context(), r, p), start(t.Context(), r, p)} {
						if a := <-c; a.err != nil || a.res.Stdout != "alone\n" {
							t.Errorf("Run() = %s, %v", a.res.Text(), a.err)
						}
					}
				}
			},
		},
	}
}

// fails checks for an exit status that tells of a failure.
func (d dialect) fails(v *verdict) {
	v.Helper()
	if v.ExitCode == nil || *v.ExitCode == 0 {
		v.Errorf("exit code = %s, want one of a failure", code(v.Result))
	}
	if v.Stderr == "" {
		v.Errorf("nothing is on stderr")
	}
}

// runLanguages runs the core table of each language that a runner has.
func runLanguages(t *testing.T, newRunner func(*testing.T) fnloop.Runner) {
	for _, d := range dialects {
		t.Run("languages/"+d.name, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t)
			if !slices.ContainsFunc(environment(t, r).Languages, func(l fnloop.Language) bool { return l.Name == d.name }) {
				t.Skipf("the runner does not have %s", d.name)
			}
			for _, c := range d.cases() {
				c.language = d.name
				t.Run(c.name, func(t *testing.T) { c.run(t, newRunner(t)) })
			}
		})
	}
}

// environment is what r says of its sandboxes.
func environment(t *testing.T, r fnloop.Runner) fnloop.Environment {
	t.Helper()
	if i, ok := fnloop.RunnerAs[fnloop.Inspector](r); ok {
		env, err := i.Inspect(t.Context())
		if err != nil {
			t.Fatalf("Inspect() error = %v", err)
		}
		return env
	}
	if d, ok := fnloop.RunnerAs[fnloop.Describer](r); ok {
		return d.Environment()
	}
	return fnloop.Environment{}
}
