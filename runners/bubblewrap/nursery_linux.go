package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// maxFailures is after how many sandboxes in a row that could not be made in a
// nursery no more is tried.
const maxFailures = 3

// A nursery is a sandbox in which a template waits: an interpreter that has started,
// and imported what is to be imported ahead. For each program it is forked into a
// sandbox that bwrap makes within the nursery.
type nursery struct {
	host *host
	spec spec
	each string // the modules that each child imports, and not the template

	mu       sync.Mutex
	template *sandbox   // nil where there is none
	retired  []*sandbox // whose template is gone, and whose programs may be running
	failed   int        // in a row
	closed   bool
	work     sync.WaitGroup
}

// A fork is what a sandbox has that is a template's child.
type fork struct {
	supervisor int // pidfd, or -1
	pid        int // its number
}

// cat is what the first process of a forked sandbox is: it ends when the supervisor,
// which is outside, does. It is a copy that cannot be read, so that the programs
// cannot look into the process.
const cat = supervisor.Dir + "/cat"

// maxCat is more than the file of any cat has, in bytes.
const maxCat = 16 << 20

// findCat reads the file of cat.
func findCat() ([]byte, error) {
	for _, path := range []string{"/usr/bin/cat", "/bin/cat"} {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if info.Size() > maxCat {
			return nil, fmt.Errorf("%s has %d bytes", path, info.Size())
		}
		b, err := os.ReadFile(path)
		if err == nil && !strings.HasPrefix(string(b[:min(len(b), 4)]), "\x7fELF") {
			err = fmt.Errorf("%s is no program of the machine's", path)
		}
		return b, err
	}
	return nil, fs.ErrNotExist
}

// openNursery finds out whether programs can be forked from a template here, by
// running one.
func (r *Runner) openNursery(ctx context.Context, h *host) (*nursery, error) {
	switch path, err := filepath.EvalSymlinks(h.bwrap); {
	case err != nil:
		return nil, err
	case h.noCat != nil:
		return nil, h.noCat
	case !h.disableUserns:
		return nil, errors.New("bwrap cannot turn off user namespaces")
	case !h.setUser && os.Geteuid() == 0:
		return nil, errors.New("programs are root outside")
	case !strings.HasPrefix(path, "/usr/") || strings.HasPrefix(path, "/usr/src/") || strings.HasPrefix(path, "/usr/local/") && !h.local:
		return nil, fmt.Errorf("%s is in no folder that sandboxes have", path)
	}
	n := &nursery{host: h, spec: r.spec(h, r.bounds().Limits(fnloop.Limits{}).Memory)}
	// Those that wait for their own limits are in there for a moment.
	n.spec.PIDs, n.spec.CPUs = max(n.spec.PIDs, DefaultPIDs), 0
	if n.spec.layer != "" || h.cgroups == nil {
		// Code of a layer does not run in what all programs come from. Without a cgroup a
		// template has no limits for what it imports.
		n.each = n.spec.preload
		n.spec.preload = ""
	}
	err := n.try(ctx, r)
	if errors.Is(err, supervisor.ErrNotTemplate) && n.spec.preload != "" {
		n.each, n.spec.preload = n.spec.preload, ""
		err = n.try(ctx, r)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// try makes a template, and runs a first program from it.
func (n *nursery) try(ctx context.Context, r *Runner) error {
	n.mu.Lock()
	err := n.open(ctx)
	n.mu.Unlock()
	if err != nil {
		return err
	}
	limits := fnloop.Limits{Time: bootTime, Memory: n.spec.Memory}
	s, err := n.start(ctx, r.spec(n.host, limits.Memory))
	if err != nil {
		return err
	}
	res, err := s.run(ctx, n.host, fnloop.Program{Source: supervisor.Check}, nil, limits, time.Now())
	if err = errors.Join(err, s.remove()); err == nil && res.Stdout != "ok\n" {
		err = fmt.Errorf("a first program ended by %q and printed %q, %q", res.End, res.Stdout, res.Stderr)
	}
	return err
}

// open makes a template. The mutex is held.
func (n *nursery) open(ctx context.Context) error {
	h := n.host
	s := &sandbox{spec: n.spec, init: -1, logger: h.logger, exited: make(chan struct{}), quiet: make(chan struct{})}
	var err error
	if h.cgroups != nil {
		if s.cgroup, err = h.cgroups.make(n.spec.Spec, 0); err != nil {
			return err
		}
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return errors.Join(err, s.cgroup.remove())
	}
	if err := s.bootTemplate(ctx, n, ours, theirs); err != nil {
		return err
	}
	n.template = s
	return nil
}

// bootTemplate starts bwrap and makes a template of the supervisor in it.
func (s *sandbox) bootTemplate(caller context.Context, n *nursery, ours, theirs *os.File) error {
	info, err := s.spawn(n.host, n.host.nurseryArgs(s.spec), &link{ours: ours, theirs: theirs})
	if err != nil {
		ours.Close()
		return errors.Join(err, s.cgroup.remove())
	}
	defer info.Close()
	_, stop := s.limitBoot(caller, info)
	defer stop()
	err = s.boot(info)
	if err == nil {
		err = s.conn.Template(n.host.filter, s.spec.preload, n.each)
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, supervisor.ErrNotTemplate) {
		err = s.explain(err)
	}
	return errors.Join(err, s.remove())
}

// socketpair gives two ends of a stream, of which this process keeps the first.
func socketpair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "supervisor"), nil
}

// serves reports whether sandboxes to s can be made in the nursery.
func (n *nursery) serves(s spec) bool {
	if n == nil || s.install != nil || s.session || s.layer != n.spec.layer {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.closed && n.failed < maxFailures
}

// errOrphan is the error of a template that has ended before it forked.
var errOrphan = errors.New("the template has ended")

// errFailing is the error of a sandbox that was begun before the last failure of those
// after which no more is tried.
var errFailing = errors.New("sandboxes could not be made in a row")

// start makes a sandbox to sp with a child of the template in it, and waits until it
// is ready.
func (n *nursery) start(caller context.Context, sp spec) (*sandbox, error) {
	s, err := n.startOnce(caller, sp)
	if errors.Is(err, errOrphan) && caller.Err() == nil {
		s, err = n.startOnce(caller, sp) // from another
	}
	return s, err
}

func (n *nursery) startOnce(caller context.Context, sp spec) (_ *sandbox, err error) {
	h := n.host
	s := &sandbox{spec: sp, init: -1, fork: &fork{supervisor: -1}, logger: h.logger, quiet: make(chan struct{})}
	if h.cgroups != nil {
		if s.cgroup, err = h.cgroups.make(sp.Spec, 2); err != nil {
			return nil, err
		}
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, errors.Join(err, s.cgroup.remove())
	}
	s.in, s.out = ours, ours
	errR, errW, err := os.Pipe()
	if err != nil {
		close(s.quiet)
		theirs.Close()
		return nil, errors.Join(err, s.remove())
	}
	go func() {
		defer close(s.quiet)
		s.stderr.ReadFrom(errR)
		errR.Close()
	}()

	ctx, stop := s.limitBoot(caller, ours)
	defer stop()
	from, err := n.send(ctx, supervisor.Fork{
		Command: append([]string{h.bwrap}, h.nestedArgs(sp)...), Rlimits: h.rlimits(sp),
		Masked: inProc(masked), ReadOnly: inProc(settings),
	}.Payload(), theirs, errW)
	theirs.Close()
	errW.Close()
	if err == nil {
		err = s.bootFork()
	}
	if err == nil && !stop() {
		err = context.Cause(ctx) // and what was booted is killed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.failed = 0
		return s, nil
	}
	if from != nil && from == n.template && errors.Is(err, errOrphan) {
		n.retire()
	}
	if _, preload := errors.AsType[*fnloop.PackageError](err); !preload && caller.Err() == nil {
		if n.failed++; n.failed == maxFailures {
			n.retire() // it would wait for nothing
		}
		err = s.explain(err)
	}
	return nil, errors.Join(err, s.remove())
}

// send has the template fork, with two files for the child, and says which one did.
func (n *nursery) send(ctx context.Context, payload []byte, files ...*os.File) (*sandbox, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	if n.failed >= maxFailures {
		return nil, errFailing
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	rights := unix.UnixRights(fds...)
	for again := false; ; again = true {
		if n.template == nil || !n.template.Alive() {
			n.retire()
			if err := n.open(ctx); err != nil {
				return nil, err
			}
		}
		err := n.template.pass(payload, rights)
		if err == nil || again {
			return n.template, err
		}
		n.retire()
	}
}

// retire lets go of a template, which ends if it has not yet. What was forked from it
// goes on, and the nursery is removed when it is empty.
func (n *nursery) retire() {
	s := n.template
	if s == nil {
		return
	}
	n.template = nil
	n.retired = append(n.retired, s)
	s.in.Close()
	n.work.Go(func() {
		for !ended(s.init) {
			fds := []unix.PollFd{{Fd: int32(s.init), Events: unix.POLLIN}}
			_, _ = unix.Poll(fds, 100)
		}
		n.mu.Lock()
		for i := range n.retired {
			if n.retired[i] == s {
				n.retired = append(n.retired[:i], n.retired[i+1:]...)
				break
			}
		}
		n.mu.Unlock()
		s.Remove()
	})
}

// close ends the nursery, and all that is in it.
func (n *nursery) close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	n.closed = true
	for _, s := range n.retired {
		s.Kill()
	}
	template := n.template
	n.template = nil
	n.mu.Unlock()
	if template != nil {
		template.Remove()
	}
	n.work.Wait()
}

// pass writes to the supervisor, with descriptors.
func (s *sandbox) pass(payload, rights []byte) error {
	conn, err := s.in.SyscallConn()
	if err != nil {
		return err
	}
	var sent int
	var failure error
	err = conn.Write(func(fd uintptr) bool {
		sent, failure = unix.SendmsgN(int(fd), payload, rights, nil, unix.MSG_NOSIGNAL)
		return failure != unix.EAGAIN && failure != unix.EINTR
	})
	if err = errors.Join(err, failure); err == nil && sent < len(payload) {
		_, err = s.in.Write(payload[sent:])
	}
	return err
}

// descriptor takes one that the supervisor passes. Where it fails it says why instead.
func (s *sandbox) descriptor() (fd int, err error) {
	conn, err := s.out.SyscallConn()
	if err != nil {
		return -1, err
	}
	var b [1]byte
	rights := make([]byte, unix.CmsgSpace(4*4))
	var n, size int
	var failure error
	err = conn.Read(func(fd uintptr) bool {
		n, size, _, _, failure = unix.Recvmsg(int(fd), b[:], rights, unix.MSG_CMSG_CLOEXEC)
		return failure != unix.EAGAIN && failure != unix.EINTR
	})
	if err = errors.Join(err, failure); err != nil {
		return -1, err
	}
	if n == 0 {
		return -1, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	if err != nil {
		return -1, err
	}
	fd = -1
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, f := range fds {
			if fd >= 0 {
				unix.Close(fd)
			}
			fd = f
		}
	}
	if fd < 0 {
		said := make([]byte, 4096)
		n, _ := s.out.Read(said)
		return -1, fmt.Errorf("the interpreter says %q", said[min(4, n):n])
	}
	return fd, nil
}

// bootFork takes what the child of a template passes, puts it under the limits, and
// waits until it is ready.
func (s *sandbox) bootFork() error {
	fd, err := s.descriptor()
	if err == io.EOF {
		return errOrphan
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.fork.supervisor = fd
	killed := s.killed
	s.mu.Unlock()
	if killed {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	pid, err := pidOf(fd)
	if err != nil {
		return err
	}
	s.fork.pid = pid
	if s.cgroup != nil {
		if err := s.cgroup.add(pid); err != nil {
			return err
		}
	}
	// It waits for this, and all that it starts is under the limits as well.
	if _, err := s.in.Write([]byte{0}); err != nil {
		return err
	}
	if fd, err = s.descriptor(); err != nil {
		return err
	}
	var space *os.File
	if s.cgroup == nil {
		if first, err := pidOf(fd); err == nil {
			space, _ = os.Open(fmt.Sprintf("/proc/%d/ns/pid", first)) // it only helps
		}
	}
	s.mu.Lock()
	s.init, s.space = fd, space
	killed = s.killed
	s.mu.Unlock()
	if killed {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	s.conn, err = supervisor.Connect(s)
	return err
}

// pidOf is the number of the process of a pidfd.
func pidOf(pidfd int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && pid > 0 {
				return pid, nil
			}
		}
	}
	return 0, errors.New("the interpreter has ended, or is of another namespace")
}

// killSession ends what a supervisor had started when it was killed before it told of
// the first process of its sandbox. All of that is in its session.
func (f *fork) killSession() {
	if f.pid == 0 {
		return
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		pid, err := strconv.Atoi(strings.Split(name, "/")[2])
		if err != nil {
			continue
		}
		// The descriptor comes first, as the number may become another's.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if b, err := os.ReadFile(name); err == nil {
			rest := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
			if len(rest) > 3 && rest[3] == strconv.Itoa(f.pid) {
				unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
		}
		unix.Close(fd)
	}
}

// nurseryArgs are bwrap's for a nursery. What is in there is trusted, and has to make
// namespaces, so it has no filter, and nothing of /proc is covered: the kernel lets a
// sandbox within have a /proc only where all of it can be seen.
func (h *host) nurseryArgs(s spec) []string {
	a := append(isolated(), "--cap-drop", "ALL", "--new-session", "--info-fd", strconv.Itoa(3+numFiles), "--clearenv")
	a = append(a, h.environment()...)
	a = append(a, h.system(s)...)
	a = append(a, "--perms", "0111", "--file", strconv.Itoa(3+fileCat), cat)
	a = append(a, "--proc", "/proc", "--dev", "/dev")
	a = append(a, h.quiet()...)
	a = append(a, h.writable(s)...)
	a = append(a, h.folders(s)...)
	return append(a, "--chdir", "/tmp", "--", h.python, supervisor.Main)
}

// nestedArgs are bwrap's for a sandbox within a nursery, which has all that it is made
// of. What is covered of its /proc the template covers.
func (h *host) nestedArgs(s spec) []string {
	a := append(isolated(), "--disable-userns", "--cap-drop", "ALL", "--as-pid-1", "--proc", "/proc")
	a = append(a, "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--ro-bind", "/run", "/run")
	a = append(a, roots()...)
	if h.golang.dir != "" {
		a = append(a, "--ro-bind", language.GoDir, language.GoDir)
	}
	a = append(a, "--dev", "/dev")
	a = append(a, h.writable(s)...)
	for _, dir := range h.binds {
		if !strings.HasPrefix(dir, "/usr/") { // which has come with that
			a = append(a, "--ro-bind", dir, dir)
		}
	}
	if s.layer != "" {
		a = append(a, "--ro-bind", supervisor.LayerDir, supervisor.LayerDir)
	}
	return append(a, "--remount-ro", "/dev", "--remount-ro", "/", "--", cat)
}
