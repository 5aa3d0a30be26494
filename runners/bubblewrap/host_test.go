//go:build linux

package bubblewrap_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/bubblewrap"
)

// helper is the variable that makes another program of the test binary.
const helper = "FNLOOP_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "":
		goleak.VerifyTestMain(m)
	case "sleep":
		helpSleep()
	case "protection":
		helpProtection()
	case "hammer":
		helpHammer()
	case "hog":
		helpHog()
	case "session":
		helpSession()
	case "crowd":
		helpCrowd()
	case "preload":
		helpPreload()
	}
}

// helpSleep runs a program that says when it is up, and then sleeps.
func helpSleep() {
	r := &bubblewrap.Runner{Time: time.Minute}
	_, err := r.Run(context.Background(), fnloop.Program{
		Source: "import os\nif os.fork() == 0: os.setsid()\nos.write(1, b'up\\n')\nos.execv('/bin/sleep', ['" + os.Args[1] + "', '60'])",
		Stdout: os.Stdout,
	})
	fmt.Println(err)
}

// helpHammer makes calls without end, cold and warm ones.
func helpHammer() {
	for _, r := range []*bubblewrap.Runner{{Python: os.Args[1]}, {Python: os.Args[1], Warm: 2}} {
		for range 4 {
			go func() {
				for {
					_, err := r.Run(context.Background(), fnloop.Program{Source: "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass", Limits: fnloop.Limits{Time: 20 * time.Millisecond}})
					if err != nil {
						fmt.Println(err)
					}
				}
			}()
		}
	}
	select {}
}

// helpCrowd runs four programs at once that leave the first processes of their
// sandboxes as little of the machine as they can, and says how long after its
// limit something of them was left.
func helpCrowd() {
	const limit = 2 * time.Second
	r := new(bubblewrap.Runner)
	defer r.Close()
	fmt.Println(r.Probe(context.Background()))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprintf("fnloop-crowd-%d-%d", os.Getpid(), i)
			begin := time.Now()
			res, err := r.Run(context.Background(), fnloop.Program{Limits: fnloop.Limits{Time: limit}, Source: `import os
try: open('/proc/self/autogroup', 'w').write('19')
except OSError: pass
if os.fork() == 0: os.setsid(); os.execv('/bin/sleep', ['` + name + `', '60'])
for i in range(1000):
    try: child = os.fork()
    except OSError: break
    if child == 0:
        os.setsid()
        while True: pass
while True: pass
`})
			if err != nil || res.End != fnloop.EndTimeout {
				fmt.Printf("Run() = %+v, %v\n", res, err)
			}
			for len(slices.DeleteFunc(processes(name), func(s string) bool { return !strings.Contains(s, name+" 60") })) > 0 {
				time.Sleep(10 * time.Millisecond)
			}
			fmt.Println("in time:", time.Since(begin)-res.Startup-limit < 3*time.Second)
		})
	}
	wg.Wait()
}

// helpHog waits for a line and runs a program that takes all memory there is.
func helpHog() {
	bufio.NewReader(os.Stdin).ReadString('\n')
	r := new(bubblewrap.Runner)
	defer r.Close()
	res, err := r.Run(context.Background(), fnloop.Program{Source: "b = []\nwhile 1: b.append(bytearray(1 << 22))"})
	fmt.Printf("%s %s%v\n", res.End, res.Stderr, err)
}

// helpProtection says what protects the programs of whoever runs it.
func helpProtection() {
	r := new(bubblewrap.Runner)
	defer r.Close()
	p, err := r.Protection(context.Background())
	fmt.Printf("uid=%d cgroup=%d missing=%d err=%v\n", p.UID, p.Cgroup, len(p.Missing), err)
	res, err := r.Run(context.Background(), fnloop.Program{Source: "import os\nprint(os.getuid())\nn = 0\ntry:\n for i in range(1000):\n  if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '9'])\n  n += 1\nexcept OSError: pass\nprint(n < 200)\ntry: bytearray(600 << 20)\nexcept MemoryError: print('MemoryError')"})
	fmt.Printf("%q %q %v\n", res.Stdout, res.End, err)
}

// helpPreload says what bounds a module that is imported before the program.
func helpPreload() {
	r := &bubblewrap.Runner{Python: os.Args[1], Preload: []string{"greedy"}, PIDs: 77, Memory: 300 << 20}
	defer r.Close()
	res, err := r.Run(context.Background(), fnloop.Program{Source: "import greedy; print(*greedy.bounds)"})
	fmt.Printf("%s%s %v\n", res.Stdout, res.Stderr, err)
}

// processes are those with word in their command line.
func processes(word string) (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), word) {
			found = append(found, filepath.Dir(f)+" "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func TestSandboxDiesWithTheHost(t *testing.T) {
	need(t)
	const name = "fnloop-test-orphan"
	cmd := exec.Command(os.Args[0], name)
	cmd.Env = append(os.Environ(), helper+"=sleep")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "up\n" {
		t.Errorf("the helper printed %q, %v", line, err)
	}
	sleeping := func() []string {
		return slices.DeleteFunc(processes(name), func(s string) bool { return !strings.Contains(s, name+" 60") })
	}
	eventually(t, "two processes sleep", func() bool { return len(sleeping()) == 2 })
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "they are gone", func() bool { return len(sleeping()) == 0 })
}

// drill is how often a drill is repeated: n times, or as the variable of that
// name says.
func drill(t *testing.T, variable string, n int) int {
	t.Helper()
	if s := os.Getenv(variable); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return n
}

// A host that is killed while it makes sandboxes leaves none, whatever each of
// them had come to.
func TestHostIsKilled(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	mark := venv(t)
	kills := 12
	if testing.Short() {
		kills = 4
	}
	for range drill(t, "FNLOOP_TEST_KILLS", kills) {
		cmd := exec.Command(os.Args[0], filepath.Join(mark, "bin/python3"))
		cmd.Env = append(os.Environ(), helper+"=hammer")
		said := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = said, said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50*time.Millisecond + rand.N(500*time.Millisecond))
		cmd.Process.Kill()
		cmd.Wait()
		if said.Len() > 0 {
			t.Errorf("the host said %s", said)
		}
	}
	var found []string
	ok := func() bool { found = processes(mark); return len(found) == 0 }
	for deadline := time.Now().Add(5 * time.Second); !ok() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if len(found) > 0 {
		t.Errorf("%d processes are left: %q", len(found), found)
	}
	// The next start removes the cgroups.
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	// A host of another PID namespace may be alive though its number is nobody's here.
	for _, dir := range cgroupsNamed("fnloop." + strings.Trim(namespace, "pid:[]") + ".*") {
		// Those in another cgroup are of hosts that were started there.
		if _, within, _ := strings.Cut(strings.TrimPrefix(filepath.Dir(dir), "/sys/fs/cgroup/"), "/"); !strings.Contains(string(own), ":/"+within+"\n") {
			continue
		}
		var pid int
		if f := strings.Split(filepath.Base(dir), "."); len(f) != 5 {
			t.Errorf("%s has the name of no cgroup of ours", dir)
		} else if pid, _ = strconv.Atoi(f[2]); syscall.Kill(pid, 0) == syscall.ESRCH {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left", dir)
			}
		}
	}
}

// A program that the kernel kills for a limit around the sandbox did not reach
// its own, and is not told that it did.
func TestMemoryOfTheHost(t *testing.T) {
	p, err := open(t, new(bubblewrap.Runner)).Protection(t.Context())
	if err != nil || p.Cgroup != 1 {
		t.Skipf("no cgroup of version 1 to put a host into: %+v, %v", p, err)
	}
	around := filepath.Join(filepath.Dir(ownCgroup(t)), fmt.Sprintf("test-around-%d", os.Getpid()))
	if err := os.Mkdir(around, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		eventually(t, "the cgroup around is removed", func() bool { return syscall.Rmdir(around) == nil })
	})
	if err := os.WriteFile(around+"/memory.limit_in_bytes", []byte("160M"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"=hog")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(around+"/cgroup.procs", fmt.Append(nil, cmd.Process.Pid), 0o644); err != nil {
		t.Error(err)
	}
	io.WriteString(in, "go\n")
	err = cmd.Wait()
	if got, want := out.String(), "host_memory [killed: the host of the sandbox was out of memory]\n<nil>\n"; err != nil || got != want {
		t.Errorf("the host says %q, %v; want %q", got, err, want)
	}
}

// ownCgroup is where the cgroups of this process are made.
func ownCgroup(t *testing.T) string {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(own)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); f[1] == "memory" {
			return filepath.Join("/sys/fs/cgroup/memory", f[2], "x")
		}
	}
	t.Fatal("no memory controller")
	return ""
}

// venv makes an interpreter of the test's own, whose name marks its sandboxes.
func venv(t *testing.T) string {
	t.Helper()
	mark := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", mark).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment: %v\n%s", err, out)
	}
	return mark
}

// Programs are root outside where root alone can get at the interpreter. The kernel
// lets root write to its settings without any capability, and to those of the first
// process, such as how soon it is killed for want of memory.
func TestSettingsOfTheKernel(t *testing.T) {
	const look = `import os
for base, dirs, files in os.walk("/proc"):
    dirs[:] = [d for d in dirs if not d.isdigit() and d not in ("self", "thread-self")]
    for name in (os.path.join(base, f) for f in files):
        try: os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK))
        except OSError: continue
        print(name)
for base in ["/proc/1"] + ["/proc/1/task/" + t for t in os.listdir("/proc/1/task")]:
    for name in (os.path.join(base, f) for f in os.listdir(base)):
        try:
            if os.stat(name).st_mode & 0o100002 == 0o100000: # the rest is everybody's to open
                os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK))
                print(name)
        except OSError: pass
print(open("/proc/self/oom_score_adj").read().strip())
print(open("/proc/sys/kernel/hostname").read().strip())`
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			r := open(t, new(bubblewrap.Runner))
			if closed {
				if os.Geteuid() != 0 {
					t.Skip("the host is not root")
				}
				mark := venv(t)
				if err := os.Chmod(filepath.Dir(mark), 0o700); err != nil {
					t.Fatal(err)
				}
				r.Python = filepath.Join(mark, "bin/python3")
				if p, err := r.Protection(t.Context()); err != nil || p.UID != 0 {
					t.Fatalf("Protection() = %+v, %v; want root outside", p, err)
				}
			}
			res, err := r.Run(t.Context(), fnloop.Program{Source: look})
			if err != nil || res.Stdout != "1000\nsandbox\n" {
				t.Errorf("Run() = %+v, %v; want nothing that can be written to", res, err)
			}
		})
	}
}

func TestUnprivileged(t *testing.T) {
	const want = "uid=12345 cgroup=0 missing=1 err=<nil>\n\"65534\\nTrue\\nMemoryError\\n\" \"exit\" <nil>\n"
	if out := unprivileged(t, "protection"); out != want {
		t.Errorf("an unprivileged host has\n%s, want\n%s", out, want)
	}
}

// Without a cgroup the processes of a sandbox are killed one by one, and share the
// processors with all others of the machine.
func TestUnprivilegedCrowd(t *testing.T) {
	const want = "<nil>\nin time: true\nin time: true\nin time: true\nin time: true\n"
	if out := unprivileged(t, "crowd"); out != want {
		t.Errorf("an unprivileged host says\n%s, want\n%s", out, want)
	}
}

// Without a cgroup a module of Preload has the limits of the program.
func TestUnprivilegedPreload(t *testing.T) {
	mark, err := os.MkdirTemp("/tmp", "fnloop-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(mark) })
	os.Chmod(mark, 0o755)
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", mark).CombinedOutput(); err != nil {
		t.Skipf("no virtual environment: %v\n%s", err, out)
	}
	site, _ := filepath.Glob(mark + "/lib/python3*/site-packages")
	const greedy = "import resource as r\nbounds = [r.getrlimit(n) for n in (r.RLIMIT_NPROC, r.RLIMIT_DATA)]\n"
	if err := os.WriteFile(filepath.Join(site[0], "greedy.py"), []byte(greedy), 0o644); err != nil {
		t.Fatal(err)
	}
	const want = "(77, 77) (314572800, 314572800)\n <nil>\n"
	if out := unprivileged(t, "preload", mark+"/bin/python3"); out != want {
		t.Errorf("an unprivileged host says\n%s, want\n%s", out, want)
	}
}

// unprivileged runs a helper as a user without rights and gives what it prints.
func unprivileged(t *testing.T, mode string, args ...string) string {
	t.Helper()
	need(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else")
	}
	dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	program := filepath.Join(dir, "helper")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{helper + "=" + mode, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345, NoSetGroups: false}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the helper ended by %v", err)
	}
	return string(out)
}

func TestInheritedDescriptors(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	// As a library in C, or whoever started this process, may have left it.
	fd, err := syscall.Open("/etc", syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import os\nfor fd in range(3, 256):\n try: print(fd, os.open('shadow', 0, dir_fd=fd))\n except OSError: pass"})
	if err != nil || res.Stdout != "" || res.End != fnloop.EndExit {
		t.Errorf("Run() = %+v, %v", res, err)
	}
}

func TestSecretsStayOutside(t *testing.T) {
	t.Setenv("FNLOOP_SECRET", "hunter2")
	r := open(t, new(bubblewrap.Runner))
	res, err := r.Run(t.Context(), fnloop.Program{Source: `import glob, os
found = 'hunter2' in str(os.environ)
for f in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):
    try: found |= b'hunter' + b'2' in open(f, 'rb').read()
    except OSError: pass
print(found)`})
	if err != nil || res.Stdout != "False\n" {
		t.Errorf("Run() = %+v, %v", res, err)
	}
}

// own matches the names of the cgroups of this process.
func own() string { return fmt.Sprintf("fnloop.*.%d.*", os.Getpid()) }

// cgroups are those of this process.
func cgroups() []string { return cgroupsNamed(own()) }

func cgroupsNamed(pattern string) (found []string) {
	for _, above := range []string{"", "*/", "*/*/", "*/*/*/"} {
		m, _ := filepath.Glob("/sys/fs/cgroup/" + above + pattern)
		found = append(found, m...)
	}
	return found
}

// left counts what runs of this process could leave behind.
func left(t *testing.T, mark string) map[string]int {
	t.Helper()
	count := func(pattern string) int {
		m, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		return len(m)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	// Others mount things as well. bwrap builds its root in newroot, and every
	// sandbox of this test has the interpreter in it.
	var mounted int
	for line := range strings.Lines(string(mounts)) {
		for _, ours := range []string{"/newroot", "/oldroot", mark} {
			if strings.Contains(line, ours) {
				mounted++
				break
			}
		}
	}
	var children int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		if b, err := os.ReadFile(f); err == nil {
			if _, rest, ok := strings.Cut(string(b), ") "); ok && strings.Fields(rest)[1] == fmt.Sprint(os.Getpid()) {
				children++
			}
		}
	}
	return map[string]int{
		"descriptors": count("/proc/self/fd/*"),
		"goroutines":  runtime.NumGoroutine(),
		"children":    children,
		"mounts":      mounted,
		"cgroups":     len(cgroups()),
		"sandboxes":   len(processes(mark)),
	}
}

func TestNothingIsLeft(t *testing.T) {
	checkNothingIsLeft(t, new(bubblewrap.Runner), func(*bubblewrap.Runner) {})
}

func TestNothingIsLeftWarm(t *testing.T) {
	checkNothingIsLeft(t, &bubblewrap.Runner{Warm: 3}, func(r *bubblewrap.Runner) {
		// What is kept ready is not left behind: wait until all of it is.
		if _, err := r.Run(t.Context(), fnloop.Program{Source: "pass"}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
	})
}

func TestDeadWarmSandbox(t *testing.T) {
	mark := venv(t)
	r := open(t, &bubblewrap.Runner{Warm: 2, Python: filepath.Join(mark, "bin/python3")})
	for range 5 {
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		for _, p := range processes(mark) {
			var pid int
			fmt.Sscanf(p, "/proc/%d ", &pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
		res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
		if err != nil || res.Stdout != "1\n" {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	}
}

func checkNothingIsLeft(t *testing.T, r *bubblewrap.Runner, settle func(*bubblewrap.Runner)) {
	t.Helper()
	open(t, r)
	// An interpreter of its own marks the processes of this test.
	mark := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", mark).CombinedOutput(); err != nil {
		t.Logf("no virtual environment: %v\n%s", err, out)
		mark = "nothing is marked"
	} else {
		r.Python = filepath.Join(mark, "bin/python3")
	}
	programs := []fnloop.Program{
		{Source: "print(1)"},
		{Source: "import os; os.abort()"},
		{Source: "import os\nif os.fork() == 0:\n os.setsid()\n while True: pass"},
		{Source: "while True: pass", Limits: fnloop.Limits{Time: 50 * time.Millisecond}},
		{Source: "print(1)", Stdin: make([]byte, 1<<20)},
		{Source: "while True: print('x' * 1000)", Limits: fnloop.Limits{Time: 100 * time.Millisecond}, Stdout: io.Discard},
		{Source: "x ="},
	}
	n := 300
	switch {
	case os.Getenv("CI") == "true":
		n = 1000
	case testing.Short():
		n = 60
	}
	run := func(n int) {
		var wg sync.WaitGroup
		work := make(chan int)
		for range 4 {
			wg.Go(func() {
				for i := range work {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if i%9 == 8 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(i%40)*time.Millisecond)
					}
					if _, err := r.Run(ctx, programs[i%len(programs)]); err != nil && ctx.Err() == nil {
						t.Errorf("Run() error = %v", err)
					}
					cancel()
				}
			})
		}
		for i := range n {
			work <- i
		}
		close(work)
		wg.Wait()
		settle(r)
	}
	run(40)
	before := left(t, mark)
	run(n)
	var after map[string]int
	eventually(t, "as much is left as before", func() bool {
		after = left(t, mark)
		for what, n := range after {
			if n > before[what] {
				t.Logf("%s: %d, were %d", what, n, before[what])
				return false
			}
		}
		return true
	})
}

// Calls of every kind, cold and warm, while somebody kills parts of their
// sandboxes: the answers are right or say that the sandbox was lost, and nothing
// is left. FNLOOP_TEST_SOAK is how many calls.
func TestSoak(t *testing.T) {
	mark := venv(t)
	python := filepath.Join(mark, "bin/python3")
	runners := []*bubblewrap.Runner{open(t, &bubblewrap.Runner{Python: python}), open(t, &bubblewrap.Runner{Python: python, Warm: 3})}
	for _, r := range runners {
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n := 200
	if testing.Short() {
		n = 60
	}
	n = drill(t, "FNLOOP_TEST_SOAK", n)
	stop := make(chan struct{})
	var killer sync.WaitGroup
	kills := 0
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(60 * time.Millisecond)):
			}
			// The first processes inside, those of programs, and bwrap itself.
			if found := processes(mark); len(found) > 0 {
				var pid int
				fmt.Sscanf(found[rand.N(len(found))], "/proc/%d ", &pid)
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					kills++
				}
			}
		}
	})
	var lost, failed, cancelled atomic.Int64
	var wg sync.WaitGroup
	work := make(chan int)
	for range 6 {
		wg.Go(func() {
			for i := range work {
				r := runners[i%2]
				word := fmt.Sprint("word-", i)
				p := fnloop.Program{Source: "import os, sys\nif os.fork() == 0:\n os.setsid()\n while True: pass\nprint(sys.stdin.read())", Stdin: []byte(word)}
				want := word + "\n"
				ctx, cancel := context.WithCancel(t.Context())
				switch rand.N(6) {
				case 0:
					time.AfterFunc(rand.N(150*time.Millisecond), cancel)
				case 1:
					p.Source += "\nsys.stdout.flush()\nwhile True: pass"
					p.Limits.Time = 50 * time.Millisecond
				case 2:
					p.Source = "print('" + word + "'); os = __import__('os'); os.kill(os.getpid(), 11)"
				}
				res, err := r.Run(ctx, p)
				switch {
				case errors.Is(err, context.Canceled) && ctx.Err() != nil:
					cancelled.Add(1)
				case err != nil:
					failed.Add(1)
				case res.End == fnloop.EndLost || res.End == fnloop.EndSignal && res.Signal == "SIGKILL":
					lost.Add(1)
				case res.End == fnloop.EndTimeout && want != res.Stdout:
					// It may have been too short.
				case res.Stdout != want || res.OOM == fnloop.EvidenceYes:
					t.Errorf("Run() = %+v, want the output %q", res, want)
				}
				cancel()
			}
		})
	}
	for i := range n {
		if t.Failed() {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	close(stop)
	killer.Wait()
	t.Logf("%d calls and %d kills: %d cancelled, %d lost their sandbox, %d failed", n, kills, cancelled.Load(), lost.Load(), failed.Load())
	for _, r := range runners {
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	}
	var after map[string]int
	eventually(t, "nothing is left", func() bool {
		after = left(t, mark)
		return after["children"]+after["mounts"]+after["cgroups"]+after["sandboxes"] == 0
	})
}

// Runners of one process are not in each other's way.
func TestTwoRunners(t *testing.T) {
	var wg sync.WaitGroup
	for _, r := range []*bubblewrap.Runner{open(t, new(bubblewrap.Runner)), open(t, &bubblewrap.Runner{Warm: 2}), open(t, new(bubblewrap.Runner))} {
		wg.Go(func() {
			for range 20 {
				res, err := r.Run(t.Context(), fnloop.Program{Source: "b = bytearray(1 << 20)\nprint(1)"})
				if err != nil || res.Stdout != "1\n" || res.OOM == fnloop.EvidenceYes {
					t.Errorf("Run() = %+v, %v", res, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestClosed(t *testing.T) {
	need(t)
	r := new(bubblewrap.Runner)
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	}
	if res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"}); err == nil {
		t.Errorf("Run() = %+v after Close", res)
	}
}

func TestEnvironment(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Time: time.Minute, Memory: 64 << 20, Tmp: 8 << 20})
	env := r.Environment()
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import platform; print(platform.python_version())"})
	if err != nil || strings.TrimSpace(res.Stdout) != env.Python || env.Python == "" {
		t.Errorf("Environment() = %+v, the program sees %q, %v", env, res.Stdout, err)
	}
	if want := (fnloop.Limits{Time: time.Minute, Memory: 64 << 20}); env.Limits != want || res.Limits != want || env.Network || env.Writable != "/tmp (8 MiB)" {
		t.Errorf("Environment() = %+v, Limits = %v", env, res.Limits)
	}
}

// Whatever other interpreters this machine has must do as well.
func TestPythons(t *testing.T) {
	home, _ := os.UserHomeDir()
	found, _ := filepath.Glob(home + "/.pyenv/versions/3.*/bin/python3")
	if venv := filepath.Join(t.TempDir(), "venv"); exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", venv).Run() == nil {
		found = append(found, filepath.Join(venv, "bin/python3"))
	}
	if len(found) == 0 {
		t.Skip("this machine has one interpreter only")
	}
	for _, python := range found {
		t.Run(python, func(t *testing.T) {
			r := open(t, &bubblewrap.Runner{Python: python})
			p, err := r.Protection(t.Context())
			if e, ok := errors.AsType[*bubblewrap.Error](err); ok && strings.Contains(e.Missing, "3.8") {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			res, err := r.Run(t.Context(), fnloop.Program{Source: "import sys, ssl, ctypes, hashlib, multiprocessing as m\ndef f(x): return x + 1\nif __name__ == '__main__':\n m.set_start_method('spawn')\n with m.Pool(1) as p: print(p.map(f, [1]), sys.executable)\n raise SystemExit(3)"})
			if err != nil || res.Stdout != "[2] "+p.Python+"\n" || res.Stderr != "" || res.ExitCode == nil || *res.ExitCode != 3 {
				t.Errorf("Run() = %+v, %v", res, err)
			}
		})
	}
}

// imposter writes a program that takes bwrap's place.
func imposter(t *testing.T, script string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "bwrap")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo bubblewrap ${VERSION:-0.8.0} && exit\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name, said, missing, advice string
	}{
		{"ubuntu", "bwrap: setting up uid map: Permission denied", "permission to use user namespaces", "apparmor_restrict_unprivileged_userns"},
		{"ubuntu net", "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "permission to use user namespaces", "AppArmor"},
		{"unit net", "bwrap: loopback: Failed to create NETLINK_ROUTE socket: Address family not supported by protocol", "loopback", "RestrictAddressFamilies"},
		{"docker", "bwrap: Creating new namespace failed: Operation not permitted", "permission to make namespaces", "seccomp"},
		{"sysctl", "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.", "permission to make namespaces", "unprivileged_userns_clone"},
		{"old sysctl", "bwrap: No permissions to creating new namespace, likely because the kernel does not allow non-privileged user namespaces. On e.g. debian this can be enabled with 'sysctl kernel.unprivileged_userns_clone=1'.", "permission to make namespaces", "unprivileged_userns_clone"},
		{"processes", "bwrap: Creating new namespace failed: Resource temporarily unavailable", "processes", "ulimit -u"},
		{"processes inside", "bwrap: Can't fork for pid 1: Resource temporarily unavailable", "processes", "TasksMax"},
		{"namespaces", "bwrap: Creating new namespace failed: No space left on device", "room for namespaces", "max_user_namespaces"},
		{"nested namespaces", "bwrap: unshare user ns: No space left on device", "room for namespaces", "max_user_namespaces"},
		{"new words for it", "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", "room for namespaces", "max_user_namespaces"},
		{"kernel", "bwrap: Creating new namespace failed: Invalid argument", "kernel with namespaces", "CONFIG_USER_NS"},
		{"gvisor", "bwrap: Creating new namespace failed: Function not implemented", "kernel with namespaces", "CONFIG_USER_NS"},
		{"no seccomp", "bwrap: Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported EINVAL. (Hint: this requires a kernel configured with CONFIG_SECCOMP and CONFIG_SECCOMP_FILTER.)", "seccomp filters", "CONFIG_SECCOMP_FILTER"},
		{"proc", "bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "permission to mount /proc", "systempaths=unconfined"},
		{"apparmor in a container", "bwrap: Failed to make / slave: Permission denied", "permission to mount", "apparmor=unconfined"},
		{"seccomp in a container", "bwrap: pivot_root: Operation not permitted", "permission to mount", "seccomp"},
		{"tmpfs", "bwrap: Failed to mount tmpfs: Operation not permitted", "permission to mount", "security.nesting"},
		{"remount", "bwrap: Can't remount readonly on /newroot/usr: Permission denied", "permission to mount", "apparmor"},
		{"chroot", "bwrap: Failed to make / slave: Invalid argument", "root that is a mount", "chroot"},
		{"initramfs", "bwrap: pivot_root: Invalid argument", "root that is a mount", "RAM disk"},
		{"proot", "bwrap: fchdir to oldroot: No such file or directory", "kernel that mounts", "PRoot"},
		{"capabilities", "bwrap: Unexpected capabilities but not setuid, old file caps config?", "without capabilities", "ambient"},
		{"home", "bwrap: Can't find source path /home/user/venv: Permission denied", "permission to read", "interpreter"},
		{"gone", "bwrap: Can't find source path /opt/libs: No such file or directory", "folder", "Binds"},
		{"old", "bwrap: Unknown option --disable-userns", "takes its options", "0.8"},
		{"setuid", "bwrap: The --size option is not permitted in setuid mode", "takes its options", "setuid"},
		{"python", "bwrap: execvp /opt/python/bin/python3: No such file or directory", "interpreter", "Python"},
		{"libraries", "/opt/p/bin/python3: error while loading shared libraries: libpython3.12.so.1.0: cannot open shared object file: No such file or directory", "libraries", "Binds"},
		{"memory", "bwrap: Creating new namespace failed: Cannot allocate memory", "memory", "cgroup"},
		{"files", "bwrap: Can't open /proc: Too many open files", "open files", "ulimit -n"},
		{"other", "bwrap: something new", "sandbox", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := open(t, &bubblewrap.Runner{Path: imposter(t, "cat >&2 <<'END'\n"+test.said+"\nEND\nexit 1\n")})
			for range 2 {
				_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
				e, ok := errors.AsType[*bubblewrap.Error](err)
				if !ok || !strings.Contains(e.Missing, test.missing) || !strings.Contains(e.Advice, test.advice) || !strings.Contains(err.Error(), test.said) {
					t.Errorf("Run() error = %v", err)
				}
			}
		})
	}
}

// openBwrap drops what isolates from what the real one is asked for.
func openBwrap(t *testing.T) string {
	t.Helper()
	real, err := exec.LookPath("bwrap")
	if err != nil {
		t.Skip(err)
	}
	return imposter(t, "for a; do shift; case $a in --unshare-all) set -- \"$@\" --unshare-pid --unshare-uts;; *) set -- \"$@\" \"$a\";; esac; done\nexec "+real+" \"$@\"\n")
}

func TestRefusesWhatIsNotThere(t *testing.T) {
	need(t)
	for name, test := range map[string]struct {
		r       *bubblewrap.Runner
		missing string
	}{
		"bwrap":          {&bubblewrap.Runner{Path: "/nonexistent/bwrap"}, "bubblewrap"},
		"python":         {&bubblewrap.Runner{Python: "/nonexistent/python"}, "Python"},
		"not python":     {&bubblewrap.Runner{Python: "/bin/true"}, "working Python"},
		"cgroup":         {&bubblewrap.Runner{Cgroup: "/nonexistent"}, "cgroup"},
		"old bwrap":      {&bubblewrap.Runner{Path: imposter(t, "") + ".old"}, "bubblewrap"},
		"silent bwrap":   {&bubblewrap.Runner{Path: imposter(t, "exit 1\n")}, ""},
		"an open bwrap":  {&bubblewrap.Runner{Path: openBwrap(t)}, "isolation"},
		"not even bwrap": {&bubblewrap.Runner{Path: "/bin/true"}, "bubblewrap 0.7"},
	} {
		t.Run(name, func(t *testing.T) {
			defer test.r.Close()
			err := test.r.Probe(t.Context())
			e, ok := errors.AsType[*bubblewrap.Error](err)
			if err == nil || test.missing != "" && (!ok || !strings.Contains(e.Missing, test.missing)) {
				t.Errorf("Probe() error = %v", err)
			}
			if env := test.r.Environment(); env.Python != "" {
				t.Errorf("Environment() = %+v", env)
			}
		})
	}
}

// What a bwrap that died had made and never told of is not left behind.
func TestUntoldChild(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Path: imposter(t, "exec 3<&0\nsleep 6107 <&3 &\nexit 1\n")})
	begin := time.Now()
	if err := r.Probe(t.Context()); err == nil {
		t.Error("Probe() succeeded")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("Probe() took %v", took)
	}
	eventually(t, "nothing is left", func() bool { return len(processes("sleep\x006107")) == 0 })
}

// The first call finds out about the host by running programs. When it is
// cancelled, nothing is wrong with them.
func TestCancelFirstCall(t *testing.T) {
	need(t)
	step := 3 * time.Millisecond
	if testing.Short() {
		step = 9 * time.Millisecond
	}
	for after := time.Duration(0); after < 150*time.Millisecond; after += step {
		r := new(bubblewrap.Runner)
		why := errors.New("the user left")
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(after, func() { cancel(why) })
		_, err := r.Run(ctx, fnloop.Program{Source: "import time; time.sleep(60)"})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("cancelled after %v: Run() error = %v", after, err)
		}
		timer.Stop()
		cancel(nil)
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	}
}

// A bwrap that never becomes a sandbox is given up at the caller's word.
func TestCancelDuringStart(t *testing.T) {
	r := open(t, &bubblewrap.Runner{Path: imposter(t, "exec sleep 60\n")})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := r.Run(ctx, fnloop.Program{Source: "print(1)"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run() error = %v", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Run() took %v", took)
	}
}

// What the host program ignores and hides is nothing to programs.
func TestInheritedState(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	signal.Ignore(syscall.SIGQUIT, syscall.SIGUSR1)
	defer signal.Reset(syscall.SIGQUIT, syscall.SIGUSR1)
	defer syscall.Umask(syscall.Umask(0o077))
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import os, signal\nprint(oct(os.umask(0)), [s.name for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN])\nos.kill(os.getpid(), signal.SIGQUIT)"})
	if err != nil || res.Signal != "SIGQUIT" || res.Stdout != "0o22 ['SIGPIPE', 'SIGXFSZ']\n" {
		t.Errorf("Run() = %+v, %v", res, err)
	}
}

func TestImpossibleLimits(t *testing.T) {
	for _, r := range []*bubblewrap.Runner{{PIDs: -1}, {PIDs: math.MaxInt}, {Tmp: -1}, {CPUs: -1}, {CPUs: math.Inf(1)}, {CPUs: math.NaN()}, {Warm: -1}} {
		if err := open(t, r).Probe(t.Context()); err == nil || !strings.Contains(err.Error(), "limits that can be") {
			t.Errorf("Probe() error = %v", err)
		}
	}
	for _, r := range []*bubblewrap.Runner{{Time: -1}, {Memory: -1}} {
		_, err := open(t, r).Run(t.Context(), fnloop.Program{Source: "pass"})
		if _, ok := errors.AsType[*fnloop.ProgramError](err); !ok {
			t.Errorf("Run() error = %v", err)
		}
	}
}

func TestCPUs(t *testing.T) {
	r := open(t, &bubblewrap.Runner{CPUs: 0.25})
	if p, err := r.Protection(t.Context()); err != nil || p.Cgroup == 0 {
		t.Skipf("no cgroup: %+v, %v", p, err)
	}
	res, err := r.Run(t.Context(), fnloop.Program{Source: `import os, time
end = time.monotonic() + 2
child = os.fork()
while time.monotonic() < end: pass
if child == 0: os._exit(0)
os.wait()
print(sum(os.times()[:4]) < 1)`})
	if err != nil || res.Stdout != "True\n" {
		t.Errorf("Run() = %+v, %v; two processes had more than half of one processor", res, err)
	}
}

func TestOpenFiles(t *testing.T) {
	for _, n := range []int{limitOfFiles, 16} {
		r := open(t, &bubblewrap.Runner{OpenFiles: n})
		res, err := r.Run(t.Context(), fnloop.Program{Source: "import os\nn = 3\ntry:\n while n < 10000: os.open('/tmp', 0); n += 1\nexcept OSError: pass\nprint(n)"})
		if err != nil || res.Stdout != fmt.Sprintln(n) {
			t.Errorf("OpenFiles %d: Run() = %+v, %v", n, res, err)
		}
	}
	for _, n := range []int{-1, 4, math.MaxInt32} {
		err := open(t, &bubblewrap.Runner{OpenFiles: n}).Probe(t.Context())
		if err == nil || !strings.Contains(err.Error(), "OpenFiles") {
			t.Errorf("OpenFiles %d: Probe() error = %v", n, err)
		}
	}
}

// limitOfFiles is more than the default.
const limitOfFiles = 700

func TestBinds(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	os.WriteFile(dir+"/data", []byte("shared"), 0o644)
	r := open(t, &bubblewrap.Runner{Binds: []string{dir}})
	res, err := r.Run(t.Context(), fnloop.Program{Source: "print(open('" + dir + "/data').read())\nopen('" + dir + "/x', 'w')"})
	if err != nil || res.Stdout != "shared\n" || !strings.Contains(res.Stderr, "Read-only") {
		t.Errorf("Run() = %+v, %v", res, err)
	}
	for _, bad := range []string{"/", "here", "/.."} {
		r := &bubblewrap.Runner{Binds: []string{bad}}
		if err := r.Probe(t.Context()); err == nil {
			t.Errorf("%q was bound", bad)
		}
		r.Close()
	}
}

func TestSmallMemory(t *testing.T) {
	r := open(t, new(bubblewrap.Runner))
	_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)", Limits: fnloop.Limits{Memory: 1 << 20}})
	if _, ok := errors.AsType[*fnloop.ProgramError](err); !ok {
		t.Errorf("Run() error = %v", err)
	}
	_, err = r.Run(t.Context(), fnloop.Program{Source: strings.Repeat("#", 5<<20), Limits: fnloop.Limits{Memory: bubblewrap.MinMemory}})
	if e, ok := errors.AsType[*fnloop.ProgramError](err); !ok || e.Field != "source" {
		t.Errorf("Run() error = %v for a source that /tmp has no room for", err)
	}
	res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)", Limits: fnloop.Limits{Memory: bubblewrap.MinMemory}})
	if err != nil || res.Stdout != "1\n" {
		t.Errorf("Run() = %+v, %v", res, err)
	}
}
