// Package seccomp says which system calls a sandboxed program may not make.
//
// The policy is one table, [Policy]. [Program] makes of it the filter that
// bubblewrap installs, [Profile] the document that Docker takes, so that a
// program finds the same kernel in both. It is a list of what is denied, each
// with an error that programs know how to meet: a list of what is allowed
// breaks with every new C library, and rarely at once.
package seccomp

// A Rule denies one or more system calls.
type Rule struct {
	// Names are the system calls. One that an architecture does not have is
	// left out there.
	Names []string
	// Errno is the error that they return.
	Errno int
	// Args, when there are any, must all hold for the rule to apply. No two of
	// them may be about the same argument.
	Args []Arg
}

// An Arg is a condition on an argument of a system call.
type Arg struct {
	Index uint // from zero
	Op    Op
	Value uint64
	Mask  uint64 // for MaskedEqual: which bits of the argument are compared
}

// An Op compares an argument, as an unsigned number of 64 bits, with a value.
type Op int

// The comparisons.
const (
	Equal Op = iota
	NotEqual
	AtLeast
	MaskedEqual
)

// The errors, by Linux's numbers whatever the host is.
const (
	eperm           = 1
	enosys          = 38
	eafnosupport    = 97
	eprotonosupport = 93
)

// Policy is what a sandboxed program may not do.
var Policy = []Rule{
	// Its flags are behind a pointer that no filter can follow. The C library
	// falls back to clone on this error, and on no other.
	{Names: []string{"clone3"}, Errno: enosys},

	// Namespaces open most of the kernel to the unprivileged.
	{Names: []string{"unshare", "setns"}, Errno: eperm},
	flag("clone", 0, 0x00020000), // CLONE_NEWNS
	flag("clone", 0, 0x02000000), // CLONE_NEWCGROUP
	flag("clone", 0, 0x04000000), // CLONE_NEWUTS
	flag("clone", 0, 0x08000000), // CLONE_NEWIPC
	flag("clone", 0, 0x10000000), // CLONE_NEWUSER
	flag("clone", 0, 0x20000000), // CLONE_NEWPID
	flag("clone", 0, 0x40000000), // CLONE_NEWNET

	// Mounts.
	{Names: []string{
		"mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
		"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "statmount", "listmount",
		"name_to_handle_at", "open_by_handle_at", "quotactl", "quotactl_fd", "swapon", "swapoff",
	}, Errno: eperm},

	// Other processes.
	{Names: []string{
		"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
		"move_pages", "migrate_pages",
	}, Errno: eperm},
	// Limits of one's own are for everyone to lower, those of another process
	// are not.
	{Names: []string{"prlimit64"}, Errno: eperm, Args: []Arg{
		{Index: 0, Op: NotEqual}, {Index: 2, Op: NotEqual},
	}},

	// The supervisor is the first process, and a kill of the sandbox has to wait
	// until that has had its turn. Nobody puts it behind: by its number, of which
	// the kernel looks at one half, or among all of a group or of a user. A
	// program may do what it likes to its own processes, one by one.
	{Names: []string{"sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity"}, Errno: eperm, Args: []Arg{
		half(0, 1),
	}},
	{Names: []string{"setpriority"}, Errno: eperm, Args: []Arg{half(0, 0), half(1, 1)}}, // PRIO_PROCESS
	{Names: []string{"setpriority"}, Errno: eperm, Args: []Arg{half(0, 1)}},             // PRIO_PGRP
	{Names: []string{"setpriority"}, Errno: eperm, Args: []Arg{half(0, 2)}},             // PRIO_USER
	{Names: []string{"ioprio_set"}, Errno: eperm, Args: []Arg{half(0, 1), half(1, 1)}},  // IOPRIO_WHO_PROCESS
	{Names: []string{"ioprio_set"}, Errno: eperm, Args: []Arg{half(0, 2)}},              // IOPRIO_WHO_PGRP
	{Names: []string{"ioprio_set"}, Errno: eperm, Args: []Arg{half(0, 3)}},              // IOPRIO_WHO_USER
	// Nor does a program keep others off the processor core that it runs on.
	{Names: []string{"prctl"}, Errno: eperm, Args: []Arg{half(0, 62)}}, // PR_SCHED_CORE

	// Whoever owns a file, as programs own some that all of a runner's have and,
	// where the host program is not root, its user's, could have everybody else who
	// opens it wait for most of a minute.
	{Names: []string{"fcntl"}, Errno: eperm, Args: []Arg{half(1, 1024)}}, // F_SETLEASE
	{Names: []string{"fcntl"}, Errno: eperm, Args: []Arg{half(1, 1040)}}, // F_SETDELEG

	// Large and young parts of the kernel that a script has no use for.
	{Names: []string{
		"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
		"keyctl", "add_key", "request_key", "fanotify_init", "fanotify_mark", "lookup_dcookie",
		"personality", "modify_ldt", "uselib", "vhangup", "memfd_secret",
	}, Errno: eperm},

	// What there is of these is counted for the whole machine and not for a
	// cgroup: one program could leave none to the others.
	{Names: []string{"io_setup"}, Errno: enosys},
	flag("mmap", 3, 0x40000),   // MAP_HUGETLB
	flag("memfd_create", 1, 4), // MFD_HUGETLB

	// The machine itself.
	{Names: []string{
		"init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms",
		"kexec_load", "kexec_file_load", "reboot", "syslog", "acct", "iopl", "ioperm", "nfsservctl", "_sysctl",
		"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
	}, Errno: eperm},

	// Only the families that a program without a network has a use for: UNIX
	// (1), INET (2) and INET6 (10). The others reach the host (VSOCK, NETLINK)
	// or much of the kernel (ALG, PACKET).
	family(Equal, 0), family(Equal, 3), family(Equal, 4), family(Equal, 5), family(Equal, 6),
	family(Equal, 7), family(Equal, 8), family(Equal, 9), family(AtLeast, 11),

	// Of their protocols only those that programs use: others are young or old
	// parts of the kernel that it loads on demand, such as DCCP (33), L2TP (115)
	// and SCTP (132). ICMPv6 is 58.
	protocol(Equal, 33), protocol(AtLeast, 59),

	// Typing into the terminal that the host program runs on.
	ioctl(0x5412), // TIOCSTI
	ioctl(0x541C), // TIOCLINUX
}

// flag denies a system call with any one bit in an argument.
func flag(name string, index uint, bit uint64) Rule {
	return Rule{Names: []string{name}, Errno: eperm, Args: []Arg{{Index: index, Op: MaskedEqual, Value: bit, Mask: bit}}}
}

func family(op Op, n uint64) Rule {
	return Rule{Names: []string{"socket", "socketpair"}, Errno: eafnosupport, Args: []Arg{{Index: 0, Op: op, Value: n}}}
}

func protocol(op Op, n uint64) Rule {
	return Rule{Names: []string{"socket", "socketpair"}, Errno: eprotonosupport, Args: []Arg{{Index: 2, Op: op, Value: n}}}
}

func ioctl(request uint64) Rule {
	return Rule{Names: []string{"ioctl"}, Errno: eperm, Args: []Arg{half(1, request)}}
}

// half is about an argument of which the kernel looks at the low half only.
func half(index uint, value uint64) Arg {
	return Arg{Index: index, Op: MaskedEqual, Value: value, Mask: 0xffffffff}
}
