package interpreter

import (
	"context"
	"errors"
	"io"

	"github.com/fnloop/fnloop"
)

// An Opener is a [fnloop.Runner] that can keep an interpreter alive. It is
// optional; [Open] finds it through wrappers, as [fnloop.RunnerAs] does.
type Opener interface {
	// OpenInterpreter starts an interpreter in a sandbox of its own. Zero fields
	// of c mean the runner's defaults.
	OpenInterpreter(ctx context.Context, c Config) (Driver, error)
}

// A Driver is one interpreter in one sandbox, as runners make it for a
// [Session]. The session calls Run, Restart and Close one at a time, and the
// others at any time, from any goroutine.
//
// Where the sandbox is not there any more, every method but Close returns an
// error for which errors.Is(err, [ErrGone]) holds. Any other error means that
// the interpreter may still be there.
type Driver interface {
	// Info says what the interpreter is.
	Info() Info
	// Run runs a cell, which was checked, and gives all of its Execution but
	// Count and Startup, what it gave to events, and the Names of a Loss. When
	// the time limit passes or ctx ends it stops the cell, gently first, and
	// keeps the interpreter if it can. An end of ctx is no error but
	// StatusInterrupted. An error means that the cell was not started.
	Run(ctx context.Context, c Cell, events Events) (Execution, error)
	// Interrupt stops the cell that runs and does not wait for its end. It
	// reports whether one ran.
	Interrupt(ctx context.Context) (bool, error)
	// Restart replaces the interpreter by a fresh one and keeps the files.
	Restart(ctx context.Context) error
	// The files of the work folder, by names that were checked. A file that is
	// not there is an error for which errors.Is(err, fs.ErrNotExist) holds.
	Put(ctx context.Context, name string, r io.Reader) error
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	List(ctx context.Context) ([]File, error)
	Remove(ctx context.Context, name string) error
	// Close ends the interpreter with everything that it started, and returns
	// when nothing is left. It ends a Run that is going on.
	Close() error
}

// Events take in what a cell shows while it runs. A driver calls them one at a
// time, and they return at once.
type Events interface {
	Stdout(p []byte)
	Stderr(p []byte)
	// Background gets what was printed before the cell was started.
	Background(p []byte)
	Display(d Display)
}

// An Info says what an interpreter is.
type Info struct {
	// Python is its version, such as "3.12.4".
	Python string
	// Dir is the work folder as the code sees it; it is the current folder.
	Dir string
	// Limits are those of cells that bring none, and of the session's memory.
	Limits fnloop.Limits
}

// ErrGone is within the error of a [Driver] whose sandbox is not there any
// more.
var ErrGone = errors.New("the sandbox is gone")

// ErrUnsupported is within the error of [Open] for a runner that cannot keep an
// interpreter.
var ErrUnsupported = errors.New("the runner cannot keep an interpreter alive")

// ErrClosed is within the errors of a [Session] that was closed.
var ErrClosed = errors.New("the session is closed")
