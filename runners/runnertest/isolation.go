package runnertest

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// attempt is a Python function that says what became of something.
const attempt = `import errno, os, socket, sys
def attempt(what, f, *args):
    try: print(what, 'succeeded', f(*args))
    except Exception as e: print(what, 'failed', errno.errorcode.get(getattr(e, 'errno', None), type(e).__name__))
`

// call makes a system call with ctypes. An error is an OSError.
const call = attempt + `import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*args):
    r = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r < 0: raise OSError(ctypes.get_errno(), 'syscall')
    return r
arm = platform.machine() == 'aarch64'
`

// allFail is the check of a program all of whose attempts must fail.
func allFail(n int) func(*verdict) {
	return func(v *verdict) {
		v.Helper()
		v.exits(0)
		if got := strings.Count(v.Stdout, " failed "); got != n || strings.Contains(v.Stdout, " succeeded ") {
			v.Errorf("%d attempts failed, want all %d:\n%s", got, n, v.Stdout)
		}
	}
}

// isolation has the cases about what a program can see and reach.
var isolation = []testCase{
	{
		name: "isolation/environment", why: "the environment is an explicit list, and nothing of the host's is in it", lack: []string{"isolation"},
		do: func(t *testing.T, r fnloop.Runner) {
			res, err := r.Run(t.Context(), fnloop.Program{Source: "import os\nfor k in sorted(os.environ): print(k)"})
			if err != nil || res.End != fnloop.EndExit {
				t.Fatalf("Run() = %+v, %v", res, err)
			}
			const want = "HOME LANG MPLBACKEND MPLCONFIGDIR NO_COLOR OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH " +
				"PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONUTF8 TMPDIR TZ"
			if got := strings.Join(strings.Fields(res.Stdout), " "); got != want {
				t.Errorf("the environment is\n%s, want\n%s", got, want)
			}
		},
	},
	{
		name: "isolation/descriptors", why: "a program has three descriptors", lack: []string{"isolation"},
		source: "import os\nfor fd in range(256):\n try: os.fstat(fd); print(fd)\n except OSError: pass",
		check:  ok("0\n1\n2\n"),
	},
	{
		name: "isolation/processes", why: "a program sees its own processes and the supervisor", lack: []string{"isolation"},
		source: "import os\nprint(len([p for p in os.listdir('/proc') if p.isdigit()]) <= 3)",
		check:  ok("True\n"),
	},
	{
		name: "isolation/host-files", why: "no file of the host is there", lack: []string{"isolation"},
		do: func(t *testing.T, r fnloop.Runner) {
			secret := t.TempDir() + "/secret"
			if err := os.WriteFile(secret, []byte("s"), 0o644); err != nil {
				t.Fatal(err)
			}
			home, _ := os.UserHomeDir()
			wd, _ := os.Getwd()
			res, err := r.Run(t.Context(), fnloop.Program{
				Source: attempt + "for p in sys.stdin.read().split(): attempt(p, open, p)\n" +
					"for p in '/etc/shadow', '/var/run/docker.sock', '/run/docker.sock', '/proc/kcore', '/dev/mem', '/dev/sda', '/dev/vda': attempt(p, open, p)",
				Stdin: []byte(secret + " " + home + "/.bashrc " + home + "/.ssh/id_ed25519 " + wd + "/runnertest.go"),
			})
			if err != nil || strings.Contains(res.Stdout, "succeeded") || strings.Count(res.Stdout, "failed") != 11 {
				t.Errorf("Run() = %+v, %v", res, err)
			}
		},
	},
	{
		name: "isolation/read-only", why: "nothing but /tmp and /dev/shm can be written to", lack: []string{"isolation"},
		source: attempt + "for d in '/', '/usr', '/usr/bin', '/usr/local', '/etc', '/dev', '/run', '/var', '/home', '/proc/sys/kernel', '/opt', '/mnt', '/sys':\n" +
			" attempt(d, open, d + '/x', 'w')\nfor f in '/etc/passwd', '/usr/bin/env', '/proc/sysrq-trigger', '/proc/sys/kernel/hostname', '/proc/1/oom_score_adj': attempt(f, open, f, 'w')",
		check: allFail(18),
	},
	{
		name: "isolation/identity", why: "a program has no rights and no way to any", lack: []string{"isolation"},
		source: `import os
s = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines() if ':' in l)
for k in 'CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs', 'Seccomp': print(k, s[k].strip())
print(os.getuid(), os.getgid(), 0 in os.getgroups())
for f in os.setuid, os.setgid:
    try: f(0); print('became root')
    except OSError: pass
`,
		check: ok("CapInh 0000000000000000\nCapPrm 0000000000000000\nCapEff 0000000000000000\nCapAmb 0000000000000000\nNoNewPrivs 1\nSeccomp 2\n65534 65534 False\n"),
	},
	{
		name: "isolation/no-network", why: "what needs a network fails at once and clearly", lack: []string{"isolation"},
		source: "import urllib.request as u; u.urlopen('http://example.com', timeout=30)", within: 2 * time.Second,
		check: func(v *verdict) { v.exits(1); v.complains("Error") },
	},
	{
		name: "isolation/pip", why: "pip says that there is no network, and advises nothing that does not help", lack: []string{"isolation"},
		source: `import subprocess, sys
p = subprocess.run([sys.executable, '-m', 'pip', 'install', 'left-pad'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(p.returncode, p.stdout)
`,
		limits: fnloop.Limits{Time: 30 * time.Second},
		check: func(v *verdict) {
			if strings.Contains(v.Stdout, "No module named pip") {
				v.Skip("pip is not in the sandbox")
			}
			v.exits(0)
			says := strings.Contains(v.Stdout, "network") || strings.Contains(v.Stdout, "name resolution")
			if !strings.HasPrefix(v.Stdout, "1 ") || !says || strings.Contains(v.Stdout, "break-system-packages") {
				v.Errorf("pip says %s", v.Stdout)
			}
		},
	},
	{
		name: "isolation/no-route", why: "no address outside can be reached", lack: []string{"isolation"},
		source: attempt + "for a in ('1.1.1.1', 53), ('169.254.169.254', 80), ('172.17.0.1', 22), ('10.0.0.1', 80):\n attempt(a, socket.create_connection, a, 3)\n" +
			"attempt('udp', socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b'x', ('8.8.8.8', 53))\n",
		within: 3 * time.Second, check: allFail(5),
	},
	{
		name: "isolation/loopback", why: "a server and its client may be in one program", lack: []string{"isolation"},
		source: "import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())\ns.accept()[0].send(b'hi')\nprint(c.recv(2))\na, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))",
		check:  ok("b'hi'\nb'x'\n"),
	},
	{
		name: "isolation/sockets", why: "no family of sockets but UNIX and INET", lack: []string{"isolation"},
		source: attempt + "for f in 0, 3, 4, 5, 6, 7, 8, 9, 11, 15, 16, 17, 20, 24, 29, 30, 31, 38, 40, 44:\n for k in 1, 2, 3, 5: attempt((f, k), socket.socket, f, k)\n" +
			"for f in 2, 10:\n attempt(('raw', f), socket.socket, f, 3)\n" +
			" for k in 1, 2, 5, 6:\n  for p in 33, 115, 132, 136, 256, 262: attempt((f, k, p), socket.socket, f, k, p)\n",
		check: allFail(130),
	},
	{
		name: "isolation/syscalls", why: "the kernel's dangerous corners are closed", lack: []string{"isolation"},
		source: call + `
for what, x86, arm64, *args in (
    ('unshare user', 272, 97, 0x10000000), ('unshare mount', 272, 97, 0x20000), ('setns', 308, 268, 0, 0),
    ('clone user', 56, 220, 0x10000011, 0, 0, 0, 0), ('clone net', 56, 220, 0x40000011, 0, 0, 0, 0),
    ('mount', 165, 40, b'none', b'/tmp', b'tmpfs', 0, 0), ('umount', 166, 39, b'/tmp', 2), ('chroot', 161, 51, b'/tmp'),
    ('pivot_root', 155, 41, b'/tmp', b'/tmp'), ('fsopen', 430, 430, b'tmpfs', 0), ('open_tree', 428, 428, -100, b'/', 1),
    ('ptrace', 101, 117, 16, 1, 0, 0), ('process_vm_readv', 310, 270, 1, 0, 0, 0, 0, 0), ('kcmp', 312, 272, 1, 1, 0, 0, 0),
    ('bpf', 321, 280, 0, 0, 0), ('perf_event_open', 298, 241, 0, 0, -1, -1, 0), ('userfaultfd', 323, 282, 1),
    ('io_uring_setup', 425, 425, 8, bytes(120)), ('keyctl', 250, 219, 0, -3, 0), ('add_key', 248, 217, b'user', b'a', b'b', 1, -3),
    ('syslog', 103, 116, 3, bytes(9), 8), ('reboot', 169, 142, 0, 0, 0), ('init_module', 175, 105, 0, 0, b''),
    ('kexec_load', 246, 104, 0, 0, 0, 0), ('personality', 135, 92, 0x0040000), ('open_by_handle_at', 304, 265, -100, bytes(16), 0),
    ('io_setup', 206, 0, 8, bytes(8)), ('mmap huge', 9, 222, 0, 2 << 20, 3, 0x40022, -1, 0), ('memfd huge', 319, 279, b'x', 4),
    ('sethostname', 170, 161, b'x', 1), ('settimeofday', 164, 170, 0, bytes(8)), ('acct', 163, 89, b'/tmp/a'),
    ('swapon', 167, 224, b'/tmp/a', 0), ('quotactl', 179, 60, 0, 0, 0, 0), ('pidfd_getfd', 438, 438, 0, 0, 0),
): attempt(what, call, arm64 if arm else x86, *args)
`,
		check: allFail(35),
	},
	{
		name: "isolation/clone3", why: "clone3 does not exist, so that the C library falls back", lack: []string{"isolation"},
		source: call + "attempt('clone3', call, 435, bytes(88), 88)",
		check:  func(v *verdict) { v.prints("clone3 failed ENOSYS\n") },
	},
	{
		name: "isolation/foreign-abi", why: "system calls of another ABI do not get past the filter", lack: []string{"isolation"},
		source: call + "if arm: attempt('x32', call, -1)\nelse: attempt('x32', call, 0x40000000 + 39)",
		check: func(v *verdict) {
			if v.Signal != "SIGSYS" { // what libseccomp's filters do
				allFail(1)(v)
			}
		},
	},
	{
		name: "isolation/hostname", why: "the host's name is not for programs", lack: []string{"isolation"},
		do: func(t *testing.T, r fnloop.Runner) {
			name, _ := os.Hostname()
			res, err := r.Run(t.Context(), fnloop.Program{Source: "import socket\nprint(socket.gethostname(), end='')"})
			if err != nil || res.Stdout == "" || res.Stdout == name {
				t.Errorf("Run() = %+v, %v; the host is %q", res, err, name)
			}
		},
	},
	{
		name: "isolation/setuid", why: "no program on the file system gives rights", lack: []string{"isolation"},
		source: "import subprocess, os\nprint(subprocess.run(['/bin/sh', '-c', 'for p in su mount passwd newgrp chsh; do f=$(command -v $p) && $f -c id </dev/null; done 2>/dev/null | grep uid=0'], capture_output=True).stdout)",
		check:  func(v *verdict) { v.exits(0); v.prints("b''\n") },
	},
}

// hostile has the cases of programs that go for the supervisor.
var hostile = []testCase{
	{
		name: "hostile/forged-frames", why: "whatever a program prints, it is output", lack: []string{"isolation"},
		source: "import os, sys\nfor fd in 1, 2:\n os.write(fd, b'X\\0\\0\\0\\x0estatus=0\\nus=1\\nD\\0\\0\\0\\0')\nsys.exit(3)",
		check: func(v *verdict) {
			v.exits(3)
			if !strings.Contains(v.Stdout, "status=0") || !strings.Contains(v.Stderr, "status=0") {
				v.Errorf("stdout = %q, stderr = %q", v.Stdout, v.Stderr)
			}
		},
	},
	{
		name: "hostile/other-descriptors", why: "the supervisor's descriptors are not the program's", lack: []string{"isolation"},
		source: "import os, sys\nfor fd in range(3, 1024):\n try: os.write(fd, b'D\\0\\0\\0\\0'); print('wrote to', fd)\n except OSError: pass\nsys.exit(4)",
		check:  func(v *verdict) { v.exits(4); v.prints("") },
	},
	{
		name: "hostile/proc", why: "nobody looks into the supervisor through /proc", lack: []string{"isolation"},
		source: attempt + `
import glob
me = os.getpid()
for pid in {1, os.getppid() or 1}:
    for name in 'environ', 'mem', 'maps', 'auxv', 'stack', 'syscall', 'pagemap':
        attempt(name, lambda p: open(p, 'rb').read(1) or 1 / 0, f'/proc/{pid}/{name}')
    for name in 'cwd', 'root', 'exe', 'ns/mnt':
        attempt(name, os.readlink, f'/proc/{pid}/{name}')
    for fd in range(32):
        attempt(fd, open, f'/proc/{pid}/fd/{fd}', 'wb', 0)
        attempt(fd, open, f'/proc/{pid}/fd/{fd}', 'rb', 0)
`,
		check: func(v *verdict) {
			v.exits(0)
			if strings.Contains(v.Stdout, "succeeded") {
				v.Errorf("stdout = %q", v.Stdout)
			}
		},
	},
	{
		name: "hostile/kill-supervisor", why: "the supervisor is deaf to the program's signals", lack: []string{"isolation"},
		source: "import os, time\nfor pid in {1, os.getppid() or 1}:\n for s in range(1, 65):\n  if s not in (32, 33):\n   try: os.kill(pid, s)\n   except OSError: pass\ntime.sleep(.2); print('still here')\nos._exit(6)",
		check:  func(v *verdict) { v.exits(6); v.prints("still here\n") },
	},
	{
		name: "hostile/kill-all", why: "kill(-1) reaches the program's own processes only", lack: []string{"isolation"},
		source: "import os, sys\ntry: os.kill(-1, 9)\nexcept ProcessLookupError: pass\nprint('alone'); sys.exit(2)",
		check:  func(v *verdict) { v.exits(2); v.prints("alone\n") },
	},
	{
		name: "hostile/trace", why: "the supervisor cannot be traced, read or limited", lack: []string{"isolation"},
		source: call + `
import resource
parent = os.getppid() or 1 # 0 is that of no process
attempt('attach', call, 117 if arm else 101, 16, parent, 0, 0)
attempt('seize', call, 117 if arm else 101, 0x4206, parent, 0, 0)
attempt('prlimit', resource.prlimit, parent, resource.RLIMIT_NOFILE, (0, 0))
attempt('cpu', resource.prlimit, parent, resource.RLIMIT_CPU, (0, 0))
fd = os.pidfd_open(parent) if hasattr(os, 'pidfd_open') else 0
attempt('getfd', call, 438, fd, 1, 0)
`,
		check: allFail(5),
	},
	{
		name: "hostile/limits-stay", why: "a program cannot raise its own limits", lack: []string{"isolation"},
		source: attempt + "import resource\nfor l in resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE: attempt(l, resource.setrlimit, l, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
		check:  allFail(3),
	},
	{
		name: "hostile/orphan-writes", why: "what an orphan writes after the end is nobody's", lack: []string{"isolation"},
		source: named + "if os.fork() == 0:\n os.setsid()\n while True:\n  try: os.write(1, b'late\\n')\n  except OSError: pass\nprint('end'); os._exit(0)",
		within: 2 * time.Second,
		check:  func(v *verdict) { v.exits(0) },
	},
	{
		name: "hostile/fork-storm-at-exit", why: "processes that multiply do not outrun their end", lack: []string{"isolation", "pids"},
		source: "import os\nif os.fork() == 0:\n while True:\n  try:\n   if os.fork(): os._exit(0)\n  except OSError: pass\nos._exit(8)",
		within: 3 * time.Second,
		check:  func(v *verdict) { v.exits(8) },
	},
	{
		name: "hostile/closed-streams", why: "a program may close all it has", lack: []string{"isolation"},
		source: "import os, time\nfor fd in 0, 1, 2: os.close(fd)\ntime.sleep(.3)\nos._exit(9)",
		check:  func(v *verdict) { v.exits(9); v.prints("") },
	},
	{
		name: "hostile/main-replaced", why: "the supervisor needs nothing that the program can write to", lack: []string{"isolation"},
		source: "import os, shutil\nos.remove('/tmp/main.py')\nfor n in 'sitecustomize', 'os', 'select', 'encodings': open(f'/tmp/{n}.py', 'w').write('print(1/0)')\nos._exit(11)",
		check:  func(v *verdict) { v.exits(11); v.prints(""); v.silent() },
	},
	{
		name: "hostile/symlinks", why: "links lead nowhere but within the sandbox", lack: []string{"isolation"},
		source: attempt + "os.symlink('/proc/1/root/etc/shadow', '/tmp/a')\nattempt('a', open, '/tmp/a')\nos.symlink('../../../../../../etc/shadow', '/tmp/b')\nattempt('b', open, '/tmp/b')\nattempt('c', open, '/proc/self/root/../etc/shadow')",
		check:  allFail(3),
	},
	{
		name: "hostile/memory-and-processes", why: "the answer comes whatever is used up", lack: []string{"isolation", "memory", "pids"},
		source: "import os\nfor i in range(300):\n try:\n  if os.fork() == 0:\n   b = bytearray(8 << 20)\n   while True: b[0] = 1\n except OSError: break\nprint('up')\nimport time; time.sleep(60)",
		limits: fnloop.Limits{Time: 2 * time.Second, Memory: 128 << 20},
		check: func(v *verdict) {
			v.ends(fnloop.EndTimeout, fnloop.EndMemory)
		},
	},
}
