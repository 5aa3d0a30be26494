package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/fnloop/fnloop/internal/supervisor"
)

// apiTime bounds every question to the engine that nobody waits for.
const apiTime = 30 * time.Second

// maxAge is the age at which a container of a program that cannot be asked is
// taken for left behind.
const maxAge = 24 * time.Hour

// A spec is what a container is made to, beside what all of a runner's are.
type spec struct {
	memory int64
	tmp    int64
}

// path is the search path in a container.
const path = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"

// config is the whole of what a container is made of.
func (r *Runner) config(e *engine, s spec) (*container.Config, *container.HostConfig) {
	pids := int64(or(r.PIDs, DefaultPIDs)) + 1 // and the supervisor
	off := false
	ulimit := func(name string, n int64) *container.Ulimit {
		return &container.Ulimit{Name: name, Soft: n, Hard: n}
	}
	// exec, as elsewhere: a program that can run Python needs no executable file
	// to do harm.
	tmpfs := fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,mode=1777", s.tmp)
	if !e.podman { // which has no such option
		tmpfs += fmt.Sprintf(",nr_inodes=%d", DefaultInodes)
	}
	var health *container.HealthConfig
	if !e.podman { // which would make a timer of this
		health = &container.HealthConfig{Test: []string{"NONE"}}
	}
	return &container.Config{
			Image:      e.image,
			User:       "65534:65534",
			Hostname:   "sandbox",
			WorkingDir: "/tmp",
			Env:        supervisor.Env(path),
			Entrypoint: []string{or(r.Python, "python3")},
			// -I and -S are the bootstrap's alone, not the program's.
			Cmd:         []string{"-I", "-S", "-c", supervisor.Bootstrap, supervisor.Source},
			AttachStdin: true, AttachStdout: true, AttachStderr: true,
			OpenStdin: true, StdinOnce: true,
			Healthcheck: health,
			Labels:      e.lease.labels(e.image, time.Now().Add(maxAge)),
		}, &container.HostConfig{
			Runtime:        r.Runtime,
			NetworkMode:    "none",
			IpcMode:        "private",
			CgroupnsMode:   "private",
			ReadonlyRootfs: true,
			Init:           &off, // see the package comment
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges", "seccomp=" + e.seccomp},
			LogConfig:      container.LogConfig{Type: "none"},
			RestartPolicy:  container.RestartPolicy{Name: "no"},
			OomScoreAdj:    500,
			ShmSize:        s.tmp,
			Tmpfs:          map[string]string{"/tmp": tmpfs},
			Resources: container.Resources{
				CgroupParent: r.CgroupParent,
				Memory:       s.memory,
				MemorySwap:   s.memory, // with swap: that is, none
				NanoCPUs:     int64(or(r.CPUs, DefaultCPUs) * 1e9),
				PidsLimit:    &pids,
				Ulimits: []*container.Ulimit{
					ulimit("nofile", 256), ulimit("core", 0), ulimit("fsize", max(s.tmp, 32<<20)), ulimit("stack", 8<<20),
				},
			},
		}
}

// A sandbox is one container with a supervisor in it that waits for a program.
type sandbox struct {
	e      *engine
	id     string
	conn   *supervisor.Conn
	logger *slog.Logger

	stream net.Conn
	out    demux

	watched chan struct{} // closed when something came from it, or its end

	kill   sync.Once
	killed sync.WaitGroup
}

// start makes a container and waits until it is ready.
func (r *Runner) start(ctx context.Context, e *engine, s spec) (*sandbox, error) {
	limit := or(r.Startup, DefaultStartup)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: a container was not ready within %v", ErrNotAnswering, limit))
	defer cancel()
	config, hostConfig := r.config(e, s)
	name := e.lease.name()
	c := &sandbox{e: e, id: name, logger: r.Logger, watched: make(chan struct{})}
	if err := c.create(ctx, name, config, hostConfig); err != nil {
		if c.id != name || ctx.Err() != nil || client.IsErrConnectionFailed(err) {
			// It is there, or may be all the same, or may yet come to be.
			c.Remove()
		}
		return nil, c.refused(ctx, err)
	}
	if err := c.boot(ctx); err != nil {
		err = c.refused(ctx, err)
		c.Remove()
		return nil, err
	}
	return c, nil
}

func (c *sandbox) create(ctx context.Context, name string, config *container.Config, hostConfig *container.HostConfig) error {
	created, err := c.e.api.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: config, HostConfig: hostConfig})
	if err != nil {
		return err
	}
	c.id = created.ID
	attached, err := c.e.api.ContainerAttach(ctx, c.id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return err
	}
	c.stream = attached.Conn
	c.out.r = attached.Reader
	_, err = c.e.api.ContainerStart(ctx, c.id, client.ContainerStartOptions{})
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
		return context.Cause(ctx)
	}
	if old := strings.HasPrefix(conn.Python, "3.") && minor(conn.Python) < 8; old || !strings.HasPrefix(conn.Python, "3.") {
		return fmt.Errorf("%w: it is version %s", ErrNoPython, conn.Python)
	}
	c.conn = conn
	// An idle supervisor says nothing: whatever comes before a program was sent
	// is the end.
	go func() {
		defer close(c.watched)
		_, _ = c.out.r.Peek(1) // Read meets the error again
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

// refused makes an Error of why a container did not start.
func (c *sandbox) refused(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if errors.Is(err, ErrNotAnswering) {
			return &Error{Host: c.e.host, Err: err}
		}
		return err
	}
	e := &Error{Host: c.e.host, Err: c.explain(err)}
	said := e.Err.Error()
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(strings.ToLower(said), p) {
				return true
			}
		}
		return false
	}
	switch {
	case errdefs.IsNotFound(err) && has("no such image"):
		e.Err = fmt.Errorf("%w: %w", ErrNoImage, e.Err)
	case has("unknown runtime", "unknown or invalid runtime", "invalid runtime name", "no such runtime"):
		e.Err = fmt.Errorf("%w: %w", ErrRuntime, e.Err)
		e.Advice = "docker info lists the runtimes that the engine knows"
	case has("executable file not found", "no such file or directory") && has("python"):
		e.Err = fmt.Errorf("%w: %w", ErrNoPython, e.Err)
		e.Advice = "use an image with Python, such as " + DefaultImage
	case has("modulenotfounderror", "no module named", "bad interpreter", "syntaxerror"):
		e.Err = fmt.Errorf("%w: %w", ErrNoPython, e.Err)
		e.Advice = "the image's Python is too old or not whole"
	case client.IsErrConnectionFailed(err):
		e.Err = fmt.Errorf("%w: %w", ErrNotAnswering, e.Err)
	}
	return e
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
		return true
	}
}

// Write writes to the supervisor.
func (c *sandbox) Write(p []byte) (int, error) { return c.stream.Write(p) }

// Read reads from the supervisor.
func (c *sandbox) Read(p []byte) (int, error) { return c.out.Read(p) }

// Kill ends every process in the container. The stream ends when the engine
// says that they have.
func (c *sandbox) Kill() {
	c.kill.Do(func() {
		c.killed.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), apiTime)
			defer cancel()
			for wait := 50 * time.Millisecond; ; wait *= 2 {
				_, err := c.e.api.ContainerKill(ctx, c.id, client.ContainerKillOptions{Signal: "KILL"})
				if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
					// A stream may outlast its container.
					time.AfterFunc(500*time.Millisecond, func() { c.stream.Close() })
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

// Killed implements [supervisor.Sandbox]. An engine that answers has the order
// to kill, and may need a while for a container that is full of processes.
func (c *sandbox) Killed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	_, err := c.e.api.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	return err == nil || errdefs.IsNotFound(err)
}

// OOMKills implements [supervisor.Sandbox] from what the engine remembers of
// the container's first process and its children.
func (c *sandbox) OOMKills() (int64, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	info, err := c.e.api.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil || info.Container.State == nil || !info.Container.State.OOMKilled {
		return 0, false // it forgets some
	}
	return 1, true
}

// Remove implements [pool.Member].
func (c *sandbox) Remove() {
	if c.stream != nil {
		c.stream.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiTime)
	defer cancel()
	err := c.remove(ctx)
	c.killed.Wait()
	if err != nil && c.logger != nil {
		c.logger.LogAttrs(ctx, slog.LevelWarn, "a container was not removed", slog.String("container", c.id), slog.Any("err", err))
	}
}

func (c *sandbox) remove(ctx context.Context) error {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		_, err := c.e.api.ContainerRemove(ctx, c.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil:
			return nil
		case errdefs.IsNotFound(err) && (c.stream != nil || wait > time.Second):
			// It is gone, or a creation that was given up did not come late.
			return nil
		case errdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress"):
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
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
