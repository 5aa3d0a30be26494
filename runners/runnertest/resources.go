package runnertest

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// alone has the cases that measure the host process.
var alone = []testCase{
	{
		name: "resources/flood", why: "output costs the host a fixed amount of memory, for as long as it comes",
		do: func(t *testing.T, r fnloop.Runner) {
			if _, err := r.Run(t.Context(), fnloop.Program{Source: "pass"}); err != nil {
				t.Fatal(err)
			}
			before := inUse()
			call := start(t.Context(), r, fnloop.Program{
				Source: "while True: print('A' * 10000)", Limits: fnloop.Limits{Time: 3 * time.Second},
			})
			var readings []uint64
			for {
				select {
				case a := <-call:
					if a.err != nil || a.res.End != fnloop.EndTimeout && a.res.End != fnloop.EndOutput {
						t.Errorf("Run() = %q, %v", a.res.End, a.err)
					}
					if len(a.res.Stdout) > fnloop.DefaultMaxOutput || !a.res.StdoutTruncated || a.res.StdoutBytes < 100_000 {
						t.Errorf("%d bytes of stdout, truncated: %v, of %d", len(a.res.Stdout), a.res.StdoutTruncated, a.res.StdoutBytes)
					}
					// What is kept grows until the end. The least of the last readings has
					// it, and little of what was thrown away just before it was taken.
					last := readings[max(0, len(readings)-5):]
					if len(last) == 0 {
						t.Fatal("the call ended before a reading was taken")
					}
					if kept := slices.Min(last); kept > before+4<<20 {
						t.Errorf("the host's memory grew from %d to %d bytes", before, kept)
					}
					return
				case <-time.After(50 * time.Millisecond):
					readings = append(readings, inUse())
				}
			}
		},
	},
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// resources has the cases about limits.
var resources = []testCase{
	{
		name: "resources/numpy", why: "libraries that start threads load under the default limits",
		source: "try: import numpy as np\nexcept ImportError: print('absent')\nelse: print(np.ones(3).sum())",
		check: func(v *verdict) {
			if v.Stdout == "absent\n" {
				v.Skip("numpy is not in the sandbox")
			}
			ok("3.0\n")(v)
		},
	},
	{
		name: "resources/matplotlib", why: "a plot is drawn without a word on stderr", limits: fnloop.Limits{Time: 30 * time.Second},
		source: "try: import matplotlib.pyplot as p\nexcept ImportError: print('absent')\nelse: p.plot([1, 2]); p.savefig('/tmp/a.png'); print('drawn')",
		check: func(v *verdict) {
			if v.Stdout == "absent\n" {
				v.Skip("matplotlib is not in the sandbox")
			}
			v.exits(0)
			v.prints("drawn\n")
		},
	},
	{
		name: "resources/threads", why: "thirty threads are not many",
		source: "import threading\nts = [threading.Thread(target=lambda: None) for _ in range(30)]\n[t.start() for t in ts]; [t.join() for t in ts]; print('ok')",
		check:  ok("ok\n"),
	},
	{
		name: "resources/pool", why: "semaphores need /dev/shm",
		source: "import multiprocessing as m\nif __name__ == '__main__':\n with m.Pool(2) as p: print(p.map(abs, [-1, -2]))",
		check:  ok("[1, 2]\n"),
	},
	{
		name: "resources/shm-sigbus", why: "memory that is not there is a bus error, and not a lost sandbox", lack: []string{"isolation"},
		source: `import mmap, os
free = os.statvfs('/dev/shm').f_bavail * os.statvfs('/dev/shm').f_bsize
def make(name, size):
    fd = os.open('/dev/shm/' + name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    return mmap.mmap(fd, size)
a, b = make('a', free * 3 // 4), make('b', free // 2)
for m in a, b:
    for i in range(0, len(m), 4096): m[i] = 1
`,
		check: func(v *verdict) { v.signalled("SIGBUS") },
	},
	{
		name: "resources/fork-bomb", why: "a fork bomb stays within its own sandbox", lack: []string{"pids"},
		do: func(t *testing.T, r fnloop.Runner) {
			bomb := start(t.Context(), r, fnloop.Program{
				Source: "import os\nwhile True:\n try: os.fork()\n except OSError: pass", Limits: fnloop.Limits{Time: 2 * time.Second},
			})
			time.Sleep(500 * time.Millisecond)
			begin := time.Now()
			res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)", Limits: fnloop.Limits{Time: 30 * time.Second}})
			if err != nil || res.Stdout != "1\n" {
				t.Errorf("another program meanwhile: %+v, %v, after %v", res, err, time.Since(begin))
			}
			a := <-bomb
			if a.err != nil || a.res.End != fnloop.EndTimeout {
				t.Errorf("the bomb: %+v, %v", a.res, a.err)
			}
		},
	},
	{
		name: "resources/hog", why: "the kernel's kill for want of memory is told from any other", lack: []string{"memory", "oom"},
		source: "b = []\nwhile 1: b.append(bytearray(1 << 24))",
		limits: fnloop.Limits{Memory: 128 << 20, Time: 20 * time.Second},
		check: func(v *verdict) {
			v.ends(fnloop.EndMemory)
			v.complains("out of memory")
			if v.OOM != fnloop.EvidenceYes {
				v.Errorf("OOM = %q", v.OOM)
			}
		},
	},
	{
		name: "resources/memory-error", why: "an allocation that cannot be is an exception",
		source: "bytearray(10**13)",
		check: func(v *verdict) {
			v.exits(1)
			v.complains("MemoryError")
			if v.OOM == fnloop.EvidenceYes {
				v.Errorf("OOM = yes")
			}
		},
	},
	{
		name: "resources/child-hog", why: "a child that is killed for want of memory is an event, not the program's end", lack: []string{"memory", "oom"},
		source: `import multiprocessing as m
def hog():
    b = []
    while 1: b.append(bytearray(1 << 24))
if __name__ == '__main__':
    m.set_start_method('fork')
    q = m.Process(target=hog); q.start(); q.join(); print(q.exitcode)
`,
		limits: fnloop.Limits{Memory: 128 << 20, Time: 20 * time.Second},
		check: func(v *verdict) {
			v.exits(0)
			v.prints("-9\n")
			if v.OOM != fnloop.EvidenceYes {
				v.Errorf("OOM = %q", v.OOM)
			}
		},
	},
	{
		name: "resources/tmp-full", why: "a full disk is an error that the program can handle", lack: []string{"isolation"},
		source: "f = open('/tmp/x', 'wb')\ntry:\n while 1: f.write(b'x' * (1 << 20))\nexcept OSError as e: print(e.errno)\nimport os; os._exit(0)",
		limits: fnloop.Limits{Time: 20 * time.Second},
		check: func(v *verdict) {
			v.exits(0)
			if v.Stdout != "28\n" && v.Stdout != "27\n" {
				v.Errorf("stdout = %q, want ENOSPC or EFBIG", v.Stdout)
			}
		},
	},
	{
		name: "resources/disks-full", why: "all that can be written is within the memory limit", lack: []string{"isolation", "memory"},
		source: `import os
for dir in '/tmp', '/dev/shm':
    try:
        for i in range(10**6):
            with open(f'{dir}/{i}', 'wb') as f: f.write(b'x' * (1 << 20))
    except OSError as e: print(e.errno)
`,
		limits: fnloop.Limits{Time: 20 * time.Second},
		check:  ok("28\n28\n"),
	},
	{
		name: "resources/many-files", why: "files without contents are bounded too", lack: []string{"isolation", "memory"},
		source: "for i in range(10**7): open(f'/tmp/{i}', 'w').close()",
		limits: fnloop.Limits{Time: 3 * time.Second, Memory: 128 << 20}, within: 3*time.Second + 2*slack,
		check: func(v *verdict) {
			v.ends(fnloop.EndExit, fnloop.EndMemory, fnloop.EndTimeout)
			if v.End == fnloop.EndExit {
				v.exits(1)
			}
		},
	},
	{
		name: "resources/sparse", why: "a file that claims a petabyte takes nothing",
		source: "import os\nfd = os.open('/tmp/a', os.O_RDWR | os.O_CREAT)\ntry: os.truncate(fd, 1 << 50)\nexcept OSError as e: print(e.errno)\nprint('on')",
		within: 2 * time.Second,
		check: func(v *verdict) {
			v.exits(0)
			if !strings.HasSuffix(v.Stdout, "on\n") {
				v.Errorf("stdout = %q", v.Stdout)
			}
		},
	},
	{
		name: "resources/deep-tree", why: "what is removed after a run is never walked by path",
		source: "import os\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\nprint('deep')",
		within: 4 * time.Second,
		check: func(v *verdict) {
			v.ends(fnloop.EndExit)
		},
	},
	{
		name: "resources/recursion", why: "a traceback is never cut at its end", source: "def f(): f()\nf()",
		check: func(v *verdict) {
			v.exits(1)
			if lines := strings.Split(strings.TrimSpace(v.Stderr), "\n"); !strings.HasPrefix(lines[len(lines)-1], "RecursionError") {
				v.Errorf("the last line of stderr is %q", lines[len(lines)-1])
			}
		},
	},
	{
		name: "resources/deep-recursion", why: "recursion without bound is no danger to the host", lack: []string{"memory"},
		source: "import sys\nsys.setrecursionlimit(10**9)\nf = lambda n: f(n + 1)\nf(0)",
		limits: fnloop.Limits{Memory: 128 << 20, Time: 20 * time.Second},
		check: func(v *verdict) {
			v.ends(fnloop.EndMemory, fnloop.EndSignal, fnloop.EndExit, fnloop.EndTimeout)
		},
	},
	{
		name: "resources/own-limits", why: "the limits of one call are not shared with the calls beside it", lack: []string{"memory"},
		do: func(t *testing.T, r fnloop.Runner) {
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					res, err := r.Run(t.Context(), fnloop.Program{
						Source: "import time\nb = bytearray(100 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\ntime.sleep(.5); print('ok')",
						Limits: fnloop.Limits{Memory: 256 << 20, Time: 20 * time.Second},
					})
					if err != nil || res.Stdout != "ok\n" {
						t.Errorf("Run() = %+v, %v", res, err)
					}
				})
			}
			wg.Wait()
		},
	},
	{
		name: "resources/open-files", why: "open files are bounded, and the bound is an exception", lack: []string{"isolation"},
		source: "import os\ntry:\n for i in range(10**5): os.open('/tmp', os.O_RDONLY)\nexcept OSError as e: print(e.errno)",
		check:  func(v *verdict) { v.exits(0); v.prints("24\n") },
	},
	{
		name: "resources/core", why: "no core is dumped", lack: []string{"isolation"},
		source: "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))",
		check:  ok("(0, 0)\n"),
	},
}
