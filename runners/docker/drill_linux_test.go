package docker_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/runners/docker"
)

// An ownEngine is an engine that belongs to a test, so that it can be stopped,
// killed and started again.
type ownEngine struct {
	t    *testing.T
	dir  string
	host string
	cmd  *exec.Cmd
	cli  *client.Client
}

// newEngine starts an engine that has the test image without its packages.
func newEngine(t *testing.T) *ownEngine {
	t.Helper()
	if testing.Short() {
		t.Skip("an engine of one's own takes a while")
	}
	need := func(err error) {
		if err == nil {
			return
		}
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if os.Getuid() != 0 {
		need(errors.New("an engine is started by root"))
	}
	_, err := exec.LookPath("dockerd")
	need(err)
	open(t, new(docker.Runner)) // there is an image
	dir, err := os.MkdirTemp("/tmp", "fnloop-drill-")
	if err != nil {
		t.Fatal(err)
	}
	e := &ownEngine{t: t, dir: dir, host: "unix://" + dir + "/engine.sock"}
	t.Cleanup(e.remove)
	if e.cli, err = client.New(client.WithHost(e.host)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.cli.Close() })
	e.start()
	e.load()
	return e
}

func (e *ownEngine) start() {
	e.t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	// Its mounts are no concern of the other tests.
	e.cmd = exec.Command("unshare", "--mount", "dockerd", "--data-root", e.dir+"/data", "--exec-root", e.dir+"/exec",
		"--pidfile", e.dir+"/pid", "--host", e.host, "--cgroup-parent", "/"+filepath.Base(e.dir),
		"--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := e.cli.Ping(context.Background(), client.PingOptions{NegotiateAPIVersion: true}); err == nil {
			return
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(log.Name())
			e.t.Fatalf("the engine does not start: %s", said)
		}
	}
}

// kill ends the engine as a crash would. What looks after its containers, and
// they, outlive it.
func (e *ownEngine) kill() {
	e.cmd.Process.Kill()
	e.cmd.Wait()
	// The kernel kills this with the engine. Who reaps it is not the engine, which
	// would wait for it.
	os.Remove(e.dir + "/exec/containerd/containerd.pid")
}

func (e *ownEngine) signal(s syscall.Signal) {
	e.t.Helper()
	if err := e.cmd.Process.Signal(s); err != nil {
		e.t.Fatal(err)
	}
}

func (e *ownEngine) remove() {
	e.cmd.Process.Signal(syscall.SIGCONT)
	e.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { e.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		e.t.Error("the engine does not end")
		e.cmd.Process.Kill()
		<-done
	}
	// What looked after a container when the engine was killed may stay, and is
	// the engine's own. Nothing of a container is.
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && strings.Contains(string(b), e.dir) {
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
			if len(children) > 0 {
				e.t.Errorf("%q has processes: %s", b, children)
			}
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	cgroups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(e.dir))
	for _, dir := range append(cgroups, filepath.Join("/sys/fs/cgroup", filepath.Base(e.dir))) {
		exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
	}
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Error(err)
	}
}

// load copies the image from the engine of the other tests.
func (e *ownEngine) load() {
	e.t.Helper()
	from := engine(e.t)
	made, err := from.ContainerCreate(context.Background(), client.ContainerCreateOptions{
		Config: &container.Config{Image: image(), Cmd: []string{"true"}},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	defer from.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true})
	export, err := from.ContainerExport(context.Background(), made.ID, client.ContainerExportOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	defer export.Close()
	r, w := io.Pipe()
	go func() { w.CloseWithError(slim(w, export)) }()
	imported, err := e.cli.ImageImport(context.Background(), client.ImageImportSource{Source: r, SourceName: "-"}, "slim:latest", client.ImageImportOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	defer imported.Close()
	if _, err := io.Copy(io.Discard, imported); err != nil {
		e.t.Fatal(err)
	}
}

// slim copies what Python needs of a root file system.
func slim(w io.Writer, r io.Reader) error {
	to, from := tar.NewWriter(w), tar.NewReader(r)
	for {
		h, err := from.Next()
		if err == io.EOF {
			return to.Close()
		}
		if err != nil {
			return err
		}
		if h.Size > 20<<20 || strings.Contains(h.Name, "-packages/") || strings.Contains(h.Name, "/share/") {
			continue
		}
		if err := to.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil {
			return err
		}
	}
}

// onlyUsed checks that soon no containers of ours are left but so many.
func (e *ownEngine) onlyUsed(when string, used int) {
	e.t.Helper()
	var left map[string]string
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if left = containers(e.t, e.cli); len(left) <= used {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("%s there are %d containers, want %d", when, len(left), used)
		}
	}
}

// runner is for the engine. It need not be closed by the test.
func (e *ownEngine) runner(r *docker.Runner) *docker.Runner {
	r.Host, r.Image = e.host, "slim:latest"
	e.t.Cleanup(func() { r.Close() })
	return r
}

// works checks that a call works. An engine that was just woken has to work off
// what it was asked meanwhile, and may be too busy for a moment to answer in time.
func works(t *testing.T, when string, r *docker.Runner) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)"})
		if errors.Is(err, docker.ErrNotAnswering) && time.Now().Before(deadline) {
			continue
		}
		if err != nil || res.Stdout != "1\n" {
			t.Fatalf("%s: Run() = %+v, %v", when, res, err)
		}
		return
	}
}

// fails checks that a call fails in time because of the engine.
func fails(t *testing.T, when string, r *docker.Runner, within time.Duration) {
	t.Helper()
	begin := time.Now()
	res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)", Limits: fnloop.Limits{Time: 3 * time.Second}})
	if _, ok := errors.AsType[*docker.Error](err); !ok || !errors.Is(err, docker.ErrNotAnswering) && !errors.Is(err, docker.ErrNoSocket) {
		t.Errorf("%s: Run() = %+v, %v", when, res, err)
	}
	if took := time.Since(begin); took > within {
		t.Errorf("%s: Run() took %v to fail, want %v: %v", when, took, within, err)
	}
}

func TestDrill(t *testing.T) {
	e := newEngine(t)
	t.Run("killed", func(t *testing.T) { e.t = t; drillKilled(t, e) })
	t.Run("frozen", func(t *testing.T) {
		for _, warm := range []int{0, 2} {
			t.Run(fmt.Sprintf("warm %d", warm), func(t *testing.T) { e.t = t; drillFrozen(t, e, warm) })
		}
	})
	t.Run("closed while frozen", func(t *testing.T) { e.t = t; drillClosed(t, e) })
	t.Run("without its volume", func(t *testing.T) { e.t = t; drillVolume(t, e) })
	e.t = t
}

// drillKilled kills the engine while a container is at work and another waits.
func drillKilled(t *testing.T, e *ownEngine) {
	r := e.runner(&docker.Runner{Warm: 1, Startup: 8 * time.Second})
	works(t, "at first", r)
	up := make(chan struct{})
	var once sync.Once
	type answer struct {
		res fnloop.Result
		err error
	}
	call := make(chan answer)
	go func() {
		res, err := r.Run(t.Context(), fnloop.Program{
			Source: "print('up')\nimport time; time.sleep(60)", Limits: fnloop.Limits{Time: time.Minute},
			Stdout: writerFunc(func(b []byte) (int, error) { once.Do(func() { close(up) }); return len(b), nil }),
		})
		call <- answer{res, err}
	}()
	<-up
	eventually(t, "another container waits", func() bool { return len(containers(t, e.cli)) == 2 })
	e.kill()
	killed := time.Now()
	a := <-call
	if took := time.Since(killed); a.err != nil || a.res.End != fnloop.EndLost || took > 3*time.Second {
		t.Errorf("the call: %+v, %v, after %v", a.res, a.err, took)
	}
	fails(t, "while there is no engine", r, 2*time.Second)
	fails(t, "while there is no engine", e.runner(&docker.Runner{}), 2*time.Second)
	e.start()
	works(t, "after the restart", r)
	e.onlyUsed("after the restart", 1)
	if err := r.Close(); err != nil {
		t.Errorf("Close() error = %v", err)
	}
	e.onlyUsed("after Close", 0)
}

// drillFrozen stops the engine while containers are made.
func drillFrozen(t *testing.T, e *ownEngine, warm int) {
	const startup = 8 * time.Second
	r := e.runner(&docker.Runner{Warm: warm, Startup: startup})
	works(t, "at first", r)
	eventually(t, "containers wait", func() bool { return len(containers(t, e.cli)) >= warm })
	e.signal(syscall.SIGSTOP)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { fails(t, "while it is frozen", r, startup+time.Second) })
	}
	wg.Wait()
	time.Sleep(2 * time.Second)
	fails(t, "while it is still frozen", r, startup+time.Second)
	e.signal(syscall.SIGCONT)
	works(t, "after it goes on", r)
	e.onlyUsed("after it goes on", warm)
	if err := r.Close(); err != nil {
		t.Errorf("Close() error = %v", err)
	}
	e.onlyUsed("after Close", 0)
}

// drillClosed closes a runner whose engine is stopped, and looks what the next
// one finds.
func drillClosed(t *testing.T, e *ownEngine) {
	r := e.runner(&docker.Runner{Warm: 1, Startup: 4 * time.Second})
	works(t, "at first", r)
	eventually(t, "a container waits", func() bool { return len(containers(t, e.cli)) == 1 })
	e.signal(syscall.SIGSTOP)
	fails(t, "while it is frozen", e.runner(&docker.Runner{}), 4*time.Second)
	fails(t, "while it is frozen", r, 6*time.Second)
	begin := time.Now()
	if err := r.Close(); err == nil || !strings.Contains(err.Error(), "not removed") {
		t.Errorf("Close() error = %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("Close() took %v", took)
	}
	e.signal(syscall.SIGCONT)
	next := e.runner(new(docker.Runner))
	works(t, "the next runner", next)
	e.onlyUsed("with the next runner", 0)
	if err := next.Close(); err != nil {
		t.Errorf("Close() error = %v", err)
	}
}

// drillVolume removes the volume with the hosts file.
func drillVolume(t *testing.T, e *ownEngine) {
	r := e.runner(new(docker.Runner))
	works(t, "at first", r)
	e.onlyUsed("between calls", 0)
	list, err := e.cli.VolumeList(t.Context(), client.VolumeListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("there are %d volumes, %v", len(list.Items), err)
	}
	if _, err := e.cli.VolumeRemove(t.Context(), list.Items[0].Name, client.VolumeRemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	res, err := r.Run(t.Context(), fnloop.Program{Source: "import socket; print(socket.gethostbyname('localhost'))"})
	if err != nil || res.Stdout != "127.0.0.1\n" {
		t.Errorf("Run() = %+v, %v", res, err)
	}
}

// TestHostDies kills programs that are about to start containers.
func TestHostDies(t *testing.T) {
	open(t, new(docker.Runner))
	cli := engine(t)
	n := 20
	if testing.Short() {
		n = 3
	}
	dead := make(map[string]bool)
	for range n {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), helper+"=starts")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(100+rand.IntN(900)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		dead[fmt.Sprint(cmd.Process.Pid)] = true
	}
	open(t, new(docker.Runner))
	eventually(t, "nothing of the dead programs is left", func() bool {
		for _, pid := range containers(t, cli) {
			if dead[pid] {
				return false
			}
		}
		return true
	})
}
