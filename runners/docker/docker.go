// Package docker runs programs in containers of a Docker engine, or of Podman
// through the same API.
//
// A program finds a read-only image, a small writable /tmp and /dev/shm, and an
// environment of a dozen fixed variables. It has no network but a loopback
// interface of its own, no file of the host, no capability and no way to one,
// and a seccomp filter in front of the kernel. Its container serves it alone
// and is removed afterwards, with everything that it started.
//
// The container's first process is not an init program of Docker's but the
// supervisor, which does an init's work and which the program cannot signal,
// trace or look into. Docker's own init runs as the program's user and has the
// container's standard streams open: the program could write to them, and say
// of itself what only the supervisor may say.
package docker

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/fnloop/fnloop/internal/lazy"
	"github.com/fnloop/fnloop/internal/limit"
	"github.com/fnloop/fnloop/internal/supervisor"
)

// What a [Runner] does whose fields are zero.
const (
	DefaultImage     = "python:3.12-slim"
	DefaultTime      = limit.DefaultTime
	DefaultMemory    = limit.DefaultMemory
	DefaultPIDs      = limit.DefaultPIDs
	DefaultCPUs      = 1
	DefaultTmp       = limit.DefaultTmp
	DefaultOpenFiles = limit.DefaultOpenFiles
	DefaultPull      = 10 * time.Minute
	DefaultInodes    = 4096
	DefaultStartup   = 30 * time.Second
)

// MinMemory is the smallest memory limit that a container and an interpreter
// start in, in bytes.
const MinMemory = limit.MinMemory

// A Runner runs programs in containers. Its zero value uses the engine that the
// docker command would use, and is safe for concurrent use once its fields are
// set. It must be closed.
type Runner struct {
	// Host is the engine's address, such as unix:///run/user/1000/docker.sock or
	// tcp://host:2376. Empty means DOCKER_HOST, else the current context of the
	// docker command, else the first that answers of Docker's socket, that of a
	// rootless Docker, and Podman's.
	Host string
	// Image has Python 3.8 or later. Empty means DefaultImage. It must be there:
	// [Runner.Prepare] pulls it.
	Image string
	// Python is the interpreter in the image. Empty means python3 on the path
	// /usr/local/bin:/usr/bin:/bin.
	Python string
	// Runtime is the engine's name for what runs a container, such as runsc or
	// kata. Empty means the engine's default.
	Runtime string
	// Time and Memory are the limits of programs that bring none: zero means
	// DefaultTime and DefaultMemory (bytes, for all processes together, none of
	// it swapped out).
	Time   time.Duration
	Memory int64
	// PIDs is how many processes and threads a program may have at once, and
	// CPUs how many processors it may keep busy. Zero means DefaultPIDs and
	// DefaultCPUs.
	PIDs int
	CPUs float64
	// MaxPrograms is how many programs run at once. More of them wait, which is
	// no part of the time of a program. Zero means four for each processor of
	// this machine, negative no bound.
	MaxPrograms int
	// Tmp is the size of /tmp, and of /dev/shm, in bytes. Zero means DefaultTmp.
	// Both count as memory; under a memory limit less than four times as large
	// they shrink to a quarter of it.
	Tmp int64
	// OpenFiles is how many descriptors each process of a program may have. Zero
	// means DefaultOpenFiles; fewer than 16 are refused.
	OpenFiles int
	// CgroupParent is the cgroup that the containers are made in, so that all
	// of them together can be bounded. Empty means the engine's default.
	CgroupParent string
	// AllowUnlimited runs programs where the engine cannot enforce the limits on
	// memory or processes, as a rootless one may not. Otherwise such an engine is
	// refused.
	AllowUnlimited bool
	// Warm is how many containers are kept ready, with an interpreter in each
	// that waits for its program: a call then takes a fraction of the time. Each
	// still serves one program only. Zero keeps none.
	Warm int
	// Packages are requirements as pip has them, such as "numpy", "pandas==2.2.*",
	// "name @ https://…" and "-r requirements.txt". They are installed at the first
	// use, which can take minutes ([Runner.Prepare] does it ahead), in a container of
	// the image with a network, and kept in the engine as an image. Index, credentials
	// and proxies are those of this host's pip configuration. The image needs pip or
	// uv. What cannot be installed is a [*fnloop.PackageError] of every call.
	Packages []string
	// InstallNetwork is the engine's network for that container, such as "host".
	// Empty means the engine's default.
	InstallNetwork string
	// Installing is told what the installer prints, a line at a time. Nil is told
	// nothing.
	Installing func(line string)
	// Preload are modules that every interpreter has imported before its program
	// or session comes, such as "pandas": with Warm containers an import of them then
	// costs nothing. They are imported in /tmp, and what they print is dropped. One
	// that cannot be imported is a [*fnloop.PackageError] of every call.
	Preload []string
	// Startup bounds how long a container may take until its interpreter is
	// ready, and how long the engine may take for the first questions. Zero means
	// DefaultStartup. A call waits no longer for an engine that does not answer.
	Startup time.Duration
	// Pull bounds how long Prepare may take to pull the image. Zero means
	// DefaultPull.
	Pull time.Duration
	// Progress is told of a pull that goes on, one call at a time. Nil is told
	// nothing.
	Progress func(Progress)
	// Logger gets a warning for whatever could not be removed after a run. Nil
	// discards it.
	Logger *slog.Logger

	engine   lazy.Value[*engine]
	slots    limit.Slots
	sessions supervisor.Sessions
	closing  sync.WaitGroup // engines that turned out to be of no use
	pull     sync.Mutex     // held while an image is pulled
}

// Progress is how far a pull has got.
type Progress struct {
	Image string
	// Layer is the part that this is about, Status what is done with it, such as
	// "Downloading". Current and Total are bytes, zero where they are not known.
	Layer, Status  string
	Current, Total int64
}

// What can be wrong with an engine. They are within an [*Error].
var (
	// ErrNoSocket means that nothing is where the engine's socket should be.
	ErrNoSocket = errors.New("no container engine is there")
	// ErrPermission means that the engine's socket is not for this user.
	ErrPermission = errors.New("permission to use the container engine denied")
	// ErrNotAnswering means that there is a socket and nobody behind it.
	ErrNotAnswering = errors.New("the container engine does not answer")
	// ErrOldAPI means that the engine is too old.
	ErrOldAPI = errors.New("the container engine is too old")
	// ErrNoImage means that the image is not there.
	ErrNoImage = errors.New("no such image")
	// ErrNoPython means that the image has no Python that would do.
	ErrNoPython = errors.New("no Python 3.8 or later in the image")
	// ErrRuntime means that the engine does not know the runtime.
	ErrRuntime = errors.New("unknown container runtime")
	// ErrLimits means that the engine cannot enforce the limits.
	ErrLimits = errors.New("the container engine cannot enforce the limits")
	// ErrNotIsolated means that a program found that it can do what it must not.
	ErrNotIsolated = errors.New("the container engine does not isolate programs")
	// ErrClosed means that the Runner was closed.
	ErrClosed = errors.New("the runner is closed")
)

// An Error says why no program can be run. No part of any program was run.
type Error struct {
	// Host is the engine's address, where it is known.
	Host string
	// Advice says how to fix it.
	Advice string
	// Err has one of the errors of this package in it, or what else was met.
	Err error
}

func (e *Error) Error() string {
	s := "docker: " + e.Err.Error()
	if e.Host != "" {
		s += ": " + e.Host
	}
	if e.Advice != "" {
		s += " (" + e.Advice + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// bounds are those of programs.
func (r *Runner) bounds() limit.Bounds {
	return limit.Bounds{Time: r.Time, Memory: r.Memory, PIDs: r.PIDs, CPUs: cmp.Or(r.CPUs, DefaultCPUs), Tmp: r.Tmp, OpenFiles: r.OpenFiles}
}
