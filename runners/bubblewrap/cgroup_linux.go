package bubblewrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop/internal/limit"
)

// root is where cgroups are mounted.
const root = "/sys/fs/cgroup"

// cgroups is a place where cgroups can be made.
type cgroups struct {
	version int
	memory  string // a directory; of the memory controller in version 1
	pids    string // the same directory in version 2
	cpu     string // likewise, or empty where there is none
	sockets bool   // what sockets hold is bounded
	owner   owner
}

// made counts the cgroups of this process, whichever Runner they are for.
var made atomic.Int64

// A cgroup limits one sandbox.
type cgroup struct {
	of   *cgroups
	dirs []string // memory first, then pids and cpu in version 1
}

// findCgroups finds a place for cgroups with the memory and pids controllers:
// below dir, or where dir is empty from the process's own cgroup upwards. The
// cpu controller must be there as well if cpu is set. Where it can be had it is
// used in any case: sandboxes then share the processors as one each, and not as
// one for each of their processes.
func findCgroups(dir string, cpu bool) (*cgroups, error) {
	self, err := self()
	if err != nil {
		return nil, err
	}
	c := &cgroups{owner: self}
	if dir != "" {
		if err := c.place(2, dir, dir, dir, cpu); err != nil {
			return nil, err
		}
		return c, nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string)
	for line := range strings.Lines(string(own)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for name := range strings.SplitSeq(f[1], ",") {
				paths[name] = f[2]
			}
		}
	}
	if _, v1 := paths["memory"]; v1 {
		at := func(controller string) string { return filepath.Join(root, controller, paths[controller]) }
		if err := c.place(1, at("memory"), at("pids"), at("cpu"), cpu); err != nil {
			return nil, err
		}
		return c, nil
	}
	// A cgroup that holds processes, as our own does, has no children under
	// limits. Its parents may.
	err = fs.ErrNotExist
	for at := filepath.Join(root, paths[""]); strings.HasPrefix(at, root); at = filepath.Dir(at) {
		if err = c.place(2, at, at, at, cpu); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// place puts c to where cgroups with every limit can be made, and without the
// cpu controller if need be and it may be missing.
func (c *cgroups) place(version int, memory, pids, cpu string, needCPU bool) error {
	c.version, c.memory, c.pids, c.cpu = version, memory, pids, cpu
	err := c.try()
	if err != nil && !needCPU {
		c.cpu = ""
		err = c.try()
	}
	return err
}

// try makes a cgroup with every limit and removes it.
func (c *cgroups) try() error {
	if c.version == 2 {
		enabled, err := os.ReadFile(filepath.Join(c.memory, "cgroup.subtree_control"))
		if err != nil {
			return err
		}
		controllers := []string{"memory", "pids"}
		if c.cpu != "" {
			controllers = append(controllers, "cpu")
		}
		for _, controller := range controllers {
			if !slices.Contains(strings.Fields(string(enabled)), controller) {
				return fmt.Errorf("%s does not have the %s controller for its children", c.memory, controller)
			}
		}
	}
	g, err := c.make(limit.Spec{Memory: DefaultMemory, PIDs: DefaultPIDs, CPUs: 1}, 1)
	if err != nil {
		return err
	}
	c.sockets = c.version == 2 && !uncounted() || c.version == 1 && g.limitSockets(DefaultMemory) == nil
	return g.remove()
}

// make makes a cgroup with the limits of s, and room for so many processes that are
// ours.
func (c *cgroups) make(s limit.Spec, ours int) (*cgroup, error) {
	name := c.owner.name(made.Add(1))
	parents := []string{c.memory}
	if c.version == 1 {
		parents = append(parents, c.pids)
		if c.cpu != "" {
			parents = append(parents, c.cpu)
		}
	}
	g := &cgroup{of: c}
	for _, parent := range parents {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			g.remove() // none but those that it made
			return nil, err
		}
		g.dirs = append(g.dirs, dir)
	}
	s.PIDs += ours
	if err := g.limit(s); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

func (g *cgroup) limit(s limit.Spec) error {
	memory := strconv.FormatInt(s.Memory, 10)
	pids := strconv.Itoa(s.PIDs)
	if g.of.version == 1 {
		// The limit with swap cannot be below the other, and is not there
		// where the kernel does not count swap.
		if err := g.write("memory.limit_in_bytes", memory); err != nil {
			return err
		}
		if err := g.write("memory.memsw.limit_in_bytes", memory); err != nil && !errors.Is(err, fs.ErrNotExist) && swaps() {
			return err
		}
	} else {
		if err := g.write("memory.max", memory); err != nil {
			return err
		}
		if err := g.write("memory.swap.max", "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if g.of.sockets && g.of.version == 1 {
		if err := g.limitSockets(s.Memory); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(g.pids(), "pids.max"), pids); err != nil {
		return err
	}
	return g.limitCPUs(s.CPUs)
}

// limitSockets bounds what sockets hold in version 1, which counts it apart
// from all other memory, of TCP and UDP alike.
func (g *cgroup) limitSockets(memory int64) error {
	return g.write("memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(memory/8, 10))
}

// uncounted reports whether the kernel was told to count no sockets.
func uncounted() bool {
	b, _ := os.ReadFile("/proc/cmdline")
	return bytes.Contains(b, []byte("nosocket"))
}

// limitCPUs bounds the processors, or no longer does if n is zero.
func (g *cgroup) limitCPUs(n float64) error {
	if g.of.cpu == "" {
		return nil
	}
	dir := g.dirs[len(g.dirs)-1]
	const period = 100_000 // microseconds, the kernel's default
	quota := max(1000, int(n*period))
	switch {
	case g.of.version == 1 && n == 0:
		return write(filepath.Join(dir, "cpu.cfs_quota_us"), "-1")
	case g.of.version == 1:
		return write(filepath.Join(dir, "cpu.cfs_quota_us"), strconv.Itoa(quota))
	case n == 0:
		return write(filepath.Join(dir, "cpu.max"), "max")
	}
	return write(filepath.Join(dir, "cpu.max"), fmt.Sprint(quota, period))
}

// pids is the directory that the processes are counted in.
func (g *cgroup) pids() string { return g.dirs[min(1, len(g.dirs)-1)] }

// kill ends every process of g at once, each by itself: none has to wait until
// another was scheduled. What was already beginning when it was called may be
// left, and nothing begins afterwards.
func (g *cgroup) kill() {
	_ = write(filepath.Join(g.pids(), "pids.max"), "0")
	_ = g.limitCPUs(0) // what ends needs its turn, too
	if g.of.version == 2 && g.write("cgroup.kill", "1") == nil {
		return // Linux 5.14 or later
	}
	// A number may be used again once its process is gone. A process that is
	// held by a descriptor and is still counted afterwards is the one counted.
	held := make(map[int]int)
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	for _, pid := range g.processes() {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	for _, pid := range g.processes() {
		if fd, ok := held[pid]; ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
}

// processes are the numbers of those in g.
func (g *cgroup) processes() (pids []int) {
	b, err := os.ReadFile(filepath.Join(g.pids(), "cgroup.procs"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		// One of another namespace has the number 0.
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// swaps reports whether the host has anything to swap to.
func swaps() bool {
	var info unix.Sysinfo_t
	return unix.Sysinfo(&info) != nil || info.Totalswap > 0
}

func (g *cgroup) write(name, value string) error {
	return write(filepath.Join(g.dirs[0], name), value)
}

// write writes to a file that must exist: creating it would hide that the
// kernel does not know it.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// add puts a process into g.
func (g *cgroup) add(pid int) error {
	for _, dir := range g.dirs {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// oomKills is how many processes of g the kernel killed for want of memory.
func (g *cgroup) oomKills() (int64, bool) {
	if g.of.version == 1 {
		return g.count("memory.oom_control", "oom_kill ")
	}
	return g.count("memory.events", "oom_kill ")
}

// reached reports whether g had no memory for its own limit, and not for one
// around it.
func (g *cgroup) reached() (reached, known bool) {
	if g.of.version == 2 {
		n, known := g.count("memory.events", "oom ")
		return n > 0, known
	}
	// Memory is taken in pieces of less than a mebibyte. The kernel's count of
	// refusals is not kept by every version of it.
	most, known := g.count("memory.max_usage_in_bytes", "")
	limit, alsoKnown := g.count("memory.limit_in_bytes", "")
	return most > limit-1<<20, known && alsoKnown
}

// count reads the number that follows a key at the beginning of a line.
func (g *cgroup) count(name, key string) (int64, bool) {
	b, err := os.ReadFile(filepath.Join(g.dirs[0], name))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, key); ok {
			count, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			return count, err == nil
		}
	}
	return 0, false
}

// remove removes g once its processes are gone. Where g is nil there is nothing to
// remove.
func (g *cgroup) remove() error {
	if g == nil {
		return nil
	}
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, removeDir(dir))
	}
	return errors.Join(errs...)
}

func removeDir(dir string) error {
	wait := time.Millisecond
	for deadline := time.Now().Add(2 * time.Second); ; wait = min(2*wait, 50*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(wait)
	}
}

// ownerPrefix is what the names of all our cgroups begin with. Who made one
// follows, and then its number.
const ownerPrefix = "fnloop."

// An owner is the process that made a cgroup: a number, which means a process
// within one PID namespace only, and the time that the process was started,
// since numbers are used again.
type owner struct {
	namespace string
	pid       int
	start     int64
}

// unknown is the namespace of a process whose /proc is that of another.
const unknown = "0"

// self is the owner of what this process makes.
func self() (o owner, err error) {
	o.pid = os.Getpid()
	if o.start, err = startTime("self"); err != nil {
		return o, err
	}
	number, err := os.Readlink("/proc/self")
	if err != nil || number != strconv.Itoa(o.pid) {
		o.namespace = unknown
		return o, err
	}
	link, err := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	o.namespace = strings.Trim(link, "pid:[]")
	return o, err
}

func (o owner) name(n int64) string {
	return fmt.Sprintf("%s%s.%d.%d.%d", ownerPrefix, o.namespace, o.pid, o.start, n)
}

// parseOwner reads the name of a cgroup.
func parseOwner(name string) (o owner, ok bool) {
	rest, ok := strings.CutPrefix(name, ownerPrefix)
	f := strings.Split(rest, ".")
	if !ok || len(f) != 4 {
		return o, false
	}
	pid, errPID := strconv.Atoi(f[1])
	start, errStart := strconv.ParseInt(f[2], 10, 64)
	return owner{f[0], pid, start}, errPID == nil && errStart == nil
}

// abandoned is the age at which a cgroup without processes is nobody's, where
// its owner cannot be asked about. To make a sandbox takes a fraction of it.
const abandoned = time.Hour

// gone reports whether o is, as far as the process seen can tell, which does
// not see the processes of another namespace. The cgroup was made at made.
func (o owner) gone(seen owner, made time.Time) bool {
	if o.namespace != seen.namespace || o.namespace == unknown {
		return time.Since(made) > abandoned
	}
	start, err := startTime(strconv.Itoa(o.pid))
	return errors.Is(err, fs.ErrNotExist) || err == nil && start != o.start
}

// reap removes cgroups whose makers are gone. Their processes should be gone as
// well; those that are not are killed where the maker is known to be dead, and
// not only believed to be for its age.
func (c *cgroups) reap() {
	for _, dir := range []string{c.memory, c.pids, c.cpu} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			o, ok := parseOwner(e.Name())
			if !ok {
				continue
			}
			info, err := e.Info()
			if err != nil || !o.gone(c.owner, info.ModTime()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			if err := unix.Rmdir(path); errors.Is(err, unix.EBUSY) && o.namespace == c.owner.namespace {
				g := &cgroup{of: c, dirs: []string{path}}
				g.kill()
				_ = g.remove()
			}
		}
	}
}

// startTime is when a process was started, in the kernel's ticks. With its
// number it names a process for good.
func startTime(pid string) (int64, error) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(f))
	}
	return strconv.ParseInt(f[19], 10, 64)
}
