package bubblewrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// A sandbox is one bwrap with a supervisor in it that waits for a program.
type sandbox struct {
	spec spec
	conn *supervisor.Conn

	cmd    *exec.Cmd // bwrap; nil for a fork
	fork   *fork     // what it is that was forked from a template, or nil
	in     *os.File  // to the supervisor
	out    *os.File  // from it
	stderr bounded
	stdin  string        // the pipe that is their standard input, such as pipe:[1234]
	exited chan struct{} // bwrap was waited for; nil for a fork
	quiet  chan struct{} // stderr is complete

	mu     sync.Mutex
	init   int      // pidfd of the first process inside, or -1
	space  *os.File // where there is no cgroup, its namespace, whose number so stays its own; or nil
	killed bool

	cgroup *cgroup // nil where there is none
	logger *slog.Logger
}

// start makes a sandbox and waits until it is ready. Where it can be forked from a
// template it is, and where that fails it is made in the other way.
func (h *host) start(caller context.Context, sp spec) (*sandbox, error) {
	// A thousand that are begun at once are all late, and none would be ready
	// within its time.
	select {
	case h.starting <- struct{}{}:
		defer func() { <-h.starting }()
	case <-caller.Done():
		return nil, supervisor.Ended(caller)
	}
	if h.nursery.serves(sp) {
		s, err := h.nursery.start(caller, sp)
		if err == nil {
			return s, nil
		}
		if caller.Err() != nil {
			return nil, supervisor.Ended(caller)
		}
		if _, preload := errors.AsType[*fnloop.PackageError](err); preload {
			return nil, err
		}
		h.warn("a program could not be forked from a template", err)
	}
	return h.startFresh(caller, sp)
}

// startFresh makes a sandbox, with an interpreter that starts in it.
func (h *host) startFresh(caller context.Context, sp spec) (s *sandbox, err error) {
	s = &sandbox{spec: sp, init: -1, logger: h.logger, exited: make(chan struct{}), quiet: make(chan struct{})}
	if h.cgroups != nil {
		if s.cgroup, err = h.cgroups.make(sp.Spec, 1); err != nil {
			return nil, fmt.Errorf("bubblewrap: %w", err)
		}
	}
	info, err := s.spawn(h, h.args(sp), nil)
	if err != nil {
		return nil, fmt.Errorf("bubblewrap: %w", errors.Join(err, s.cgroup.remove()))
	}
	defer info.Close()

	ctx, stop := s.limitBoot(caller, info)
	defer stop()
	err = s.boot(info)
	if err == nil {
		return s, nil
	}
	switch {
	case caller.Err() != nil:
		err = supervisor.Ended(caller)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = s.explain(err)
	}
	return nil, errors.Join(err, s.remove())
}

// limitBoot kills the sandbox at the end of caller or after bootTime, and has the
// reads from f end soon. stop reports whether it came before that.
func (s *sandbox) limitBoot(caller context.Context, f *os.File) (ctx context.Context, stop func() bool) {
	ctx, cancel := context.WithTimeoutCause(caller, bootTime, fmt.Errorf("the interpreter was not ready within %v", bootTime))
	release := context.AfterFunc(ctx, func() {
		f.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		s.Kill()
	})
	return ctx, func() bool {
		defer cancel()
		return release()
	}
}

// A link is a socket that a supervisor has for its input, and for its output.
type link struct{ ours, theirs *os.File }

// spawn starts bwrap and gives the pipe on which it tells the process that it
// started inside. The supervisor has link, or pipes where that is nil.
func (s *sandbox) spawn(h *host, args []string, l *link) (info *os.File, err error) {
	var theirs, ours []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	var inR, inW, outR, outW *os.File
	if l != nil {
		inR, inW, outR, outW = l.theirs, l.ours, l.ours, l.theirs
	} else {
		inR, inW = pipe()
		outR, outW = pipe()
	}
	errR, errW := pipe()
	infoR, infoW := pipe()
	for _, f := range []*os.File{inR, outW, errW, infoW} {
		if f != nil {
			theirs = append(theirs, f)
		}
	}
	for _, f := range []*os.File{inW, outR, errR, infoR} {
		if f != nil {
			ours = append(ours, f)
		}
	}
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(h.bwrap, args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	// No signal at the end of this process: a bwrap that gets one between its
	// fork and its word to what it forked leaves that behind, waiting for ever.
	// It goes on instead, to a supervisor that finds its standard input at its
	// end and ends the sandbox. For the same reason bwrap has a session of its
	// own, out of reach of what the terminal sends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if h.setUser {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{}}
	}
	for i := range h.files {
		f, err := h.open(i)
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, f)
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	// For reading as well: so the pipe does not break under bwrap when this
	// process ends.
	both, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", infoW.Fd()), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, both)
	if s.stdin, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", inR.Fd())); err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, both)

	if err = cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // the status says nothing that the supervisor does not
		close(s.exited)
		// What it had to tell is in the pipe, which a child of it may keep open.
		infoR.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	}()
	s.cmd, s.in, s.out = cmd, inW, outR
	go func() {
		defer close(s.quiet)
		io.Copy(&s.stderr, errR)
		errR.Close()
	}()
	return infoR, nil
}

// boot waits for the first process inside, puts it under the limits, and then
// waits until it is ready. No program runs before.
func (s *sandbox) boot(info *os.File) error {
	var told struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(info).Decode(&told); err != nil {
		return fmt.Errorf("bwrap told no process: %w", err)
	}
	// The process cannot have been replaced by another of that number: bwrap
	// is its parent, and ends right after it has waited for it.
	fd, err := unix.PidfdOpen(told.PID, 0)
	if err != nil {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	var space *os.File
	if s.cgroup == nil {
		space, _ = os.Open(fmt.Sprintf("/proc/%d/ns/pid", told.PID)) // it only helps
	}
	s.mu.Lock()
	s.init, s.space = fd, space
	killed := s.killed
	s.mu.Unlock()
	if killed {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	if s.cgroup != nil {
		if err := s.cgroup.add(told.PID); err != nil {
			return err
		}
	}
	s.conn, err = supervisor.Connect(s)
	return err
}

// explain adds to err what bwrap or the interpreter said on its standard error
// before it ended.
func (s *sandbox) explain(err error) error {
	s.Kill()
	select {
	case <-s.quiet:
	case <-time.After(time.Second):
	}
	if said := s.stderr.bytes(); len(said) > 0 {
		return diagnose(said, err)
	}
	return fmt.Errorf("bubblewrap: %w", err)
}

// run runs p, once, by command if that is not nil.
func (s *sandbox) run(ctx context.Context, h *host, p fnloop.Program, command *supervisor.Command, limits fnloop.Limits, begin time.Time) (fnloop.Result, error) {
	startup := time.Since(begin)
	res, err := s.conn.Run(ctx, p, command, limits, h.rlimits(s.spec))
	res.Startup = startup
	if err != nil && ctx.Err() == nil {
		err = s.explain(err)
	}
	return res, err
}

// Alive implements [pool.Member].
func (s *sandbox) Alive() bool {
	if s.fork != nil {
		return !ended(s.fork.supervisor) && !ended(s.init)
	}
	select {
	case <-s.exited:
		return false
	default:
	}
	return !ended(s.init)
}

// Write writes to the supervisor.
func (s *sandbox) Write(p []byte) (int, error) { return s.in.Write(p) }

// Read reads from the supervisor.
func (s *sandbox) Read(p []byte) (int, error) { return s.out.Read(p) }

// Kill ends every process in the sandbox: they all end with the first. The
// first needs a turn for that, which the others may be many to wait for, so each
// of them is killed as well. While the first is not known yet, it is killed as
// soon as it is.
func (s *sandbox) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	if s.fork != nil && s.fork.supervisor >= 0 {
		unix.PidfdSendSignal(s.fork.supervisor, unix.SIGKILL, nil, 0)
	}
	if s.init < 0 {
		return
	}
	unix.PidfdSendSignal(s.init, unix.SIGKILL, nil, 0)
	switch {
	case s.cgroup != nil:
		s.cgroup.kill()
	case s.space != nil:
		s.killSpace()
	}
}

// killSpace kills the processes of the sandbox's namespace, one by one. What
// begins meanwhile is left to the first process, which gets its turn the sooner.
func (s *sandbox) killSpace() {
	var own, other unix.Stat_t
	if err := unix.Fstat(int(s.space.Fd()), &own); err != nil {
		return
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		// The descriptor comes first: should the number become another's before
		// the namespace is looked at, it is not that other that gets the signal.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if err := unix.Stat("/proc/"+p.Name()+"/ns/pid", &other); err == nil && other.Dev == own.Dev && other.Ino == own.Ino {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
}

// Killed implements [supervisor.Sandbox]: nothing can hold up the kernel.
func (s *sandbox) Killed() bool { return true }

// killUnknown ends a bwrap that never told of a process inside. Killing bwrap
// alone is not enough: a process that it just made is not bound to it yet, and
// would wait for it for ever. It is known by its standard input.
func (s *sandbox) killUnknown() {
	if s.fork != nil {
		if s.cgroup != nil && s.fork.pid != 0 {
			s.cgroup.kill()
		}
		s.fork.killSession()
		return
	}
	s.cmd.Process.Kill()
	select {
	case <-s.exited: // and makes no more
	case <-time.After(time.Second):
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/0")
	for _, f := range files {
		if to, err := os.Readlink(f); err != nil || to != s.stdin {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// OOMKills implements [supervisor.Sandbox].
func (s *sandbox) OOMKills() (int64, bool) {
	if s.cgroup == nil {
		return 0, false
	}
	return s.cgroup.oomKills()
}

// Reached tells the supervisor package whether memory was refused for the
// sandbox's own limit.
func (s *sandbox) Reached() (reached, known bool) {
	if s.cgroup == nil {
		return false, false
	}
	return s.cgroup.reached()
}

// Remove implements [pool.Member].
func (s *sandbox) Remove() {
	if err := s.remove(); err != nil && s.logger != nil {
		s.logger.LogAttrs(context.Background(), slog.LevelWarn, "a sandbox was not removed", slog.Any("err", err))
	}
}

// remove kills what is left in the sandbox and waits until nothing is.
func (s *sandbox) remove() error {
	s.Kill()
	if s.init < 0 {
		s.killUnknown()
	}
	s.in.Close()
	var err error
	if !s.gone(5 * time.Second) {
		// It waits for a process that the kernel does not let go of.
		if s.cmd != nil {
			s.cmd.Process.Kill()
		}
		err = errors.New("bubblewrap: the sandbox outlived its kill by 5s")
	}
	s.out.Close()
	s.mu.Lock()
	if s.init >= 0 {
		unix.Close(s.init)
		s.init = -1
	}
	if s.space != nil {
		s.space.Close()
		s.space = nil
	}
	if s.fork != nil && s.fork.supervisor >= 0 {
		unix.Close(s.fork.supervisor)
		s.fork.supervisor = -1
	}
	s.mu.Unlock()
	return errors.Join(err, s.cgroup.remove())
}

// gone reports whether bwrap and the first process inside, and with it every
// other, have ended within so long.
func (s *sandbox) gone(within time.Duration) bool {
	deadline := time.After(within)
	if s.fork != nil {
		return s.forkGone(deadline)
	}
	for {
		select {
		case <-s.exited:
			if s.init < 0 || ended(s.init) {
				return true
			}
			time.Sleep(time.Millisecond)
		case <-deadline:
			return false
		case <-time.After(50 * time.Millisecond):
			s.Kill() // what was just beginning
		}
	}
}

// forkGone reports whether the supervisor and the first process of the sandbox have
// ended, and with it every other, before the deadline.
func (s *sandbox) forkGone(deadline <-chan time.Time) bool {
	for _, fd := range []int{s.fork.supervisor, s.init} {
		for fd >= 0 && !endedWithin(fd, 50) {
			select {
			case <-deadline:
				return false
			default:
				s.Kill() // what was just beginning
			}
		}
	}
	return true
}

// ended reports whether the process of a pidfd has.
func ended(pidfd int) bool { return endedWithin(pidfd, 0) }

// endedWithin waits for it, so many milliseconds.
func endedWithin(pidfd, ms int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, ms)
	return n > 0 || err != nil && err != unix.EINTR
}

// A bounded keeps the first bytes that are written to it.
type bounded struct {
	mu  sync.Mutex
	buf []byte
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := 4096 - len(b.buf); n > 0 {
		b.buf = append(b.buf, p[:min(n, len(p))]...)
	}
	return len(p), nil
}

// ReadFrom keeps the first bytes of r, and waits for the others.
func (b *bounded) ReadFrom(r io.Reader) (n int64, err error) {
	p := make([]byte, 1024)
	for {
		m, err := r.Read(p)
		_, _ = b.Write(p[:m])
		n += int64(m)
		if err != nil {
			return n, nil
		}
	}
}

func (b *bounded) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf
}
