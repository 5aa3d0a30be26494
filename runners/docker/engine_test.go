package docker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/docker"
)

// helper is the variable that makes another program of the test binary.
const helper = "FNLOOP_TEST_HELPER"

// help is the other program: it leaves two containers behind, one at work and
// one that waits, or starts them without end.
func help() bool {
	switch os.Getenv(helper) {
	case "":
		return false
	case "starts":
		r := &docker.Runner{Image: image(), Warm: 1}
		for range 4 {
			go func() {
				for {
					r.Run(context.Background(), fnloop.Program{Source: "pass"})
				}
			}()
		}
		time.Sleep(time.Minute)
		return true
	}
	r := &docker.Runner{Image: image(), Warm: 1, Time: time.Minute}
	_, err := r.Run(context.Background(), fnloop.Program{Source: "print('up')\nimport time; time.sleep(60)", Stdout: os.Stdout})
	fmt.Println(err)
	return true
}

// engine is a client for what the tests want to know.
func engine(t *testing.T) *client.Client {
	t.Helper()
	cli, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

// containers are ours.
func containers(t *testing.T, cli *client.Client) map[string]string {
	t.Helper()
	list, err := cli.ContainerList(context.Background(), client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", "io.github.fnloop=sandbox"),
	})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, c := range list.Items {
		found[c.ID] = c.Labels["io.github.fnloop.pid"]
	}
	return found
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func TestConfiguration(t *testing.T) {
	r := open(t, &docker.Runner{Warm: 1})
	cli := engine(t)
	pid := fmt.Sprint(os.Getpid())
	var id string
	eventually(t, "a container waits", func() bool {
		for c, p := range containers(t, cli) {
			if p == pid {
				id = c
			}
		}
		return id != "" && r.Probe(t.Context()) == nil
	})
	info, err := cli.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, c := info.Container.HostConfig, info.Container.Config
	for what, ok := range map[string]bool{
		"no network":                          h.NetworkMode == "none" && c.NetworkDisabled,
		"a read-only root":                    h.ReadonlyRootfs,
		"no capabilities":                     len(h.CapDrop) == 1 && h.CapDrop[0] == "ALL" && len(h.CapAdd) == 0,
		"no new privileges":                   strings.HasPrefix(h.SecurityOpt[0], "no-new-privileges"),
		"our seccomp policy":                  strings.HasPrefix(h.SecurityOpt[1], "seccomp={"),
		"bounded processes":                   h.PidsLimit != nil && *h.PidsLimit == docker.DefaultPIDs+1,
		"bounded memory":                      h.Memory == docker.DefaultMemory && h.MemorySwap == h.Memory,
		"a bounded processor":                 h.NanoCPUs == 1e9,
		"a sized /tmp":                        strings.Contains(h.Tmpfs["/tmp"], "size=67108864") && strings.Contains(h.Tmpfs["/tmp"], "nr_inodes=4096"),
		"a sized /dev/shm":                    h.ShmSize == docker.DefaultTmp,
		"limits":                              len(h.Ulimits) == 4,
		"a numeric user":                      c.User == "65534:65534",
		"no log":                              h.LogConfig.Type == "none",
		"nothing of the host but our files":   len(h.Binds) == 0 && ours(h.Mounts) && len(info.Container.Mounts) == len(h.Mounts),
		"no privileges":                       !h.Privileged && h.PidMode == "" && h.UTSMode == "" && h.IpcMode == "private",
		"the supervisor as its first process": h.Init != nil && !*h.Init,
		"no automatic removal":                !h.AutoRemove,
		"labels":                              c.Labels["io.github.fnloop.owner"] != "" && c.Labels["io.github.fnloop.lease"] != "",
		"no terminal":                         !c.Tty,
		"its standard input for us alone":     c.StdinOnce && c.OpenStdin,
	} {
		if !ok {
			t.Errorf("the container lacks %s: %+v", what, h)
		}
	}
}

// ours reports whether there are no mounts but those of our own files.
func ours(mounts []mount.Mount) bool {
	return !slices.ContainsFunc(mounts, func(m mount.Mount) bool {
		return !m.ReadOnly || !slices.Contains([]string{"/etc/hosts", "/etc/pip.conf", "/run/fnloop/sitecustomize.py"}, m.Target) || !strings.Contains(m.Source, "/volumes/fnloop-etc-")
	})
}

func TestOpenFiles(t *testing.T) {
	const source = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
	for n, want := range map[int]string{0: "(256, 256)\n", 16: "(16, 16)\n", 1000: "(1000, 1000)\n"} {
		r := open(t, &docker.Runner{OpenFiles: n})
		if res, err := r.Run(t.Context(), fnloop.Program{Source: source}); err != nil || res.Stdout != want {
			t.Errorf("with OpenFiles %d: Run() = %+v, %v", n, res, err)
		}
	}
	for _, n := range []int{-1, 1, 15} {
		r := &docker.Runner{OpenFiles: n}
		if err := r.Probe(t.Context()); !errors.Is(err, docker.ErrLimits) || !strings.Contains(err.Error(), "OpenFiles") {
			t.Errorf("with OpenFiles %d: Probe() error = %v", n, err)
		}
		r.Close()
	}
}

// Where the files that containers get cannot be mounted, as where the engine's
// host shows no folder of its own, or where programs cannot read them, the engine
// sets up the network and the interpreter writes the supervisor itself.
func TestNoEtc(t *testing.T) {
	open(t, new(docker.Runner))
	unreadable := t.TempDir()
	for _, name := range []string{"hosts", "pip.conf", "sitecustomize.py"} {
		if err := os.WriteFile(filepath.Join(unreadable, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"no folder": "/nonexistent/volumes", "no right to read": unreadable} {
		t.Run(name, func(t *testing.T) { noEtc(t, dir) })
	}
	pid := fmt.Sprint(os.Getpid())
	for id, p := range containers(t, engine(t)) {
		if p == pid {
			t.Errorf("the container %.12s is left", id)
		}
	}
}

// noEtc runs a program where the engine says that the files are in dir.
func noEtc(t *testing.T, dir string) {
	to := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", "/var/run/docker.sock")
	}}
	defer to.CloseIdleConnections()
	var asked atomic.Int64
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: to,
		ModifyResponse: func(r *http.Response) error {
			if strings.Contains(r.Request.URL.Path, "/volumes/fnloop-etc-") && r.StatusCode == http.StatusOK {
				asked.Add(1)
				r.Body.Close()
				r.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"Mountpoint": %q}`, dir)))
				r.ContentLength = -1
				r.Header.Del("Content-Length")
			}
			return nil
		},
	})
	defer s.Close()
	r := &docker.Runner{Host: "tcp://" + s.Listener.Addr().String(), Image: image()}
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import socket; print(socket.gethostbyname('localhost'), socket.gethostbyname(socket.gethostname()))"})
	if err != nil || res.Stdout != "127.0.0.1 127.0.0.1\n" || asked.Load() == 0 {
		t.Errorf("Run() = %+v, %v", res, err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close() error = %v", err)
	}
}

func TestProtection(t *testing.T) {
	r := open(t, new(docker.Runner))
	p, err := r.Protection(t.Context())
	if err != nil || !p.Memory || !p.PIDs {
		t.Errorf("Protection() = %+v, %v", p, err)
	}
	_, unified := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	if want := map[bool]int{true: 2, false: 1}[unified == nil]; p.Cgroup != want {
		t.Errorf("Protection() = %+v; want version %d of cgroups", p, want)
	}
	if _, lacks := r.Lacks()["sockets"]; lacks == p.Sockets {
		t.Errorf("Protection() = %+v and Lacks() = %v", p, r.Lacks())
	}
	if os.Getuid() == 0 && !p.Sockets {
		t.Error("what sockets hold is not bounded, though this is root on the engine's host")
	}
}

func TestCrash(t *testing.T) {
	open(t, new(docker.Runner))
	cli := engine(t)
	type program struct {
		cmd *exec.Cmd
		pid string
	}
	run := func() program {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), helper+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
			t.Fatalf("the helper printed %q, %v", line, err)
		}
		return program{cmd, fmt.Sprint(cmd.Process.Pid)}
	}
	count := func(p program) (n int) {
		for _, pid := range containers(t, cli) {
			if pid == p.pid {
				n++
			}
		}
		return n
	}
	dead, alive := run(), run()
	eventually(t, "each has its containers", func() bool { return count(dead) == 2 && count(alive) == 2 })
	dead.cmd.Process.Kill()
	dead.cmd.Wait()
	// The next start removes what is left.
	open(t, new(docker.Runner))
	if n := count(dead); n != 0 {
		t.Errorf("%d containers of the dead program are left", n)
	}
	if n := count(alive); n != 2 {
		t.Errorf("the living program has %d containers left of 2", n)
	}
	alive.cmd.Process.Kill()
	alive.cmd.Wait()
	open(t, new(docker.Runner))
	if n := count(alive); n != 0 {
		t.Errorf("%d containers of the second dead program are left", n)
	}
}

func TestNothingIsLeft(t *testing.T) {
	cli := engine(t)
	r := &docker.Runner{Image: image(), Warm: 2}
	if err := r.Probe(t.Context()); err != nil {
		open(t, r)
	}
	pid := fmt.Sprint(os.Getpid())
	n := 40
	if testing.Short() {
		n = 12
	}
	var wg sync.WaitGroup
	work := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range work {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if i%3 == 2 {
					// At any point of a container's life.
					ctx, cancel = context.WithTimeout(ctx, time.Duration(i*23%600)*time.Millisecond)
				}
				_, err := r.Run(ctx, fnloop.Program{Source: "import os\nif os.fork() == 0:\n os.setsid()\n while True: pass"})
				if err != nil && ctx.Err() == nil {
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
	if err := r.Close(); err != nil {
		t.Errorf("Close() error = %v", err)
	}
	for id, p := range containers(t, cli) {
		if p == pid {
			t.Errorf("the container %.12s is left", id)
		}
	}
	if _, err := r.Run(t.Context(), fnloop.Program{}); !errors.Is(err, docker.ErrClosed) {
		t.Errorf("Run() error = %v after Close", err)
	}
}

// A first call that is given up at any time is no fault of the engine's.
func TestFirstCallCancelled(t *testing.T) {
	open(t, new(docker.Runner))
	why := errors.New("the user went away")
	for _, after := range []time.Duration{0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377} {
		r := &docker.Runner{Image: image(), Warm: int(after % 2)}
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(after*time.Millisecond, func() { cancel(why) })
		begin := time.Now()
		_, err := r.Run(ctx, fnloop.Program{Source: "import time; time.sleep(60)"})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled after %d ms: Run() error = %v", after, err)
		}
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("cancelled after %d ms: Run() took %v", after, took)
		}
		timer.Stop()
		if err := r.Close(); err != nil {
			t.Errorf("Close() error = %v", err)
		}
	}
	pid := fmt.Sprint(os.Getpid())
	for id, p := range containers(t, engine(t)) {
		if p == pid {
			t.Errorf("the container %.12s is left", id)
		}
	}
}

func TestDeadWarmContainer(t *testing.T) {
	r := open(t, &docker.Runner{Warm: 2})
	cli := engine(t)
	pid := fmt.Sprint(os.Getpid())
	for range 3 {
		eventually(t, "two containers wait", func() bool {
			n := 0
			for _, p := range containers(t, cli) {
				if p == pid {
					n++
				}
			}
			return n >= 2
		})
		time.Sleep(300 * time.Millisecond)
		for id, p := range containers(t, cli) {
			if p == pid {
				cli.ContainerKill(t.Context(), id, client.ContainerKillOptions{Signal: "KILL"})
			}
		}
		res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
		if err != nil || res.Stdout != "1\n" {
			t.Errorf("Run() = %+v, %v", res, err)
		}
	}
}

func TestNoEngine(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "fnloop-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	dead := filepath.Join(dir, "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	silent := filepath.Join(dir, "silent.sock")
	s, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("API-Version", "1.24")
		w.Header().Set("OSType", "linux")
		io.WriteString(w, "OK")
	}))
	t.Cleanup(old.Close)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	tests := map[string]struct {
		host   string
		want   error
		advice string
	}{
		"absent":   {"unix://" + dir + "/absent.sock", docker.ErrNoSocket, "DOCKER_HOST"},
		"dead":     {"unix://" + dead, docker.ErrNotAnswering, "systemctl"},
		"silent":   {"unix://" + silent, docker.ErrNotAnswering, "systemctl"},
		"old":      {"tcp://" + old.Listener.Addr().String(), docker.ErrOldAPI, "19.03"},
		"not ours": {"tcp://" + web.Listener.Addr().String(), docker.ErrNotAnswering, ""},
		"closed":   {"tcp://127.0.0.1:1", docker.ErrNotAnswering, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &docker.Runner{Host: test.host}
			defer r.Close()
			begin := time.Now()
			_, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
			e, ok := errors.AsType[*docker.Error](err)
			if !errors.Is(err, test.want) || !ok || e.Host != test.host || !strings.Contains(e.Advice, test.advice) || !strings.Contains(err.Error(), test.host) {
				t.Errorf("Run() error = %v, want %v", err, test.want)
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("Run() took %v to say so", took)
			}
		})
	}
}

func TestContexts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("DOCKER_CONFIG", dir)
	probe := func() error {
		r := new(docker.Runner)
		defer r.Close()
		return r.Probe(t.Context())
	}
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The name of a folder is the sum of the context's name.
	const sum = "e244f187f696561d5fd7e00f618e7ba641dc52e3c137380f6fa23a854b773aac" // there
	write("config.json", `{"currentContext": "there"}`)
	if err := probe(); err == nil || !strings.Contains(err.Error(), `"there"`) {
		t.Errorf("a context that is not there: %v", err)
	}
	write("contexts/meta/"+sum+"/meta.json", `{"Name": "there", "Endpoints": {"docker": {"Host": "unix:///nonexistent.sock"}}}`)
	if err := probe(); !errors.Is(err, docker.ErrNoSocket) || !strings.Contains(err.Error(), "unix:///nonexistent.sock") {
		t.Errorf("a context: %v", err)
	}
	write("contexts/meta/"+sum+"/meta.json", `{"Endpoints": {"docker": {"Host": "ssh://host"}}}`)
	if err := probe(); err == nil || !strings.Contains(err.Error(), "ssh") {
		t.Errorf("a context through ssh: %v", err)
	}
	t.Setenv("DOCKER_HOST", "unix:///other.sock")
	if err := probe(); !strings.Contains(err.Error(), "unix:///other.sock") {
		t.Errorf("DOCKER_HOST: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	open(t, new(docker.Runner))
	tests := map[string]struct {
		r    *docker.Runner
		want error
	}{
		"no image":   {&docker.Runner{Image: "fnloop-test-absent:latest"}, docker.ErrNoImage},
		"no runtime": {&docker.Runner{Image: image(), Runtime: "nonesuch"}, docker.ErrRuntime},
		"no python":  {&docker.Runner{Image: image(), Python: "python9"}, docker.ErrNoPython},
		"silent":     {&docker.Runner{Image: image(), Python: "/bin/true"}, docker.ErrNoPython},
		"talkative":  {&docker.Runner{Image: image(), Python: "/bin/echo"}, docker.ErrNoPython},
		"refusing":   {&docker.Runner{Image: image(), Python: "/bin/cat"}, docker.ErrNoPython},
		"no program": {&docker.Runner{Image: image(), Python: "/etc/passwd"}, docker.ErrNoPython},
		"a folder":   {&docker.Runner{Image: image(), Python: "/usr"}, docker.ErrNoPython},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			defer test.r.Close()
			res, err := test.r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
			if _, ok := errors.AsType[*docker.Error](err); !ok || !errors.Is(err, test.want) || strings.Contains(err.Error(), "%!") {
				t.Errorf("Run() = %+v, %v; want %v", res, err, test.want)
			}
			t.Log(err)
			if env := test.r.Environment(); env.Python != "" {
				t.Errorf("Environment() = %+v", env)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	r := open(t, new(docker.Runner))
	env := r.Environment()
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import platform; print(platform.python_version())"})
	if err != nil || env.Python == "" || strings.TrimSpace(res.Stdout) != env.Python {
		t.Errorf("Environment() = %+v, the program sees %q, %v", env, res.Stdout, err)
	}
	t.Logf("%+v", env)
}

// A proxy stands between a Runner and the engine and misbehaves.
type proxy struct {
	addr  string
	delay atomic.Int64 // of each new connection, in nanoseconds

	mu    sync.Mutex
	conns []net.Conn
	thaw  chan struct{} // nil, or closed when something may pass again
	wg    sync.WaitGroup
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: "tcp://" + l.Addr().String()}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); p.cut(); p.wg.Wait() })
	return p
}

func (p *proxy) serve(c net.Conn) {
	time.Sleep(time.Duration(p.delay.Load()))
	d, err := net.Dial("unix", "/var/run/docker.sock")
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, d)
	p.mu.Unlock()
	p.wg.Go(func() { p.copy(d, c) })
	p.copy(c, d)
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		thaw := p.thaw
		p.mu.Unlock()
		if thaw != nil {
			<-thaw
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// freeze lets nothing pass any more, and closes nothing.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thaw = make(chan struct{})
}

// cut ends every connection. New ones are as good as new.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
}

// upped runs a program through p that prints "up" and sleeps, and calls then
// once it has.
func upped(t *testing.T, p *proxy, limit time.Duration, then func()) (fnloop.Result, time.Duration, error) {
	t.Helper()
	r := open(t, &docker.Runner{Host: p.addr})
	up := make(chan struct{})
	var once sync.Once
	w := writerFunc(func(b []byte) (int, error) {
		if strings.HasSuffix(string(b), "\n") { // print may write it on its own
			once.Do(func() { close(up) })
		}
		return len(b), nil
	})
	go func() { <-up; then() }()
	begin := time.Now()
	res, err := r.Run(t.Context(), fnloop.Program{
		Source: "print('up')\nimport time; time.sleep(60)", Stdout: w, Limits: fnloop.Limits{Time: limit},
	})
	once.Do(func() { close(up) })
	return res, time.Since(begin) - res.Startup, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestProxyPasses(t *testing.T) {
	p := newProxy(t)
	res, took, err := upped(t, p, time.Second, func() {})
	if err != nil || res.End != fnloop.EndTimeout || res.Stdout != "up\n" || took > 3*time.Second {
		t.Errorf("Run() = %+v, %v, after %v", res, err, took)
	}
}

func TestConnectionCut(t *testing.T) {
	p := newProxy(t)
	res, took, err := upped(t, p, 10*time.Second, p.cut)
	if err != nil || res.End != fnloop.EndLost || res.Stdout != "up\n" || res.ExitCode != nil || res.TimedOut {
		t.Errorf("Run() = %+v, %v", res, err)
	}
	if took > 3*time.Second {
		t.Errorf("Run() took %v", took)
	}
}

func TestConnectionFrozen(t *testing.T) {
	p := newProxy(t)
	res, took, err := upped(t, p, 2*time.Second, p.freeze)
	if err != nil || res.End != fnloop.EndLost || res.Stdout != "up\n" || res.TimedOut {
		t.Errorf("Run() = %+v, %v", res, err)
	}
	if took > 4*time.Second {
		t.Errorf("Run() took %v", took)
	}
	p.cut() // so that the container can be removed
}

func TestEngineDies(t *testing.T) {
	p := newProxy(t)
	r := open(t, &docker.Runner{Host: p.addr})
	p.freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	begin := time.Now()
	if res, err := r.Run(ctx, fnloop.Program{Source: "print(1)"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run() = %+v, %v", res, err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Run() took %v", took)
	}
	p.cut()
}

func TestSlowEngine(t *testing.T) {
	p := newProxy(t)
	p.delay.Store(int64(200 * time.Millisecond))
	res, took, err := upped(t, p, time.Second, func() {})
	if err != nil || res.End != fnloop.EndTimeout || res.Stdout != "up\n" || took > 3*time.Second {
		t.Errorf("Run() = %+v, %v, after %v", res, err, took)
	}
}

// TestPull has an engine that knows no image before it was pulled.
func TestPull(t *testing.T) {
	var pulls atomic.Int64
	answer := `{"status":"Pulling from library/python","id":"3.12-slim"}
{"status":"Downloading","progressDetail":{"current":10,"total":100},"id":"abc"}
{"errorDetail":{"message":"toomanyrequests: slow down"},"error":"toomanyrequests: slow down"}
`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("API-Version", "1.47")
		w.Header().Set("OSType", "linux")
		w.Header().Set("Content-Type", "application/json")
		switch path := req.URL.Path; {
		case strings.HasSuffix(path, "/_ping"):
			io.WriteString(w, "OK")
		case strings.HasSuffix(path, "/info"):
			json.NewEncoder(w).Encode(map[string]any{"MemTotal": 1 << 40, "MemoryLimit": true, "PidsLimit": true})
		case strings.HasSuffix(path, "/images/create"):
			pulls.Add(1)
			io.WriteString(w, answer)
		default:
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"message":"No such image: `+docker.DefaultImage+`"}`)
		}
	}))
	defer s.Close()
	var seen []docker.Progress
	r := &docker.Runner{Host: "tcp://" + s.Listener.Addr().String(), Progress: func(p docker.Progress) { seen = append(seen, p) }}
	defer r.Close()
	if _, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"}); !errors.Is(err, docker.ErrNoImage) || pulls.Load() != 0 {
		t.Errorf("Run() error = %v after %d pulls", err, pulls.Load())
	}
	err := r.Prepare(t.Context())
	if !errors.Is(err, docker.ErrNoImage) || !strings.Contains(err.Error(), "toomanyrequests") || pulls.Load() != 1 {
		t.Errorf("Prepare() error = %v after %d pulls", err, pulls.Load())
	}
	if len(seen) != 2 || seen[1] != (docker.Progress{Image: docker.DefaultImage, Layer: "abc", Status: "Downloading", Current: 10, Total: 100}) {
		t.Errorf("Progress was told %+v", seen)
	}
}

// What is below zero is refused before the engine hears of it.
func TestNegativeLimits(t *testing.T) {
	for _, r := range []*docker.Runner{{PIDs: -1}, {PIDs: -2}, {Tmp: -1}, {CPUs: -1}, {CPUs: math.NaN()}, {Warm: -1}, {Startup: -1}} {
		r.Host = "unix:///nonexistent.sock"
		if err := r.Probe(t.Context()); !errors.Is(err, docker.ErrLimits) {
			t.Errorf("Probe() error = %v", err)
		}
		r.Close()
	}
	for _, r := range []*docker.Runner{{Time: -1}, {Memory: -1}} {
		if _, err := r.Run(t.Context(), fnloop.Program{Source: "pass"}); !isProgramError(err) {
			t.Errorf("Run() error = %v", err)
		}
		r.Close()
	}
}

func isProgramError(err error) bool {
	_, ok := errors.AsType[*fnloop.ProgramError](err)
	return ok
}

// An engine that cannot enforce a limit is not used behind the caller's back.
func TestUnlimitedEngine(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("API-Version", "1.47")
		if strings.HasSuffix(req.URL.Path, "/info") {
			json.NewEncoder(w).Encode(map[string]any{"MemTotal": 1 << 40, "PidsLimit": true})
		}
	}))
	defer s.Close()
	r := &docker.Runner{Host: "tcp://" + s.Listener.Addr().String()}
	defer r.Close()
	if err := r.Probe(t.Context()); !errors.Is(err, docker.ErrLimits) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("Probe() error = %v", err)
	}
}
