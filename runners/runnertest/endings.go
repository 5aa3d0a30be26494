package runnertest

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// named is a function that becomes a process which can be found from outside.
const named = "import os, time\ndef linger(): os.execv('/bin/sleep', ['" + token + "', '60'])\n"

// endings has the cases about what ended a program.
var endings = []testCase{
	{
		name: "ending/daemon", why: "a call ends with the program, not with the last holder of its pipes; the daemon dies with it",
		source: named + "print('main', flush=True)\nif os.fork() == 0:\n os.setsid(); linger()\n",
		within: slack, check: ok("main\n"),
	},
	{
		name: "ending/daemon-output", why: "what was printed before a daemon was left is not lost",
		source: named + "print('x' * 1000)\nif os.fork() == 0:\n os.setsid(); linger()\n",
		within: slack, check: ok(strings.Repeat("x", 1000) + "\n"),
	},
	{
		name: "ending/double-fork", why: "nothing outlives the call, however it got away from its parent",
		source: named + "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0: linger()\n os._exit(0)\nos.wait(); print('done')",
		within: slack, check: ok("done\n"),
	},
	{
		name: "ending/timeout", why: "the time limit stops the program itself",
		source: "import time\nopen('/tmp/a', 'w').write('1')\nwhile True: time.sleep(.1)",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-busy", why: "a program that never yields is stopped as well",
		source: "while True: pass",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-signals-ignored", why: "nothing is asked to end: it is killed",
		source: "import signal, time\n[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]\nwhile True: time.sleep(9)",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-setsid", why: "the time limit kills every process, whatever group it is in",
		source: named + "for i in range(5):\n if os.fork() == 0:\n  os.setsid(); linger()\nlinger()",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-stopped", why: "a stopped program has not ended",
		source: "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-atexit", why: "an interpreter that hangs on its way out is still running",
		source: "import atexit, time\natexit.register(time.sleep, 99)",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-thread", why: "python waits for its threads",
		source: "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()",
		limits: fnloop.Limits{Time: time.Second}, check: timeout,
	},
	{
		name: "ending/timeout-output", why: "what was printed until the time limit is kept",
		source: "print('step 1')\nimport time; time.sleep(99)",
		limits: fnloop.Limits{Time: time.Second},
		check: func(v *verdict) {
			timeout(v)
			v.prints("step 1\n")
		},
	},
	{
		name: "ending/exit-124", why: "124 is an exit status and not a time limit",
		source: "import sys; sys.exit(124)", check: status(124),
	},
	{
		name: "ending/exit-137", why: "137 is an exit status and not a kill",
		source: "import sys; sys.exit(137)", check: status(137),
	},
	{
		name: "ending/sigkill", why: "a program that kills itself has a signal and no exit code",
		source: "import os; os.kill(os.getpid(), 9)",
		check: func(v *verdict) {
			v.signalled("SIGKILL")
			v.complains("SIGKILL")
			if v.OOM == fnloop.EvidenceYes {
				v.Errorf("OOM = yes")
			}
		},
	},
	{
		name: "ending/sigabrt", why: "signals behave as for any process",
		source: "import os; os.abort()",
		check:  func(v *verdict) { v.signalled("SIGABRT") },
	},
	{
		name: "ending/sigsegv", why: "signals behave as for any process",
		source: "import faulthandler; faulthandler._sigsegv()",
		check:  func(v *verdict) { v.signalled("SIGSEGV") },
	},
	{
		name: "ending/sigterm", why: "signals behave as for any process",
		source: "import os; os.kill(os.getpid(), 15)",
		check:  func(v *verdict) { v.signalled("SIGTERM") },
	},
	{
		name: "ending/group", why: "a program may kill its own process group and nothing else",
		source: "import os; print('a'); os.killpg(0, 15)",
		check:  func(v *verdict) { v.signalled("SIGTERM"); v.prints("a\n") },
	},
	{
		name: "ending/exec", why: "what the program becomes is still the program",
		source: "import os; os.execv('/bin/sh', ['sh', '-c', 'echo hi; exit 5'])",
		check:  func(v *verdict) { v.exits(5); v.prints("hi\n") },
	},
	{
		name: "ending/just-in-time", why: "a program that ends before its limit has not timed out, however close",
		do: func(t *testing.T, r fnloop.Runner) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					res, err := r.Run(t.Context(), fnloop.Program{
						Source: "import time; time.sleep(1.6)", Limits: fnloop.Limits{Time: 2 * time.Second},
					})
					if err != nil || res.End != fnloop.EndExit {
						t.Errorf("Run() = %+v, %v", res, err)
					}
				})
			}
			wg.Wait()
		},
	},
	{
		name: "ending/no-limit-to-speak-of", why: "a limit of weeks is a limit as any other",
		source: "print('x')", limits: fnloop.Limits{Time: math.MaxInt64}, within: slack, check: ok("x\n"),
	},
	{
		name: "ending/just-too-late", why: "a program at its limit is killed there, not at some round number after it",
		source: "import time; time.sleep(30)", limits: fnloop.Limits{Time: 700 * time.Millisecond}, within: 700*time.Millisecond + slack,
		check: func(v *verdict) {
			timeout(v)
			if v.Duration > 1500*time.Millisecond {
				v.Errorf("Duration = %v", v.Duration)
			}
		},
	},
}
