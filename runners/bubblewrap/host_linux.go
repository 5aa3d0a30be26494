package bubblewrap

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/language"
	"github.com/fnloop/fnloop/internal/seccomp"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// nobody is who programs are, inside and, where the host program may choose,
// outside as well.
const nobody = 65534

// A host is what was found out about the machine, once.
type host struct {
	bwrap         string
	disableUserns bool // bwrap can
	python        string
	compiled      []byte // the supervisor, for that interpreter
	session       supervisor.Compiled
	binds         []string      // directories of the interpreter outside /usr
	local         bool          // the interpreter is in /usr/local
	managed       string        // the file that has pip advise what does not help, or empty
	setUser       bool          // become nobody before bwrap starts
	cgroups       *cgroups      // nil where none can be made
	starting      chan struct{} // holds one for each sandbox that is being made
	protection    Protection
	logger        *slog.Logger
	warm          *warm // nil where none are kept ready
	sessions      *warm // those for interpreters that stay
	languages     language.Finder
	golang        goLibrary

	prefix   string // the interpreter's
	identity string // what it is, for the layers that are made for it
	layers   layers
	layer    string // with the runner's packages, or empty
	preload  string // the modules that interpreters have imported

	files   [numFiles]*os.File // for bwrap to read
	filter  []byte             // what is in the first
	cat     []byte             // what is in the last
	noCat   error
	nursery *nursery // nil where programs cannot be forked

	inspecting sync.Mutex
	inspected  bool
	packages   []string // that Python finds beside its own, once inspected
}

// What bwrap reads from descriptors.
const (
	fileFilter = iota
	fileSupervisor
	filePasswd
	fileGroup
	fileNsswitch
	fileHosts
	fileServices
	fileProtocols
	filePip
	fileCat // empty where there is none
	numFiles
)

// paths are where these files are in a sandbox.
var paths = [numFiles]string{
	fileSupervisor: supervisor.Dir + "/sitecustomize.pyc",
	filePasswd:     "/etc/passwd",
	fileGroup:      "/etc/group",
	fileNsswitch:   "/etc/nsswitch.conf",
	fileHosts:      "/etc/hosts",
	fileServices:   "/etc/services",
	fileProtocols:  "/etc/protocols",
	filePip:        "/etc/pip.conf",
}

// findHost finds out whether and how programs can be isolated, and runs one.
func (r *Runner) findHost(caller context.Context) (_ *host, err error) {
	ctx, cancel := context.WithTimeout(caller, 2*bootTime)
	defer cancel()
	h := &host{logger: r.Logger, starting: make(chan struct{}, 4*runtime.GOMAXPROCS(0))}
	defer func() {
		if err == nil {
			return
		}
		h.close()
		// What is killed when its time is over looks like something broken.
		switch {
		case caller.Err() != nil:
			err = supervisor.Ended(caller)
		case ctx.Err() != nil:
			err = &Error{Missing: fmt.Sprintf("answer within %v", 2*bootTime), Err: err, Advice: "is the machine overloaded?"}
		}
	}()
	if err := r.valid(); err != nil {
		return nil, &Error{Missing: "limits that can be", Err: err}
	}
	if err := h.findBwrap(ctx, r.Path); err != nil {
		return nil, err
	}
	if err := h.findPython(ctx, r.Python); err != nil {
		return nil, err
	}
	if err := h.makeFiles(); err != nil {
		return nil, err
	}
	for _, dir := range r.Binds {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			return nil, &Error{Missing: "folder to bind", Err: fmt.Errorf("%q is the root or not absolute", dir)}
		}
		h.binds = append(h.binds, filepath.Clean(dir))
	}
	h.findGo()
	h.cgroups, err = findCgroups(r.Cgroup, r.CPUs > 0)
	if err != nil {
		if r.Cgroup != "" || r.RequireLimits {
			return nil, &Error{Missing: "cgroup to limit memory and processes with", Err: err,
				Advice: "name a delegated one with the Cgroup field, such as that of a systemd unit with Delegate=yes"}
		}
		h.protection.Missing = append(h.protection.Missing,
			fmt.Sprintf("memory and processes are bounded by RLIMIT_DATA and RLIMIT_NPROC only, and processors and what sockets hold not at all, as no cgroup can be made: %v", err))
	} else {
		h.protection.Cgroup = h.cgroups.version
		h.protection.Sockets = h.cgroups.sockets
		if !h.protection.Sockets {
			h.protection.Missing = append(h.protection.Missing, "what sockets hold is not bounded, as the kernel counts it for no cgroup here")
		}
		h.cgroups.reap()
	}
	// A sandbox of root's is root's own user outside: with every file in it
	// readable that only root can read. Where it can be nobody's it is.
	h.setUser = os.Geteuid() == 0
	err = r.probe(ctx, h)
	if err != nil && h.setUser && ctx.Err() == nil {
		h.setUser = false
		h.protection.Missing = append(h.protection.Missing,
			fmt.Sprintf("programs are root for the kernel outside, as they cannot be user %d: %v", nobody, err))
		err = r.probe(ctx, h)
	}
	if err != nil {
		return nil, err
	}
	h.protection.UID = os.Geteuid()
	if h.setUser {
		h.protection.UID = nobody
	}
	return h, nil
}

// valid reports whether the fields make sense here.
func (r *Runner) valid() error {
	if err := r.bounds().Check(); err != nil {
		return err
	}
	if r.Warm < 0 {
		return fmt.Errorf("field Warm is %d; it must not be negative", r.Warm)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && uint64(r.OpenFiles) > files.Max {
		return fmt.Errorf("OpenFiles is %d; this process may have %d itself (ulimit -Hn)", r.OpenFiles, files.Max)
	}
	return nil
}

// probe runs a program that looks at its sandbox, with all that programs are
// run with.
func (r *Runner) probe(ctx context.Context, h *host) error {
	limits := fnloop.Limits{Time: bootTime, Memory: r.bounds().Limits(fnloop.Limits{}).Memory}
	res, err := r.runCold(ctx, h, fnloop.Program{Source: supervisor.Check}, nil, limits, time.Now())
	switch {
	case err != nil:
		return err
	case res.End != fnloop.EndExit || *res.ExitCode != 0:
		return &Error{Missing: "working interpreter in the sandbox", Err: fmt.Errorf("a first program ended by %q and printed %q", res.End, res.Stderr)}
	case res.Stdout != "ok\n":
		return &Error{Missing: "isolation", Err: fmt.Errorf("a program has %s", strings.TrimSpace(res.Stdout))}
	}
	return nil
}

func (h *host) findBwrap(ctx context.Context, path string) error {
	if path == "" {
		path = "bwrap"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return &Error{Missing: "bubblewrap", Err: err, Advice: "install it: apt install bubblewrap, dnf install bubblewrap, apk add bubblewrap"}
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return &Error{Missing: "working bubblewrap", Err: fmt.Errorf("%s --version: %w", path, err)}
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "bubblewrap ")
	if !atLeast(version, 0, 7) {
		return &Error{Missing: "bubblewrap 0.7 or later", Err: fmt.Errorf("%s is version %s", path, version), Advice: "only later ones can bound the size of /tmp"}
	}
	h.bwrap = path
	h.protection.Version = version
	info, err := os.Stat(path)
	if err != nil {
		return &Error{Missing: "bubblewrap", Err: err}
	}
	h.disableUserns = atLeast(version, 0, 8) && info.Mode()&os.ModeSetuid == 0
	if !h.disableUserns {
		h.protection.NestedUserNamespaces = true
		h.protection.Missing = append(h.protection.Missing, "only the seccomp filter keeps programs from making user namespaces")
	}
	return nil
}

// atLeast compares the first two numbers of a version.
func atLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	return errX == nil && errY == nil && (x > major || x == major && y >= minor)
}

// warn logs what goes wrong beside programs.
func (h *host) warn(message string, err error) {
	if h.logger != nil {
		h.logger.LogAttrs(context.Background(), slog.LevelWarn, message, slog.Any("err", err))
	}
}

// findPython asks the interpreter itself where its files are: the name that
// it was found by may be a link or a wrapper.
func (h *host) findPython(ctx context.Context, python string) error {
	const system = "/usr/bin/python3"
	if python == "" {
		python = "python3"
		if _, err := os.Stat(system); err == nil {
			python = system
		}
	}
	path, err := exec.LookPath(python)
	if err != nil {
		return &Error{Missing: "Python", Err: err, Advice: "install python3, or name an interpreter with the Python field"}
	}
	// It also compiles the supervisor: doing so in every sandbox anew would take
	// a tenth of the time that making one does.
	const ask = `import importlib.util, marshal, os.path, sys, sysconfig
managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
pyc = importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(sys.stdin.read(), "sitecustomize.py", "exec"))
print(sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, "%d.%d.%d" % sys.version_info[:3], pyc.hex(), managed if os.path.isfile(managed) else "none", sys.version.replace("\n", " "), sysconfig.get_platform(), sysconfig.get_config_var("SOABI"), getattr(sys, "_base_executable", ""), sep="\n")`
	cmd := exec.CommandContext(ctx, path, "-I", "-c", ask)
	cmd.Stdin = strings.NewReader(supervisor.Source)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") // the last may be empty
	if err == nil && len(lines) != 12 {
		err = errors.New("it does not answer as Python does")
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			out = append(out, exit.Stderr...)
		}
		return &Error{Missing: "working Python", Err: fmt.Errorf("%s printed %.400q: %w", path, out, err)}
	}
	version := lines[5]
	if !atLeast(version, 3, 8) {
		return &Error{Missing: "Python 3.8 or later", Err: fmt.Errorf("%s is version %s", path, version)}
	}
	if h.compiled, err = hex.DecodeString(lines[6]); err != nil {
		return &Error{Missing: "working Python", Err: err}
	}
	h.python = lines[0]
	if python == system {
		h.python = system
	}
	if filepath.IsAbs(lines[7]) {
		h.managed = lines[7]
	}
	h.protection.Python, h.protection.PythonVersion = h.python, version
	h.prefix, h.identity = lines[1], strings.Join(append(lines[1:5:5], lines[8:]...), "\n")
	roots := lines[1:5]
	if real, err := filepath.EvalSymlinks(h.python); err == nil {
		roots = append(roots, filepath.Dir(filepath.Dir(real)))
	}
	for _, dir := range roots {
		switch {
		case dir == "/usr/local" || strings.HasPrefix(dir, "/usr/local/"):
			h.local = true
		case dir == "/usr" || strings.HasPrefix(dir, "/usr/"):
		case dir == "/" || !filepath.IsAbs(dir):
			return &Error{Missing: "Python with a folder of its own", Err: fmt.Errorf("%s has the prefix %s", path, dir)}
		case !slices.Contains(h.binds, dir):
			h.binds = append(h.binds, dir)
		}
	}
	return nil
}

// makeFiles makes the files that exist in no folder of the host.
func (h *host) makeFiles() error {
	filter, err := seccomp.Program(runtime.GOARCH)
	if err != nil {
		return &Error{Missing: "seccomp policy", Err: err}
	}
	h.filter = filter
	h.cat, h.noCat = findCat()
	for i, content := range [numFiles][]byte{
		fileFilter:     filter,
		fileSupervisor: h.compiled,
		filePasswd:     []byte(passwd),
		fileGroup:      []byte(group),
		fileNsswitch:   []byte(nsswitch),
		fileHosts:      []byte(supervisor.Hosts),
		fileServices:   []byte(services),
		fileProtocols:  []byte(protocols),
		filePip:        []byte(supervisor.PipConf),
		fileCat:        h.cat,
	} {
		fd, err := unix.MemfdCreate("fnloop", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			return fmt.Errorf("bubblewrap: memfd_create: %w", err)
		}
		h.files[i] = os.NewFile(uintptr(fd), "memfd")
		if _, err := h.files[i].Write(content); err != nil {
			return fmt.Errorf("bubblewrap: memfd: %w", err)
		}
		const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			return fmt.Errorf("bubblewrap: memfd: %w", err)
		}
	}
	return nil
}

// open opens a file of h.files anew, so that it has an offset of its own.
func (h *host) open(i int) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", h.files[i].Fd()))
}

func (h *host) close() error {
	h.nursery.close()
	h.golang.close()
	errs := []error{h.layers.close()}
	for _, f := range h.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// masked are the files of /proc that tell about the machine and not about the
// sandbox.
var masked = []string{"cmdline", "config.gz", "interrupts", "kallsyms", "kcore", "keys", "key-users", "kmsg", "sched_debug", "timer_list"}

// settings are the parts of /proc in which the machine is set up. The kernel lets
// the owner write to them, without a capability: root, where that is who programs
// are outside.
var settings = []string{"acpi", "bus", "fs", "irq", "pressure", "scsi", "sys", "sysrq-trigger"}

// args are bwrap's, for a sandbox to s. Its files are descriptors from 3 on, in
// the order of h.files, then the one for what bwrap tells.
func (h *host) args(s spec) []string {
	a := isolated()
	if h.disableUserns {
		a = append(a, "--disable-userns")
	}
	if s.install != nil {
		a = append(a, "--share-net")
	}
	a = append(a,
		"--cap-drop", "ALL", "--new-session", "--as-pid-1",
		"--seccomp", strconv.Itoa(3+fileFilter), "--info-fd", strconv.Itoa(3+numFiles), "--clearenv")
	a = append(a, h.environment()...)
	if s.preload != "" {
		a = append(a, "--setenv", supervisor.Preload, s.preload, "--setenv", supervisor.PreloadRlimits, h.rlimits(s).Lines())
	}
	a = append(a, h.system(s)...)
	a = append(a, "--proc", "/proc", "--dev", "/dev")
	a = append(a, h.quiet()...)
	a = append(a, h.covered()...)
	if !h.setUser && os.Geteuid() == 0 {
		// What the supervisor has of it is root's, and so is what programs are outside.
		// Here self is the process that becomes the supervisor.
		a = append(a, "--ro-bind", "/proc/self", "/proc/1")
	}
	a = append(a, h.writable(s)...)
	a = append(a, h.folders(s)...)
	return append(a, "--chdir", "/tmp", "--", h.python, supervisor.Main)
}

// isolated has bwrap make a namespace of each kind, with a user and a name of its own.
func isolated() []string {
	return []string{
		"--unshare-user", "--unshare-all", "--uid", strconv.Itoa(nobody), "--gid", strconv.Itoa(nobody),
		"--hostname", supervisor.Hostname,
	}
}

// environment is that of a supervisor, of which programs have a part.
func (h *host) environment() (a []string) {
	for _, kv := range supervisor.Env(h.searchPath()) {
		key, value, _ := strings.Cut(kv, "=")
		a = append(a, "--setenv", key, value)
	}
	return append(a, "--setenv", "PYTHONPATH", supervisor.Dir)
}

// roots are the folders beside /usr that are a part of it, or once were.
func roots() (a []string) {
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if target, err := os.Readlink(dir); err == nil {
			a = append(a, "--symlink", target, dir)
		} else {
			a = append(a, "--ro-bind-try", dir, dir)
		}
	}
	return a
}

// system is what a sandbox has of the host's, and in its place.
func (h *host) system(s spec) []string {
	// What other software keeps under /usr/local is nobody's business.
	a := []string{"--ro-bind", "/usr", "/usr", "--tmpfs", "/usr/src"}
	if !h.local {
		a = append(a, "--tmpfs", "/usr/local")
	}
	a = append(a, roots()...)
	for _, name := range etc {
		a = append(a, "--ro-bind-try", "/etc/"+name, "/etc/"+name)
	}
	if h.golang.dir != "" {
		a = append(a, "--ro-bind", h.golang.dir, language.GoDir)
	}
	for i, path := range paths {
		if path != "" && (s.install == nil || i != filePip && i != fileHosts) {
			a = append(a, "--perms", "0444", "--file", strconv.Itoa(3+i), path)
		}
	}
	return a
}

// quiet has pip keep its advice to itself.
func (h *host) quiet() []string {
	if h.managed == "" {
		return nil
	}
	return []string{"--ro-bind", "/dev/null", h.managed} // on a mount without devices
}

// covered is what programs do not read of /proc, or do not write.
func (h *host) covered() (a []string) {
	for _, name := range masked {
		if _, err := os.Stat("/proc/" + name); err == nil {
			a = append(a, "--ro-bind", "/dev/null", "/proc/"+name)
		}
	}
	for _, name := range settings {
		a = append(a, "--ro-bind-try", "/proc/"+name, "/proc/"+name)
	}
	return a
}

// inProc gives files of /proc their whole names.
func inProc(names []string) (a []string) {
	for _, name := range names {
		a = append(a, "/proc/"+name)
	}
	return a
}

// writable are the two folders that can be written.
func (h *host) writable(s spec) []string {
	size := strconv.FormatInt(s.Tmp, 10)
	return []string{
		"--size", size, "--perms", "1777", "--tmpfs", "/dev/shm",
		"--size", size, "--perms", "1777", "--tmpfs", "/tmp",
	}
}

// folders are those of the interpreter, and of packages. With them a sandbox is
// complete.
func (h *host) folders(s spec) (a []string) {
	for _, dir := range h.binds { // may be below /tmp
		a = append(a, "--ro-bind", dir, dir)
	}
	a = append(a, s.layerArgs()...)
	if !h.local {
		a = append(a, "--remount-ro", "/usr/local")
	}
	return append(a, "--remount-ro", "/usr/src", "--remount-ro", "/dev", "--remount-ro", "/")
}
