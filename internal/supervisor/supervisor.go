// Package supervisor runs a program in a sandbox that somebody else made.
//
// The same small Python program, [Source], is the first process of every local
// sandbox. It gets the program over its standard input, runs it as
// /tmp/main.py, and sends back over its standard output what the program
// printed and how it ended, in frames that the program can neither read nor
// forge. [Run] is the other side: it holds the clock, decides what ended the
// program and makes the Result.
package supervisor

import (
	_ "embed"
	"strings"
)

//go:embed supervisor.py
var embedded string

// Source is the supervisor. An interpreter must import it as its sitecustomize
// module and have been told to run /tmp/main.py.
var Source = compact(embedded)

// Dir is where a sandbox with files of its own keeps [Source], as
// sitecustomize.py, and what PYTHONPATH must then say.
const Dir = "/run/fnloop"

// Main is the file that the program becomes.
const Main = "/tmp/main.py"

// Bootstrap is for sandboxes without files of their own: run by an interpreter
// with -c, and [Source] as its argument, it writes the supervisor to where the
// program may write, and becomes the interpreter that imports it from there.
// The supervisor removes the file before the program starts.
const Bootstrap = `import os, sys
d = "/tmp/.fnloop"
os.mkdir(d, 0o700)
with open(d + "/sitecustomize.py", "w") as f: f.write(sys.argv[1])
os.environ["PYTHONPATH"] = d
os.execv(sys.executable, [sys.executable, "/tmp/main.py"])
`

// LayerDir is where a sandbox keeps its packages, as a virtual environment whose
// packages come before those of the interpreter. There need not be any. The
// supervisor itself never runs what is in there.
const LayerDir = "/opt/fnloop/python"

// Preload is a variable of the environment for the supervisor: modules that the
// process which becomes a program, or the worker of a session, is to have imported
// before, as the names with commas between them.
const Preload = "FNLOOP_PRELOAD"

// PreloadRlimits is another one: [Rlimits.Lines] of that process while it imports.
const PreloadRlimits = "FNLOOP_RLIMITS"

// Check is a program that looks at its own sandbox, and prints "ok" or what it
// can do that it must not. A sandbox is not believed before it was run.
const Check = `import os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
found = [what for what, wrong in (
    ("another user", (os.getuid(), os.getgid()) != (65534, 65534)),
    ("capabilities", any(int(status.get(k, "0"), 16) for k in ("CapPrm", "CapEff", "CapAmb"))),
    ("new privileges", status.get("NoNewPrivs", "1").strip() != "1"),
    ("every system call", status.get("Seccomp", "2").strip() != "2"),
    ("a network", any(i != "lo" for i in interfaces)),
    ("other processes", len([p for p in os.listdir("/proc") if p.isdigit()]) > 4),
    ("the kernel's settings", os.access("/proc/sys/kernel/core_pattern", os.W_OK) or os.access("/proc/sysrq-trigger", os.W_OK)),
    ("a writable root", os.access("/", os.W_OK) or os.access("/usr", os.W_OK) or os.access("/etc", os.W_OK)),
) if wrong]
for pid in {1, os.getppid() or 1}:
    try:
        open("/proc/%d/environ" % pid).close()
        found.append("the supervisor's memory")
    except OSError:
        pass
print(", ".join(found) or "ok")
`

// compact drops the comments, which are for whoever reads the file and not for
// the interpreter that compiles it at every start.
func compact(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if code := strings.TrimSpace(line); code == "" || code[0] == '#' {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// Env is the whole environment of a program, as KEY=value, for a search path.
func Env(path string) []string {
	return []string{
		"HOME=/tmp",
		"LANG=C.UTF-8",
		"MPLBACKEND=Agg",
		"MPLCONFIGDIR=/tmp/.mpl",
		"NO_COLOR=1",
		"OMP_NUM_THREADS=1",
		"OPENBLAS_NUM_THREADS=1",
		"PATH=" + path,
		"PYTHONDONTWRITEBYTECODE=1",
		"PYTHONUNBUFFERED=1",
		"PYTHONUTF8=1",
		"TMPDIR=/tmp",
		"TZ=UTC",
	}
}
