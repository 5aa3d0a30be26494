package docker

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/pylayer"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// killTime bounds how long a kill is tried.
const killTime = 30 * time.Second

// refillDelay is how long after a container was taken the next is begun, unless
// its program has ended: to make one keeps all processors busy for about as long.
const refillDelay = 250 * time.Millisecond

// maxAge is the age at which a container of a program that cannot be asked is
// taken for left behind.
const maxAge = 24 * time.Hour

// searchPath is the search path in a container, before what the image adds to it.
const searchPath = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin:/usr/local/go/bin"

// config is the whole of what a container is made of.
func (r *Runner) config(e *engine, s spec, etc string) (*container.Config, *container.HostConfig) {
	var names []string
	var mounts []mount.Mount
	switch {
	case etc != "":
		for _, file := range slices.Sorted(maps.Keys(etcFiles)) {
			mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: etc + "/" + path.Base(file), Target: file, ReadOnly: true})
		}
	case !e.podman: // which knows a container's own name
		names = []string{supervisor.Hostname + ":127.0.0.1"}
	}
	// -I and -S are the bootstrap's alone, not the program's.
	env, command := s.env(e.path), []string{"-I", "-S", "-c", supervisor.Bootstrap, supervisor.Source}
	if etc != "" {
		env, command = append(env, "PYTHONPATH="+supervisor.Dir), []string{supervisor.Main}
	}
	pids := int64(s.PIDs) + 1 // and the supervisor
	off := false
	ulimit := func(name string, n int64) *container.Ulimit {
		return &container.Ulimit{Name: name, Soft: n, Hard: n}
	}
	// exec, as elsewhere: a program that can run Python needs no executable file
	// to do harm.
	tmpfs := fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,mode=1777", s.Tmp)
	if !e.podman { // which has no such option
		tmpfs += fmt.Sprintf(",nr_inodes=%d", DefaultInodes)
	}
	var health *container.HealthConfig
	if !e.podman { // which would make a timer of this
		health = &container.HealthConfig{Test: []string{"NONE"}}
	}
	return &container.Config{
			Image:    cmp.Or(s.layer, e.image),
			User:     "65534:65534",
			Hostname: supervisor.Hostname,
			// The kernel makes a loopback interface for each container; more is set
			// up for the hosts file only.
			NetworkDisabled: etc != "",
			WorkingDir:      "/tmp",
			Env:             env,
			Entrypoint:      []string{cmp.Or(r.Python, "python3")},
			Cmd:             command,
			AttachStdin:     true, AttachStdout: true, AttachStderr: true,
			OpenStdin: true, StdinOnce: true,
			Healthcheck: health,
			Labels:      e.lease.labels(e.image, time.Now().Add(maxAge)),
		}, &container.HostConfig{
			Runtime:        r.Runtime,
			NetworkMode:    "none",
			ExtraHosts:     names,
			Mounts:         mounts,
			IpcMode:        "private",
			CgroupnsMode:   "private",
			ReadonlyRootfs: true,
			Init:           &off, // see the package comment
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges", "seccomp=" + e.seccomp},
			LogConfig:      container.LogConfig{Type: "none"},
			RestartPolicy:  container.RestartPolicy{Name: "no"},
			OomScoreAdj:    500,
			ShmSize:        s.Tmp,
			Tmpfs:          map[string]string{"/tmp": tmpfs},
			Resources: container.Resources{
				CgroupParent: r.CgroupParent,
				Memory:       s.Memory,
				MemorySwap:   s.Memory, // with swap: that is, none
				NanoCPUs:     int64(s.CPUs * 1e9),
				PidsLimit:    &pids,
				Ulimits: []*container.Ulimit{
					ulimit("nofile", int64(max(s.OpenFiles, DefaultOpenFiles))), ulimit("core", 0), ulimit("fsize", max(s.Tmp, 32<<20)), ulimit("stack", 8<<20),
				},
			},
		}
}

// A sandbox is one container with a supervisor in it that waits for a program.
type sandbox struct {
	e    *engine
	name string
	id   string // empty until the engine has said it
	late bool   // nobody knows whether there is a container

	booting bool                                  // it was started
	fill    func(context.Context, *sandbox) error // called before that, or nil
	etc     string                                // where its files in /etc are from, or empty
	conn    *supervisor.Conn

	stream net.Conn
	out    demux

	watched  chan struct{} // closed when something came from it, or its end
	attended func()        // ends what attend began
	lost     atomic.Pointer[Error]

	kill    sync.Once
	killed  sync.WaitGroup
	alive   context.Context // until it is removed
	removed context.CancelFunc
}

// start makes a container and waits until it is ready.
func (r *Runner) start(ctx context.Context, e *engine, s spec) (*sandbox, error) {
	// A creation that is given up half-way may come to be later. So it is seen
	// through, and the container removed, unless the engine does not answer.
	through, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), e.startup,
		&Error{Host: e.place.host, Err: fmt.Errorf("%w: %w, %v", ErrNotAnswering, errNotReady, e.startup)})
	defer cancel()
	through, done := e.attend(through)
	defer done()
	c, err := r.make(through, e, s)
	// At first the files in /etc may have been removed; then they are of no use.
	for _, mend := range []func(){func() { e.mendEtc(through) }, func() { e.giveUpEtc(err) }} {
		if !c.etcFailed(err) {
			break
		}
		c.abandon()
		mend()
		c, err = r.make(through, e, s)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		stop := context.AfterFunc(ctx, done)
		defer stop()
		err = c.boot(through)
	}
	if err == nil {
		e.cgroups.enter(c.id, e.version, s.Memory)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ended(ctx)
		} else {
			err = r.refused(through, c, err)
		}
		c.abandon()
		return nil, err
	}
	return c, nil
}

// make makes a container and starts it.
func (r *Runner) make(ctx context.Context, e *engine, s spec) (*sandbox, error) {
	c := e.newSandbox()
	if !s.install {
		c.etc = e.etcDir(ctx)
	}
	config, hostConfig := r.config(e, s, c.etc)
	if s.install {
		c.fill = installFolder
		hostConfig.NetworkMode = container.NetworkMode(cmp.Or(r.InstallNetwork, "default"))
		hostConfig.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: pylayer.InstallDir, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}}
		hostConfig.Ulimits = slices.DeleteFunc(hostConfig.Ulimits, func(l *container.Ulimit) bool { return l.Name == "fsize" })
	}
	return c, c.create(ctx, config, hostConfig)
}

// newSandbox is one whose container is yet to be made.
func (e *engine) newSandbox() *sandbox {
	c := &sandbox{e: e, name: e.lease.name(), watched: make(chan struct{})}
	c.alive, c.removed = context.WithCancel(context.Background())
	e.debts.enter(c.name, debt{})
	return c
}

// create makes the container, attaches to its standard streams and starts it.
func (c *sandbox) create(ctx context.Context, config *container.Config, hostConfig *container.HostConfig) error {
	created, err := c.e.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: c.name, Config: config, HostConfig: hostConfig})
	if err != nil {
		if ctx.Err() != nil || unreachable(err) {
			c.late = true // it may be there all the same, or come to be
		}
		return err
	}
	c.id = created.ID
	if c.fill != nil {
		if err := c.fill(ctx, c); err != nil {
			return err
		}
	}
	attached, err := c.e.api.ContainerAttach(ctx, c.name, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	c.stream = attached.Conn
	c.out.r = attached.Reader
	_, err = c.e.api.ContainerStart(ctx, c.name, client.ContainerStartOptions{})
	c.booting = err == nil
	return err
}

// boot waits until the interpreter is ready.
func (c *sandbox) boot(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.stream.Close() })
	defer stop()
	conn, err := supervisor.Connect(c)
	if err != nil {
		return err
	}
	if !stop() {
		return ended(ctx)
	}
	if old := strings.HasPrefix(conn.Python, "3.") && minor(conn.Python) < 8; old || !strings.HasPrefix(conn.Python, "3.") {
		return fmt.Errorf("%w: it is version %s", ErrNoPython, conn.Python)
	}
	c.conn = conn
	// An idle supervisor says nothing: whatever comes before a program was sent
	// is the end.
	go func() {
		_, err := c.out.r.Peek(1) // Read meets the error again
		close(c.watched)
		if err != nil {
			c.e.pool.Prune()
		}
	}()
	c.out.wait = c.watched
	return nil
}

func minor(version string) int {
	f := strings.Split(version, ".")
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// refused makes an Error of why a container did not start, where ctx bounded
// the start.
func (r *Runner) refused(ctx context.Context, c *sandbox, err error) error {
	if bad, ok := errors.AsType[*fnloop.PackageError](err); ok {
		return fmt.Errorf("docker: %w", bad)
	}
	python := cmp.Or(r.Python, "python3")
	e := &Error{Host: c.e.place.host, Err: c.explain(err)}
	said := strings.ToLower(e.Err.Error())
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(said, p) })
	}
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.Is(err, ErrNoPython):
		e.Advice = "use an image with a later Python, such as " + DefaultImage
	case c.booting:
		r.unready(ctx, c, e)
	case errdefs.IsNotFound(err) && has("no such image"):
		e.Err = fmt.Errorf("%w: %w", ErrNoImage, e.Err)
	case has("unknown runtime", "unknown or invalid runtime", "invalid runtime name", "no such runtime"):
		e.Err = fmt.Errorf("%w: %w", ErrRuntime, e.Err)
		e.Advice = "docker info lists the runtimes that the engine knows"
	case has("exec:", "executable file not found", "no such file or directory") && has(strings.ToLower(python)):
		e.Err = fmt.Errorf("%w: %w", ErrNoPython, e.Err)
		e.Advice = "use an image with Python, such as " + DefaultImage
	case unreachable(err):
		return c.e.place.refused(err)
	}
	return e
}

// unready completes e, which says why what was started as an interpreter did not
// get ready, with what the engine knows about it.
func (r *Runner) unready(ctx context.Context, c *sandbox, e *Error) {
	python := cmp.Or(r.Python, "python3")
	state, err := c.ended(ctx)
	_, network := errors.AsType[net.Error](e.Err)
	cut := network || errors.Is(e.Err, io.EOF) || errors.Is(e.Err, io.ErrUnexpectedEOF)
	switch {
	case err != nil:
		if refused, ok := errors.AsType[*Error](c.e.classify(ctx, err)); ok {
			*e = *refused
		}
	case state.OOMKilled:
		e.Err = fmt.Errorf("the memory limit is too small for %s to start: %w", python, e.Err)
	case cut && state.Running:
		e.Err = fmt.Errorf("%w: the connection to a container broke: %w", ErrNotAnswering, e.Err)
	case cut && state.ExitCode == 137:
		e.Err = fmt.Errorf("a container was killed before it was ready: %w", e.Err)
	case cut:
		e.Err = fmt.Errorf("%w: %s ended with status %d before it was ready: %w", ErrNoPython, python, state.ExitCode, e.Err)
		e.Advice = "use an image with Python, such as " + DefaultImage
	case errors.Is(e.Err, supervisor.ErrNotSupervisor):
		e.Err = fmt.Errorf("%w: %s: %w", ErrNoPython, python, e.Err)
		e.Advice = "use an image with Python, such as " + DefaultImage
	}
}

// ended gives the state of a container that has ended or is about to.
func (c *sandbox) ended(ctx context.Context) (*container.State, error) {
	for wait := 10 * time.Millisecond; ; wait *= 2 {
		info, err := c.e.api.ContainerInspect(ctx, c.name, client.ContainerInspectOptions{})
		if err != nil {
			return nil, err
		}
		if s := info.Container.State; s == nil || !s.Running || wait > time.Second {
			return cmp.Or(s, new(container.State)), nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// explain adds to err what the container printed on its standard error.
func (c *sandbox) explain(err error) error {
	if said := c.out.said(); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// Alive implements [pool.Member].
func (c *sandbox) Alive() bool {
	select {
	case <-c.watched:
		return false
	default:
		return c.etc == "" || c.e.etc.useful()
	}
}

// Write writes to the supervisor.
func (c *sandbox) Write(p []byte) (int, error) { return c.stream.Write(p) }

// Read reads from the supervisor.
func (c *sandbox) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if c.attended != nil {
		c.attended()
	}
	return n, err
}

// attend ends the stream when the engine stops to answer before it has passed
// the program on. gone tells that then.
func (c *sandbox) attend(ctx context.Context) {
	watched, done := c.e.attend(ctx)
	stop := context.AfterFunc(watched, func() {
		if err, ok := errors.AsType[*Error](context.Cause(watched)); ok {
			c.lost.Store(err)
			c.stream.Close()
		}
	})
	c.attended = func() { stop(); done() }
}

// gone says that the engine did not answer, or nil.
func (c *sandbox) gone() error {
	c.attended()
	if err := c.lost.Load(); err != nil {
		return err
	}
	return nil
}

// Kill ends every process in the container. The stream ends when the engine
// says that they have.
func (c *sandbox) Kill() {
	c.kill.Do(func() {
		c.killed.Go(func() {
			ctx, cancel := context.WithTimeout(c.alive, killTime)
			defer cancel()
			for wait := firstWait; ; wait *= 2 {
				// The stream of an engine that does not answer stays: what the program
				// printed may be on its way.
				if c.e.cgroups.kill(c.id) && c.Killed() {
					c.endStream()
					return
				}
				_, err := c.e.api.ContainerKill(ctx, c.name, client.ContainerKillOptions{Signal: "KILL"})
				if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
					c.endStream()
					return
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return
				}
			}
		})
	})
}

// endStream ends the stream of a container that was killed, which it may
// outlast.
func (c *sandbox) endStream() {
	time.AfterFunc(500*time.Millisecond, func() { c.stream.Close() })
}

// Killed implements [supervisor.Sandbox]. An engine that answers has the order
// to kill, and may need a while for a container that is full of processes.
func (c *sandbox) Killed() bool {
	ctx, cancel := context.WithTimeout(c.alive, 400*time.Millisecond)
	defer cancel()
	_, err := c.e.api.ContainerInspect(ctx, c.name, client.ContainerInspectOptions{})
	return err == nil || errdefs.IsNotFound(err)
}

// OOMKills implements [supervisor.Sandbox] from what the engine remembers of
// the container's first process and its children.
func (c *sandbox) OOMKills() (int64, bool) {
	ctx, cancel := context.WithTimeout(c.alive, 300*time.Millisecond)
	defer cancel()
	info, err := c.e.api.ContainerInspect(ctx, c.name, client.ContainerInspectOptions{})
	if err != nil || info.Container.State == nil || !info.Container.State.OOMKilled {
		return 0, false // it forgets some
	}
	return 1, true
}

// Remove implements [pool.Member]. An engine that cannot remove the container
// now is asked again later.
func (c *sandbox) Remove() {
	c.removed()
	c.stream.Close() // a supervisor that is left finds its input at its end, and ends
	c.killed.Wait()
	c.end()
	c.e.remove(context.Background(), c.name)
}

// endTime bounds how long a container that is to be removed may take to end by
// itself.
const endTime = 2 * time.Second

// end waits until the engine knows that the container has ended. One that it has
// to kill first costs it one more run of the runtime.
func (c *sandbox) end() {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	wait := c.e.api.ContainerWait(ctx, c.name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select { // one of them comes, at the latest with the end of ctx
	case <-wait.Result:
	case <-wait.Error:
	}
}

// abandon has a container removed that did not get ready. It does not wait.
func (c *sandbox) abandon() {
	c.removed()
	if c.stream != nil {
		c.stream.Close()
	}
	c.e.debts.demand(c.name, c.late)
}

// A demux reads the container's standard output from the stream that has both,
// and keeps the beginning of its standard error.
type demux struct {
	r    *bufio.Reader
	wait <-chan struct{} // nil, or closed when r is free

	left int // bytes of the current frame of standard output

	mu     sync.Mutex
	stderr []byte
}

// Read gives standard output.
func (d *demux) Read(p []byte) (int, error) {
	if d.wait != nil {
		<-d.wait
	}
	for d.left == 0 {
		var head [8]byte
		if _, err := io.ReadFull(d.r, head[:]); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint32(head[4:]))
		if head[0] == 1 || head[0] == 0 {
			d.left = n
			continue
		}
		// Standard error, or word of the engine's own.
		if err := d.keep(n); err != nil {
			return 0, err
		}
	}
	n, err := d.r.Read(p[:min(len(p), d.left)])
	d.left -= n
	return n, err
}

// keep takes a frame of standard error.
func (d *demux) keep(n int) error {
	const most = 4096
	d.mu.Lock()
	room := min(n, most-len(d.stderr))
	d.mu.Unlock()
	b := make([]byte, room)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return err
	}
	d.mu.Lock()
	d.stderr = append(d.stderr, b...)
	d.mu.Unlock()
	_, err := d.r.Discard(n - room)
	return err
}

func (d *demux) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.TrimSpace(string(d.stderr))
}
