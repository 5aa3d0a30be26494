//go:build linux

package bubblewrap_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
	"github.com/fnloop/fnloop/runners/runnertest"
)

// forking is a runner whose programs are forked from a template.
func forking(t testing.TB, r *bubblewrap.Runner) *bubblewrap.Runner {
	t.Helper()
	open(t, r)
	p, err := r.Protection(t.Context())
	require.NoError(t, err)
	if p.NotForked != "" && os.Getenv("CI") == "" {
		t.Skipf("programs are not forked here: %s", p.NotForked)
	}
	require.Empty(t, p.NotForked)
	return r
}

// elsewhere is a bwrap that no sandbox has, so that nothing can be forked.
func elsewhere(t testing.TB) string {
	t.Helper()
	need(t)
	path, err := exec.LookPath("bwrap")
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path = filepath.Join(dir, "bwrap")
	require.NoError(t, os.WriteFile(path, b, 0o755))
	return path
}

// prints runs a program that must end well.
func prints(t testing.TB, r fnloop.Runner, source string) string {
	t.Helper()
	res, err := r.Run(t.Context(), fnloop.Program{Source: source})
	require.NoError(t, err)
	require.Equal(t, fnloop.EndExit, res.End, res.Text())
	require.Zero(t, *res.ExitCode, res.Text())
	return res.Stdout
}

// Where programs cannot be forked they start an interpreter each, and are held to the
// same.
func TestConformanceNotForked(t *testing.T) {
	for _, warm := range []int{0, 2} {
		t.Run(fmt.Sprintf("warm=%d", warm), func(t *testing.T) {
			r := open(t, &bubblewrap.Runner{Path: elsewhere(t), Warm: warm})
			p, err := r.Protection(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, p.NotForked)
			runnertest.Run(t, func(*testing.T) fnloop.Runner { return pythonAlone{r} })
		})
	}
}

// A program finds the same however it is started, but for what says where its process
// comes from.
func TestForkedIsTheSame(t *testing.T) {
	const look = `import atexit, gc, locale, os, resource, signal, sys, threading
def say(what, value): print(what, repr(value))
for name in 'argv', 'path', 'flags', 'executable', 'prefix', 'base_prefix', 'version', 'warnoptions', 'hash_info', 'float_info': say(name, getattr(sys, name))
say('modules', sorted(sys.modules))
say('names', sorted(globals()))
say('environment', sorted(os.environ.items()))
for name in 'cmdline', 'comm', 'environ', 'limits', 'oom_score_adj', 'uid_map', 'gid_map', 'setgroups', 'personality':
    say(name, open('/proc/self/' + name).read())
say('links', [os.readlink('/proc/self/' + name) for name in ('exe', 'cwd', 'root')])
say('descriptors', [(fd, os.readlink('/proc/self/fd/' + fd).split(':')[0]) for fd in ('0', '1', '2')] + sorted(os.listdir('/proc/self/fd')))
say('signals', [str(signal.getsignal(s)) for s in range(1, 65) if s not in (32, 33)])
say('blocked', signal.pthread_sigmask(signal.SIG_BLOCK, []))
say('umask', os.umask(0))
say('who', (os.getresuid(), os.getresgid(), os.getgroups(), os.getpid(), os.uname()[1]))
say('limits', [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith('RLIMIT_')])
say('streams', [(s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty()) for s in (sys.stdin, sys.stdout, sys.stderr)])
say('interpreter', (sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold(), sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL)))
def attempt(*args):
    try: os.close(os.open(*args))
    except OSError as err: return err.errno
mounts = sorted((f[4], f[3], sorted(f[5].split(',')), f[f.index('-') + 1]) for f in map(str.split, open('/proc/self/mountinfo')) if f[4].startswith('/proc'))
say('covered', mounts)
say('attempts', [(m[0], attempt(m[0], os.O_RDONLY), attempt(m[0], os.O_WRONLY)) for m in mounts])
say('threads', [t.name for t in threading.enumerate()])
say('hooks', atexit._ncallbacks())
say('files', [(d, oct(os.stat(d).st_mode), sorted(set(os.listdir(d)) - {'cat'})) for d in ('/', '/etc', '/dev', '/dev/shm', '/tmp', '/run', '/run/fnloop')])
say('mapped', sorted({line.split(None, 5)[5] for line in open('/proc/self/maps') if len(line.split(None, 5)) > 5}))
sys.stdout.flush()
os.system("python3 -c 'import sys; print(sys.argv, sys.path, sorted(sys.modules))'; env | sort; ulimit -a; umask; ls -l /proc/self/fd | wc -l; cat /proc/net/dev | wc -l")
atexit.register(print, 'at the end')
def f(): 1 / 0
f()
`
	run := func(r *bubblewrap.Runner) string {
		res, err := r.Run(t.Context(), fnloop.Program{Source: look, Stdin: []byte("x")})
		require.NoError(t, err)
		require.Equal(t, 1, *res.ExitCode)
		return res.Stdout + res.Stderr
	}
	for _, modules := range [][]string{nil, {"json", "random"}} {
		forked := run(forking(t, &bubblewrap.Runner{Preload: modules}))
		fresh := run(open(t, &bubblewrap.Runner{Path: elsewhere(t), Preload: modules}))
		if len(modules) > 0 {
			fresh = strings.Replace(fresh, "hooks 0", "hooks 1", 1) // see keep in template.py
			// One is told of its modules by its environment.
			for _, variable := range []string{"FNLOOP_PRELOAD=", "FNLOOP_RLIMITS="} {
				at := strings.Index(fresh, variable)
				require.Positive(t, at)
				fresh = fresh[:at] + fresh[at+strings.Index(fresh[at:], `\x00`)+4:]
			}
		}
		assert.Equal(t, fresh, forked)
	}
}

// What a fork copies is not what programs draw.
func TestForkedRandom(t *testing.T) {
	modules := []string{"multiprocessing", "os", "random", "secrets", "ssl", "tempfile", "uuid"}
	source := `import multiprocessing, os, random, secrets, ssl, tempfile, uuid
print(bytes(multiprocessing.current_process().authkey).hex(), random.random(), random.getrandbits(64), secrets.token_hex(), ssl.RAND_bytes(16).hex(), os.urandom(16).hex(), uuid.uuid1(), uuid.uuid4(), tempfile.mkdtemp(), tempfile.mktemp())
`
	if r := forking(t, new(bubblewrap.Runner)); prints(t, r, "try: import numpy; print(1)\nexcept ImportError: print(0)") == "1\n" {
		modules = append(modules, "numpy")
		source += "import numpy; print(numpy.random.random(), numpy.random.randint(1 << 60), numpy.random.default_rng().random(), numpy.random.get_state()[1][0])"
	}
	r := forking(t, &bubblewrap.Runner{Warm: 2, Preload: modules})
	seen := make(map[string]bool)
	for range 4 {
		for _, drawn := range strings.Fields(prints(t, r, source)) {
			assert.False(t, seen[drawn], "%s was drawn twice", drawn)
			seen[drawn] = true
		}
	}
}

// A program has nothing of the template, of what made its sandbox, or of another.
func TestForkedIsAlone(t *testing.T) {
	const look = `import errno, os, re, signal
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(*[int(status[k], 16) for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')], status['NoNewPrivs'].strip(), status['Seccomp'].strip(), status['Seccomp_filters'].strip() if 'Seccomp_filters' in status else 1)
print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()), sorted(map(int, os.listdir('/proc/self/fd')))[:3])
def attempt(what, f, *args):
    try: f(*args)
    except OSError: return
    print(what, 'succeeded')
attempt('exe', open, '/proc/self/exe', 'r+b')
attempt('exe', os.truncate, '/proc/self/exe', 0)
for name in os.listdir('/proc/self/map_files') if os.access('/proc/self/map_files', os.R_OK) else ():
    attempt(name, open, '/proc/self/map_files/' + name, 'r+b')
for line in open('/proc/self/maps'):
    path = line.split(None, 5)[5].strip() if len(line.split(None, 5)) > 5 else ''
    if path.startswith('/'): attempt(path, open, path, 'r+b')
    if re.match('.w.s', line.split()[1]): print('shares', line)
for name in 'environ', 'mem', 'maps', 'fd', 'fdinfo', 'map_files': attempt(name, lambda p: open(p).read(1) if os.path.isfile(p) else os.listdir(p), '/proc/1/' + name)
for name in 'root', 'cwd', 'exe', 'ns/mnt', 'ns/user', 'ns/pid': attempt(name, os.readlink, '/proc/1/' + name)
attempt('copy', open, '/run/fnloop/cat', 'rb')
attempt('mode', os.chmod, '/run/fnloop/cat', 0o777)
for number in range(1, 65): # of the first process, and of the group that the supervisor could be in
    if number not in (32, 33): attempt('kill', os.kill, 1, number) if number == 0 else None
for number in range(1, 400):
    if number not in (1, os.getpid()): attempt(number, os.kill, number, 0); attempt(number, os.getsid, number)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name in 'user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup':
    for pid in 'self', '1':
        try: fd = os.open('/proc/%s/ns/%s' % (pid, name), os.O_RDONLY)
        except OSError: continue
        if libc.setns(fd, 0) == 0: print('joined', name)
fd = os.pidfd_open(1)
if libc.setns(fd, 0x00020000) == 0 or libc.unshare(0x10000000) == 0: print('left')
for n in 1, 2: # all that a signal for the own group reaches is the program's own
    signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(0, signal.SIGTERM)
print(os.getcwd(), os.getpgrp() == os.getpgid(0), 'end')
pid = os.fork()
if pid == 0: os.setsid(); os.kill(0, signal.SIGKILL)
print(os.waitpid(pid, 0)[1])
`
	for _, warm := range []int{0, 1} {
		r := forking(t, &bubblewrap.Runner{Warm: warm})
		assert.Equal(t, "0 0 0 0 0 1 2 1\n[1, 2] [0, 1, 2]\n/tmp True end\n9\n", prints(t, r, look), "warm=%d", warm)
	}
}

// A group is more than namespaces can part: one that a program signals has nobody else
// in it.
func TestForkedKillsItsGroup(t *testing.T) {
	r := forking(t, new(bubblewrap.Runner))
	for _, source := range []string{"import os; os.kill(0, 9)", "import os; os.killpg(0, 9)", "import os, subprocess; subprocess.run(['sh', '-c', 'kill -9 0'])"} {
		res, err := r.Run(t.Context(), fnloop.Program{Source: source})
		require.NoError(t, err)
		assert.Equal(t, fnloop.EndSignal, res.End, "%s: %s", source, res.Text())
		assert.Equal(t, "SIGKILL", res.Signal)
	}
	assert.Equal(t, "0\n", prints(t, r, "import os; os.setsid(); print(os.getppid())"))
}

// Programs own some files that all of a runner's have. None has the others wait to
// open one.
func TestForkedLeases(t *testing.T) {
	for _, r := range []*bubblewrap.Runner{forking(t, new(bubblewrap.Runner)), open(t, &bubblewrap.Runner{Path: elsewhere(t)})} {
		assert.Equal(t, "0\n", prints(t, r, `import fcntl, os
taken = 0
for name in '/etc/passwd', '/etc/nsswitch.conf', '/tmp/main.py':
    for kind in fcntl.F_WRLCK, fcntl.F_RDLCK:
        try: fcntl.fcntl(os.open(name, os.O_RDONLY), fcntl.F_SETLEASE, kind); taken += 1
        except PermissionError: pass
print(taken)`))
	}
}

// Two programs at once see nothing of each other.
func TestForkedApart(t *testing.T) {
	r := forking(t, new(bubblewrap.Runner))
	up, done := make(chan string, 1), make(chan error, 1)
	go func() {
		res, err := r.Run(t.Context(), fnloop.Program{
			Source: "import os, socket, time\nopen('/tmp/mine', 'w').write('x'); open('/dev/shm/mine', 'w').write('x')\ns = socket.socket(socket.AF_UNIX); s.bind('\\0mine'); s.listen()\nt = socket.create_server(('127.0.0.1', 4567))\nprint('up', flush=True)\nopen('/tmp/end', 'w'); time.sleep(2); print('alive')",
			Stdout: writerFunc(func(p []byte) (int, error) {
				select {
				case up <- string(p):
				default:
				}
				return len(p), nil
			}),
		})
		if err == nil && res.Stdout != "up\nalive\n" {
			err = fmt.Errorf("it printed %s", res.Text())
		}
		done <- err
	}()
	<-up
	assert.Equal(t, "[] ['main.py'] False False [1, 2]\n", prints(t, r, `import os, socket
def can(family, address):
    try: socket.socket(family).connect(address); return True
    except OSError: return False
print(os.listdir('/dev/shm'), os.listdir('/tmp'), can(socket.AF_UNIX, '\0mine'), can(socket.AF_INET, ('127.0.0.1', 4567)), sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))
try: os.kill(-1, 9)
except OSError: pass`))
	require.NoError(t, <-done)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// templates are the processes of this runner's nursery that wait, by their parents:
// one that was forked for a program is no parent of what waits.
func templates(t *testing.T, mark string) (found []int) {
	t.Helper()
	for _, line := range processes(mark) {
		var pid int
		_, err := fmt.Sscanf(line, "/proc/%d", &pid)
		require.NoError(t, err)
		found = append(found, pid)
	}
	return found
}

// reachableVenv is an interpreter with a name of its own that every user can reach.
func reachableVenv(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment: %v\n%s", err, out)
	}
	return dir
}

// A template that is killed takes no program with it, and there is another for the
// next.
func TestTemplateIsKilled(t *testing.T) {
	mark := reachableVenv(t)
	r := forking(t, &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	for range 3 {
		before := templates(t, mark)
		require.NotEmpty(t, before)
		up := make(chan bool, 1)
		done := make(chan string, 1)
		go func() {
			res, err := r.Run(t.Context(), fnloop.Program{
				Source: "import time\nprint('up', flush=True)\ntime.sleep(1)\nprint('end')",
				Stdout: writerFunc(func(p []byte) (int, error) {
					select {
					case up <- true:
					default:
					}
					return len(p), nil
				}),
			})
			done <- fmt.Sprint(res.Stdout, res.End, err)
		}()
		<-up
		for _, pid := range before {
			if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.HasPrefix(string(b), "python") {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		assert.Equal(t, "5\n", prints(t, r, "print(5)"), "the next program")
		assert.Equal(t, "up\nend\nexit<nil>", <-done, "the program that ran")
	}
	p, err := r.Protection(t.Context())
	require.NoError(t, err)
	assert.Empty(t, p.NotForked)
	require.NoError(t, r.Close())
	eventually(t, "nothing of the nurseries is left", func() bool { return len(processes(mark)) == 0 })
}

// A host that is killed leaves nothing, whatever its nursery had come to.
func TestForkingHostIsKilled(t *testing.T) {
	mark := reachableVenv(t)
	forking(t, &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3")}).Close()
	for i := range drill(t, "FNLOOP_TEST_KILLS", 8) {
		cmd := exec.Command(os.Args[0], filepath.Join(mark, "bin/python3"))
		cmd.Env = append(os.Environ(), helper+"=hammer")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		go bufio.NewReader(out).ReadString(0)
		time.Sleep(time.Duration(i+1) * 150 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
	}
	eventually(t, "nothing is left", func() bool { return len(processes(mark)) == 0 })
}

// A thousand programs leave nothing.
func TestForkedLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	mark := reachableVenv(t)
	r := forking(t, &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3"), Warm: 2})
	prints(t, r, "pass")
	files := func() int { fds, _ := os.ReadDir("/proc/self/fd"); return len(fds) }
	before := files()
	programs := make(chan int)
	done := make(chan error, 4)
	for range 4 {
		go func() {
			var failed error
			for i := range programs {
				res, err := r.Run(t.Context(), fnloop.Program{Source: "import os\nif os.fork() == 0: os.setsid(); os.execvp('sleep', ['sleep', '60'])\nprint(6)"})
				if err != nil || res.Stdout != "6\n" {
					failed = fmt.Errorf("program %d: %+v, %w", i, res, err)
				}
			}
			done <- failed
		}()
	}
	for i := range drill(t, "FNLOOP_TEST_PROGRAMS", 1000) {
		programs <- i
	}
	close(programs)
	for range 4 {
		assert.NoError(t, <-done)
	}
	eventually(t, "its descriptors are few", func() bool { return files() <= before+20 })
	require.NoError(t, r.Close())
	eventually(t, "its processes are gone", func() bool { return len(processes(mark)) == 0 })
	eventually(t, "its cgroups are gone", func() bool { return len(cgroups()) == 0 })
}

// Modules that start something are imported by each program by itself.
func TestPreloadNotForked(t *testing.T) {
	mark := reachableVenv(t)
	site, err := filepath.Glob(mark + "/lib/python3*/site-packages")
	require.NoError(t, err)
	for name, source := range map[string]string{
		"threaded": "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
		"opener":   "f = open('/etc/passwd')",
		"sharer":   "import mmap; m = mmap.mmap(-1, 4096); m[:1] = b'x'",
		"forker":   "import os, time\nif os.fork() == 0: time.sleep(1000)",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(site[0], name+".py"), []byte(source+"\nimport os; here = os.getpid()\n"), 0o644))
		r := forking(t, &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3"), Preload: []string{name}})
		assert.Equal(t, "True 2\n", prints(t, r, "import sys; print('"+name+"' in sys.modules, sys.modules['"+name+"'].here); import os; os._exit(0)"), name)
		require.NoError(t, r.Close())
	}
	// What is only code is imported once.
	require.NoError(t, os.WriteFile(filepath.Join(site[0], "plain.py"), []byte("import os; here = os.getpid(); open('/tmp/left', 'w').write('x')"), 0o644))
	r := forking(t, &bubblewrap.Runner{Python: filepath.Join(mark, "bin/python3"), Preload: []string{"plain"}})
	for range 2 {
		assert.Equal(t, "3 x\n", prints(t, r, "import plain; print(plain.here, open('/tmp/left').read()); open('/tmp/left', 'w').write('y')"))
	}
}
