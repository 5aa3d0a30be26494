// Package bubblewrap runs programs in sandboxes that bubblewrap makes from the
// kernel's namespaces, without a daemon and without privileges.
//
// A program finds a read-only root with the system's libraries, a Python
// interpreter and what the host has of other languages, a small writable /tmp and /dev/shm, and an environment of a
// dozen fixed variables. It finds no network but a loopback interface of its
// own, no file of the host outside the interpreter's, no process but its own,
// no capability, no way to a new user namespace, and a seccomp filter in front
// of what is left of the kernel. Everything it started dies with it.
//
// Linux only; it needs bubblewrap 0.7 or later and Python 3.8 or later.
package bubblewrap

import (
	"log/slog"
	"time"

	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/limit"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// The limits of a [Runner] whose fields are zero.
const (
	DefaultTime      = limit.DefaultTime
	DefaultMemory    = limit.DefaultMemory
	DefaultPIDs      = limit.DefaultPIDs
	DefaultTmp       = limit.DefaultTmp
	DefaultOpenFiles = limit.DefaultOpenFiles
)

// MinMemory is the smallest memory limit that an interpreter starts in, in
// bytes.
const MinMemory = limit.MinMemory

// A Runner runs programs with bubblewrap. Its zero value is ready to use, and
// safe for concurrent use once its fields are set. The first call finds out
// whether the host can isolate programs at all, by running one; where it cannot,
// every call fails with an [*Error] that says what is missing.
type Runner struct {
	// Path is the bwrap program. Empty means the one on PATH.
	Path string
	// Python is the interpreter, such as that of a virtual environment. Programs
	// can read all that is under its prefix. Empty means /usr/bin/python3, or
	// the python3 on PATH where there is no such file.
	Python string
	// Time and Memory are the limits of programs that bring none: zero means
	// DefaultTime and DefaultMemory (bytes, for all processes together).
	Time   time.Duration
	Memory int64
	// PIDs is how many processes and threads a program may have at once. Zero
	// means DefaultPIDs.
	PIDs int
	// CPUs is how many processors a program may keep busy. Zero means all.
	CPUs float64
	// Tmp is the size of /tmp, and of /dev/shm, in bytes. Zero means DefaultTmp.
	// Both count as memory; under a memory limit less than four times as large
	// they shrink to a quarter of it.
	Tmp int64
	// OpenFiles is how many descriptors each process of a program may have. Zero
	// means DefaultOpenFiles; fewer than 16 are refused, as are more than this
	// process may have (RLIMIT_NOFILE).
	OpenFiles int
	// MaxPrograms is how many programs run at once. More of them wait, which is
	// no part of the time of a program. Zero means four for each processor of
	// this machine, negative no bound.
	MaxPrograms int
	// Binds are further folders of the host that programs can read, such as the
	// libraries of an interpreter that has them elsewhere, or a language that is
	// not under /usr: the bin of each comes first on the search path. They must not
	// hold secrets.
	Binds []string
	// Cgroup is the directory of a cgroup (version 2) that was delegated to this
	// process and has the memory and pids controllers enabled for its children.
	// Empty means to look for one from the process's own cgroup upwards.
	Cgroup string
	// RequireLimits refuses to run where the host lets no cgroup be made, so
	// that memory and processes can be bounded for each process of a program
	// only and not for all together, and processors not at all. Otherwise
	// [Runner.Protection] tells.
	RequireLimits bool
	// Warm is how many sandboxes are kept ready, with an interpreter in each that
	// waits for its program: a call then takes a fraction of the time. Each still
	// serves one program only and is removed behind the call. Zero keeps none;
	// each call makes its sandbox, and returns when nothing of it is left. A
	// Runner with warm sandboxes must be closed.
	Warm int
	// Packages are requirements as pip has them, such as "numpy", "pandas==2.2.*",
	// "name @ https://…" and "-r requirements.txt". They are installed at the first
	// use, which can take minutes ([Runner.Probe] does it ahead), in a sandbox with a
	// network, and kept for all runners of this user. Index, credentials and proxies
	// are those of the host's pip configuration. It needs pip or uv. What cannot be
	// installed is a [*fnloop.PackageError] of every call.
	Packages []string
	// Installing is told what the installer prints, a line at a time. Nil is told
	// nothing.
	Installing func(line string)
	// Preload are modules that every interpreter has imported before its program
	// or session comes, such as "pandas": with Warm sandboxes an import of them then
	// costs nothing. They are imported in /tmp, and what they print is dropped. One
	// that cannot be imported is a [*fnloop.PackageError] of every call.
	Preload []string
	// Logger gets a warning for whatever could not be removed after a run, and where
	// what a language needs cannot be kept. Nil
	// discards it.
	Logger *slog.Logger

	host     lazy.Value[*host]
	slots    limit.Slots
	sessions supervisor.Sessions
}

// A Protection says what bounds the programs of a [Runner] on its host.
type Protection struct {
	// Version is bubblewrap's.
	Version string
	// Python is the interpreter's path, PythonVersion such as "3.12.4".
	Python, PythonVersion string
	// UID is the user that the programs are for the kernel outside.
	UID int
	// Cgroup is 1 or 2, the version that limits memory and processes, or zero
	// where the host lets none be made.
	Cgroup int
	// Sockets means that what waits in the sockets of a program is bounded too.
	Sockets bool
	// NestedUserNamespaces reports whether only the seccomp filter keeps
	// programs from making user namespaces of their own.
	NestedUserNamespaces bool
	// NotForked says why programs are not forked from an interpreter that has started
	// once for all, each into a sandbox of its own, but start one each, which takes
	// longer and is as safe. It is empty where they are.
	NotForked string
	// Missing has a sentence for each thing that is weaker here than elsewhere.
	Missing []string
}

// An Error says why no program can be run on this host. No part of any program
// was run.
type Error struct {
	// Missing is what is not there or not allowed, such as "bubblewrap" or
	// "unprivileged user namespaces".
	Missing string
	// Advice says how to fix it.
	Advice string
	// Err is what was met.
	Err error
}

func (e *Error) Error() string {
	s := "bubblewrap: cannot isolate programs here: no " + e.Missing
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Advice != "" {
		s += " (" + e.Advice + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// bounds are the fields that bound programs.
func (r *Runner) bounds() limit.Bounds {
	return limit.Bounds{Time: r.Time, Memory: r.Memory, PIDs: r.PIDs, CPUs: r.CPUs, Tmp: r.Tmp, OpenFiles: r.OpenFiles}
}
