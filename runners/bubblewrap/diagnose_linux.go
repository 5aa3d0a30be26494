package bubblewrap

import (
	"bytes"
	"fmt"
	"strings"
)

// A diagnosis is what is known about words that bwrap says when it cannot make
// a sandbox.
type diagnosis struct {
	words   []string // one of them is there
	errors  []string // and one of these, if there are any: as the C library writes them
	missing string
	advice  string
}

// Errors as the C library writes them.
const (
	again    = "Resource temporarily unavailable"
	noSpace  = "No space left on device"
	noMemory = "Cannot allocate memory"
	invalid  = "Invalid argument"
	noCall   = "Function not implemented"
	noEntry  = "No such file or directory"
	denied   = "Permission denied"
	noFamily = "Address family not supported"
)

var namespaceWords = []string{"new namespace", "unshare user ns", "unshare namespace", "namespaces nested", "Can't fork"}

// diagnoses are tried in order: what an error alone tells comes before what was
// tried when it came.
var diagnoses = []diagnosis{
	{
		words: append([]string{"fork"}, namespaceWords...), errors: []string{again},
		missing: "room for processes",
		advice:  "raise the limit on processes of this user (ulimit -u), of the service (TasksMax) or of the container (--pids-limit)",
	},
	{
		words: namespaceWords, errors: []string{noSpace, "ENOSPC", "max_"},
		missing: "room for namespaces",
		advice:  "raise user.max_user_namespaces and the other user.max_*_namespaces; namespaces can be nested 32 deep at most",
	},
	{
		words:   []string{noMemory},
		missing: "memory for a sandbox",
		advice:  "the host, or the cgroup or container that this process is in, has none left",
	},
	{
		words:   []string{"Too many open files"},
		missing: "room for open files",
		advice:  "raise the limit of this process (ulimit -n), or fs.file-max for the host",
	},
	{
		words:   []string{"Unexpected capabilities but not setuid"},
		missing: "user without capabilities",
		advice: "this process is not root and has capabilities all the same, which bwrap refuses: start it without ambient ones, " +
			"and in Podman with --user beside --userns=keep-id",
	},
	{
		words:   []string{"CONFIG_SECCOMP", "PR_SET_SECCOMP", "user namespaces are not supported", "does not support user namespaces", "kernel does not support it"},
		missing: "kernel with namespaces and seccomp filters",
		advice:  "use one with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS and CONFIG_SECCOMP_FILTER; an emulated one may have none",
	},
	{
		words: namespaceWords, errors: []string{invalid, noCall},
		missing: "kernel with namespaces and seccomp filters",
		advice:  "use one with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS and CONFIG_SECCOMP_FILTER; an emulated one may have none",
	},
	{
		words:   []string{"NETLINK_ROUTE socket"},
		missing: "permission to set up a loopback interface",
		advice:  "allow sockets of the family AF_NETLINK: in the unit's RestrictAddressFamilies, or in the container's seccomp profile",
	},
	{
		words:   []string{"setting up uid map", "setting up gid map", "uid_map", "gid_map", "setgroups", "loopback:", "RTM_NEWADDR", "RTM_NEWLINK"},
		missing: "permission to use user namespaces",
		advice: "on Ubuntu, AppArmor reserves them: install a profile that grants userns to " +
			"bwrap, or set kernel.apparmor_restrict_unprivileged_userns=0",
	},
	{
		words:   append([]string{"No permissions to creat"}, namespaceWords...),
		missing: "permission to make namespaces",
		advice: "within a container, its seccomp profile must allow unshare and clone; in a systemd unit, RestrictNamespaces must; " +
			"on the host, set kernel.unprivileged_userns_clone=1 and user.max_user_namespaces above 0",
	},
	{
		words:   []string{"mount proc"},
		missing: "permission to mount /proc",
		advice:  "within a container, /proc must not be masked: --security-opt systempaths=unconfined",
	},
	{
		words: []string{"make / slave", "pivot_root", "old root", "oldroot", "newroot bind"}, errors: []string{invalid},
		missing: "root that is a mount",
		advice:  "this process is in a chroot or on an initial RAM disk: make its root a mount of its own, and enter it with pivot_root",
	},
	{
		words: []string{"oldroot", "old root", "pivot_root", "/newroot", "can't open /"}, errors: []string{noEntry, noCall},
		missing: "kernel that mounts",
		advice:  "something stands in for the kernel here, such as PRoot, and does not move roots; use a machine or container of its own",
	},
	{
		words: []string{"Can't find source path", "Can't get type of source"}, errors: []string{denied},
		missing: "permission to read what the sandbox is made of",
		advice:  "the folder of the interpreter, those of Binds, and all above them must be open to the user that bwrap runs as",
	},
	{
		words:   []string{"Can't find source path", "Can't get type of source"},
		missing: "folder that the sandbox is made of",
		advice:  "are the folder of the interpreter and those of Binds still there?",
	},
	{
		words: []string{
			"make / slave", "pivot_root", "oldroot", "old root", "mount tmpfs", "bind mount", "mount devpts", "mount mqueue",
			"remount", "newroot",
		},
		missing: "permission to mount",
		advice: "within a container, AppArmor or SELinux and seccomp must allow it (--security-opt apparmor=unconfined, label=disable, " +
			"seccomp=...; in LXC, security.nesting=true)",
	},
	{
		words:   []string{"Unknown option", "setuid mode"},
		missing: "bubblewrap that takes its options",
		advice:  "use bubblewrap 0.8 or later, and not installed setuid",
	},
	{
		words:   []string{"execvp"},
		missing: "interpreter in the sandbox",
		advice:  "name one with the Python field that is in /usr or in a folder of its own, and what else it needs with Binds",
	},
	{
		words:   []string{"error while loading shared libraries", "Error loading shared library"},
		missing: "libraries of the interpreter",
		advice:  "name the folders that they are in with the Binds field",
	},
}

// diagnose makes an Error of what bwrap said when it could not make a sandbox.
func diagnose(stderr []byte, err error) error {
	said := string(bytes.TrimSpace(stderr))
	if said == "" {
		return fmt.Errorf("bubblewrap: the sandbox ended before it was ready: %w", err)
	}
	e := &Error{Missing: "sandbox", Err: fmt.Errorf("%s: %w", said, err)}
	for _, d := range diagnoses {
		if hasAny(said, d.words) && (len(d.errors) == 0 || hasAny(said, d.errors)) {
			e.Missing, e.Advice = d.missing, d.advice
			break
		}
	}
	return e
}

func hasAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
