package runnertest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// supervisors are the processes that a sandbox ends with: its first, and who
// started the program.
const supervisors = call + `
import resource
processes = sorted({1, os.getppid() or 1})
nr = lambda x86, arm64: arm64 if arm else x86
SETSCHEDULER, SETPARAM, SETATTR, SETAFFINITY = nr(144, 119), nr(142, 118), nr(314, 274), nr(203, 122)
SETPRIORITY, IOPRIO_SET, IOPRIO_GET = nr(141, 140), nr(251, 30), nr(252, 31)
def scheduling():
    found = []
    for p in processes:
        found += [os.sched_getscheduler(p), os.sched_getaffinity(p), os.getpriority(os.PRIO_PROCESS, p), call(IOPRIO_GET, 1, p)]
        try: found.append(open(f'/proc/{p}/autogroup').read().split()[-1])
        except OSError: pass
    return found
def forms(n): return n, n + (1 << 32), n - (1 << 32), n - (1 << 63)
param, attr = bytes(4), (48).to_bytes(4, 'little') + (5).to_bytes(4, 'little') + bytes(40)
IDLE, BATCH = 5, 3
`

// scheduling has the cases of programs that put what ends them behind.
var scheduling = []testCase{
	{
		name: "scheduling/supervisor", why: "no program changes how the processes that end it are scheduled, whatever it calls them", lack: []string{"isolation"},
		source: supervisors + `
before = scheduling()
def change(what, *args):
    try: call(*args)
    except OSError: pass
    if scheduling() != before: print(what, args[1:], 'changed it'); os._exit(1)
for target in [f for p in processes for f in forms(p)]:
    for policy in IDLE, BATCH, IDLE | 0x40000000:
        change('sched_setscheduler', SETSCHEDULER, target, policy, param)
    change('sched_setparam', SETPARAM, target, param)
    change('sched_setattr', SETATTR, target, attr, 0)
    change('sched_setaffinity', SETAFFINITY, target, 8, (1).to_bytes(8, 'little'))
    for which in forms(0): change('setpriority', SETPRIORITY, which, target, 19)
    for which in forms(1): change('ioprio_set', IOPRIO_SET, which, target, 3 << 13)
for group in [f for p in (0, os.getpgrp(), *map(os.getpgid, processes)) for f in forms(p)]:
    for which in forms(1): change('setpriority of a group', SETPRIORITY, which, group, 19)
    for which in forms(2): change('ioprio_set of a group', IOPRIO_SET, which, group, 3 << 13)
for user in [f for u in (0, os.getuid()) for f in forms(u)]:
    for which in forms(2): change('setpriority of a user', SETPRIORITY, which, user, 19)
    for which in forms(3): change('ioprio_set of a user', IOPRIO_SET, which, user, 3 << 13)
print('as before')
`,
		check: ok("as before\n"),
	},
	{
		name: "scheduling/own", why: "a program's own processes are its own to schedule", lack: []string{"isolation"},
		source: `import os
os.nice(5)
cpu = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cpu}); os.sched_setaffinity(os.getpid(), {cpu})
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
child = os.fork()
if child == 0: os.read(0, 1); os._exit(0)
os.setpriority(os.PRIO_PROCESS, child, 10)
print(os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PROCESS, child), os.sched_getaffinity(0) == {cpu}, os.sched_getscheduler(0) == os.SCHED_BATCH)
`,
		check: ok("5 10 True True\n"),
	},
}

// crowds are programs that fill their sandbox with processes which leave the
// one that ends them as little of the machine as they can.
var crowds = []struct{ name, prelude, each string }{
	{"plain", "", ""},
	{"behind", "schedule(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0)); schedule(os.setpriority, 0, 1, 19)\nschedule(os.sched_setaffinity, 1, {cpu})\nfor target in forms(1): schedule(call, SETSCHEDULER, target, IDLE, param)", "schedule(os.sched_setaffinity, 0, {cpu})"},
	{"groups", "schedule(os.setpriority, os.PRIO_PGRP, 0, 19); schedule(os.setpriority, os.PRIO_USER, 0, 19)", "os.setpgid(0, 0)"},
	{"sessions", "try: open('/proc/self/autogroup', 'w').write('19')\nexcept OSError: pass", "os.setsid()"},
	{"idle", "", "schedule(os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0)) if i % 2 else None"},
	{"stopped", "", "os.kill(os.getpid(), 19) if i % 2 else None"},
	{"signals", "", "\n  while True: os.kill(1, 17)"},
	{"vfork", "import subprocess", "subprocess.Popen(['/bin/sleep', '60'], preexec_fn=None) if i % 8 == 0 else None"},
}

// crowd has the cases of crowds, which need the machine for themselves.
func crowd() []testCase {
	var cases []testCase
	for _, c := range crowds {
		source := named + supervisors + `
cpu = min(os.sched_getaffinity(0))
def schedule(f, *args):
    try: f(*args)
    except OSError: pass
` + c.prelude + `
if os.fork() == 0: os.setsid(); linger()
print('up', flush=True)
for i in range(1000):
 try: child = os.fork()
 except OSError: break
 if child == 0:
  ` + c.each + `
  while True: pass
while True: pass
`
		cases = append(cases, testCase{
			name: "crowd/" + c.name, why: "nothing of a program runs a second after its time limit, however many processes it has and with four such programs at once", lack: []string{"isolation", "pids", "fast"},
			do: func(t *testing.T, r fnloop.Runner) {
				const limit = 3 * time.Second
				// The first call may have to find out about the host.
				if _, err := r.Run(t.Context(), fnloop.Program{Source: "pass"}); err != nil {
					t.Fatal(err)
				}
				var up atomic.Int64 // a busy machine may not let all come so far
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						source, name := withToken(source)
						begin := time.Now()
						res, err := r.Run(t.Context(), fnloop.Program{Source: source, Limits: fnloop.Limits{Time: limit}})
						if err != nil || res.End != fnloop.EndTimeout {
							t.Errorf("Run() = %+v, %v", res, err)
							return
						}
						if res.Stdout == "up\n" {
							up.Add(1)
						}
						for ; ; time.Sleep(20 * time.Millisecond) {
							left := processesNamed(name)
							late := time.Since(begin) - res.Startup - limit
							if len(left) == 0 {
								t.Logf("all had ended %v after the limit", late)
								return
							}
							if late > time.Second {
								t.Errorf("%v after its time limit of the program are left: %v", late, left)
								return
							}
						}
					})
				}
				wg.Wait()
				if up.Load() == 0 {
					t.Error("no program filled its sandbox")
				}
			},
		})
	}
	return cases
}
