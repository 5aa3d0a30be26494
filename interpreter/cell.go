package interpreter

import (
	"fmt"
	"io"
	"time"

	"github.com/fnloop/fnloop"
)

// A Cell is one piece of Python code.
type Cell struct {
	// Source is the code. It must be valid UTF-8 without NUL, and have at most
	// [fnloop.MaxSource] bytes. The value of a last expression is shown, unless
	// a semicolon follows it; await is allowed outside of functions.
	Source string
	// Limits.Time bounds this cell; zero means the session's. Limits.Memory is
	// the session's alone and must be zero.
	Limits fnloop.Limits
	// Stdout and Stderr, when not nil, get a copy of what the cell prints while
	// it runs, as those of a [fnloop.Program] do.
	Stdout, Stderr io.Writer
	// Display, when not nil, is called with each display while the cell runs,
	// one call at a time. A slow one does not hold up the cell, but Run waits
	// for it for a moment.
	Display func(Display)
}

// check reports what is wrong with c, as a [*fnloop.ProgramError].
func (c Cell) check() error {
	if err := (fnloop.Program{Source: c.Source, Limits: fnloop.Limits{Time: c.Limits.Time}}).Check(); err != nil {
		return err
	}
	if c.Limits.Memory != 0 {
		return &fnloop.ProgramError{Field: "limits.memory", Reason: fmt.Sprintf("%d bytes for one cell: memory is limited for the whole session", c.Limits.Memory)}
	}
	return nil
}

// An Execution is what a cell did.
type Execution struct {
	// Status is how the cell ended.
	Status Status
	// Count is the number of the cell in its session, from 1.
	Count int
	// Stdout and Stderr are what was printed while the cell ran, by the cell or
	// by what earlier cells left running. Background is what these printed since
	// the cell before, on both streams. All are valid UTF-8; where one was too
	// long it has head and tail with a marker between them that counts the bytes
	// left out, and Truncated is set.
	Stdout, Stderr, Background string
	Truncated                  bool
	// Displays are the values and figures that were shown, in order. At most
	// one has Main set. Omitted counts those that were left out, as a cell can
	// show more than anybody can look at.
	Displays []Display
	Omitted  int
	// Error is set when Status is StatusError.
	Error *Error
	// Files are the changes in the work folder since the cell before, by name,
	// without hidden files and links. MoreFiles counts the changes beyond those
	// that are listed.
	Files     []FileChange
	MoreFiles int
	// Restored reports that the interpreter had to be killed and that its copy
	// took over: the variables are what they were before this cell. Effects on
	// files stay.
	Restored bool
	// Loss is set once, on the execution that cost the session its variables or
	// else on the one that follows.
	Loss *Loss
	// Cause is what ended the interpreter during this cell; empty when it lives.
	Cause Cause
	// Names are the top-level names that there are now: variables, functions and
	// classes, without modules and names with an underscore in front. It is a
	// claim of the code, and at most 200 names long.
	Names []string
	// Threads, Tasks and Processes count what the code has left running: threads
	// and asyncio tasks by its own word, processes by the sandbox's.
	Threads, Tasks, Processes int
	// MemoryKills counts the child processes that were killed in this cell for
	// want of memory.
	MemoryKills int
	// Limits are those that the cell was held to.
	Limits fnloop.Limits
	// Startup is how long the cell waited for a sandbox, zero when there was one.
	// Duration is how long it ran.
	Startup, Duration time.Duration
}

// Main is the value of the cell's last expression, if it had one.
func (e Execution) Main() (d Display, ok bool) {
	for _, d := range e.Displays {
		if d.Main {
			return d, true
		}
	}
	return Display{}, false
}

// A Status is how a cell ended.
type Status string

// The ways in which a cell ends.
const (
	// StatusOK means that all of it ran.
	StatusOK Status = "ok"
	// StatusError means that an exception ended it, or that it ended the
	// interpreter: Execution.Error says which.
	StatusError Status = "error"
	// StatusTimeout means that its time limit ended it.
	StatusTimeout Status = "timeout"
	// StatusInterrupted means that Interrupt or the caller's context ended it.
	StatusInterrupted Status = "interrupted"
	// StatusLost means that the interpreter ended under it and that nothing
	// could be put back: Execution.Loss says why and what is gone.
	StatusLost Status = "lost"
)

// A Display is one value or figure in the forms that it has.
type Display struct {
	// Main marks the value of the cell's last expression.
	Main bool
	// Data has the forms by their MIME type: text/plain, image/png, text/html
	// and so on. Binary forms are bytes and not base64. What is an image by its
	// type is one by its header too.
	Data map[string][]byte
}

// An Error is an exception that ended a cell.
type Error struct {
	// Name is the exception's type, with its module unless it is built in.
	Name string
	// Value is its message.
	Value string
	// Traceback is what Python would print, with the lines of the cells. It is
	// empty where no exception ended the cell.
	Traceback string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return e.Name
	}
	return e.Name + ": " + e.Value
}

// A Cause is what ended an interpreter.
type Cause string

// What can end an interpreter.
const (
	CauseTimeout   Cause = "timeout"   // a cell did not react at its time limit
	CauseInterrupt Cause = "interrupt" // a cell did not react to an interrupt
	CauseMemory    Cause = "memory"    // the kernel killed it at its memory limit
	CauseExit      Cause = "exit"      // it ended by itself, without the session
	CauseSignal    Cause = "signal"    // a signal or a fault of native code killed it
	CauseOutput    Cause = "output"    // a cell printed without end and did not react
	CauseSandbox   Cause = "sandbox"   // the sandbox went away
	CauseRestart   Cause = "restart"   // Restart was called
	CauseIdle      Cause = "idle"      // Sessions closed it, as nobody used it
	CauseEvicted   Cause = "evicted"   // Sessions closed it for another one
	CauseHost      Cause = "host"      // the process that kept it has ended
	CauseMoved     Cause = "moved"     // the conversation has come to another process, of another Sessions.Host
)

// A Loss says that the variables of a session are gone.
type Loss struct {
	Cause Cause
	// Detail is more about the cause, such as "SIGSEGV"; it may be empty.
	Detail string
	// Names are the names that are gone, as far as they were known.
	Names []string
	// FilesKept reports whether the files of the work folder are still there.
	FilesKept bool
}

// A FileChange is what happened to one file of the work folder.
type FileChange struct {
	// Name is the path below the work folder, with slashes.
	Name string `json:"name"`
	// Size is in bytes, zero for a removed file.
	Size int64 `json:"size"`
	// Change is "new", "changed" or "removed".
	Change string `json:"change"`
}

// The changes of files.
const (
	FileNew     = "new"
	FileChanged = "changed"
	FileRemoved = "removed"
)

// A File is one file of the work folder.
type File struct {
	// Name is the path below the work folder, with slashes.
	Name string
	// Size is in bytes.
	Size int64
	// Modified is the time of the last change.
	Modified time.Time
}
