package fnloop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// A Runner runs one program in isolation and says how it ended.
//
// Run returns an error only when the runner itself is at fault or was refused
// its work: the sandbox could not be made, the program could not be handed
// over ([*ProgramError]), or ctx ended. A program that fails, is killed by its
// limits or prints invalid text is a [Result] with a nil error. When ctx ends, Run
// kills the program with everything it started and returns an error for which
// errors.Is(err, ctx.Err()) holds; the Result beside it has what was printed
// until then.
//
// Implementations must be safe for concurrent use: a [Loop] runs the calls of
// one response side by side.
type Runner interface {
	Run(context.Context, Program) (Result, error)
}

// ErrUnavailable is what an error of a [Runner] is, by [errors.Is], if no program
// can be run: there is no isolation, no engine, no key. A run whose tool meets it
// ends with a [*ToolError], since the model can do nothing about it.
var ErrUnavailable = errors.New("fnloop: the runner can run no program")

// Unavailable makes an [ErrUnavailable] of err, without a change to its text. It
// is for runners.
func Unavailable(err error) error { return &unavailable{err} }

type unavailable struct{ error }

func (e *unavailable) Unwrap() error        { return e.error }
func (e *unavailable) Is(target error) bool { return target == ErrUnavailable }

// A RunnerError says that the sandbox behind a tool did not work. A handler
// returns it, as that of [PythonTool] does, with an [Output] that tells the model
// no more than that. The Loop then logs an error. It ends the run with a
// [*ToolError] if Err is an [ErrUnavailable], or if the call of the tool before
// that one ended so too.
type RunnerError struct{ Err error }

func (e *RunnerError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *RunnerError) Unwrap() error { return e.Err }

// A Program is what a [Runner] runs: one source file.
type Program struct {
	// Source is the text of the program. It must be valid UTF-8 without NUL.
	Source string
	// Language is what Source is written in: one of those in the runner's
	// [Environment]. Empty is [LanguagePython].
	Language string
	// Stdin is what the program reads from its standard input, to the byte.
	// Empty means that it reads the end of the file at once.
	Stdin []byte
	// Stdout and Stderr, when not nil, get a copy of what the program prints
	// while it runs, in chunks that never split a rune. A writer that is
	// slow or blocks never slows the program or delays its Result. It misses bytes
	// instead, and a line says how many.
	Stdout, Stderr io.Writer
	// Limits bound this run.
	Limits Limits
}

// MaxSource is the size of the largest Source that the runners of this module
// take, in bytes.
const MaxSource = 16 << 20

// Check reports whether p can be run at all by a runner that has Python alone, as
// a [*ProgramError] that names the field, or nil. Runners call it, or
// [Program.CheckFor], before they start anything.
func (p Program) Check() error { return p.CheckFor(nil) }

// checkText reports whether p can be run, whatever its language.
func (p Program) checkText() error {
	switch {
	case len(p.Source) > MaxSource:
		return &ProgramError{Field: "source", Reason: fmt.Sprintf("%d bytes are more than the %d that can be run", len(p.Source), MaxSource)}
	case p.Limits.Time < 0:
		return &ProgramError{Field: "limits.time", Reason: fmt.Sprintf("%v is negative; zero means the runner's own", p.Limits.Time)}
	case p.Limits.Memory < 0:
		return &ProgramError{Field: "limits.memory", Reason: fmt.Sprintf("%d bytes is negative; zero means the runner's own", p.Limits.Memory)}
	}
	return checkSource(p.Source)
}

// Limits bound one run of a program. A zero field means the runner's default. A
// negative one is an error, since no program runs without limits.
type Limits struct {
	// Time is how long the program may run by the wall clock, counted from the
	// moment it starts and not from the request for a sandbox.
	Time time.Duration
	// Memory is how much memory the program and all that it starts may use,
	// in bytes.
	Memory int64
}

// An Environment says what a program finds in a runner's sandbox. [PythonTool]
// tells the model; a zero field means that it is not known and not mentioned.
type Environment struct {
	// Python is the version of the interpreter, such as "3.12.4".
	Python string
	// Languages are those that a program can be written in, Python among them.
	// None means Python alone.
	Languages []Language
	// Packages are the packages beside Python's standard library, the likely ones
	// first, such as "numpy 1.26.4" and "pillow 10.2.0 (import PIL)".
	Packages []string
	// Network reports whether programs can reach the network.
	Network bool
	// Writable names the directory that a program may write to and its size,
	// such as "/tmp (64 MiB)".
	Writable string
	// Limits are the runner's defaults.
	Limits Limits
}

// A Describer is a [Runner] that knows its [Environment]. It is optional.
type Describer interface {
	Environment() Environment
}

// An Inspector is a [Runner] that has to start something to know its
// [Environment], or that can fail to. It is optional and used in place of a
// [Describer]: [PythonTool] asks it once, when the tool is first used in a Loop.
type Inspector interface {
	// Inspect says what programs find, or why none can be run.
	Inspect(context.Context) (Environment, error)
}

// RunnerAs finds the optional capability T in r, or in the runner that r wraps
// and gives through a method Unwrap() Runner.
func RunnerAs[T any](r Runner) (t T, ok bool) {
	for r != nil {
		if t, ok = r.(T); ok {
			return t, true
		}
		w, wraps := r.(interface{ Unwrap() Runner })
		if !wraps {
			break
		}
		r = w.Unwrap()
	}
	return t, false
}

// A ProgramError says why a program was not started: it cannot be run by any
// runner of its kind, and the fault is the program's.
type ProgramError struct {
	Field  string // "source", "language", "stdin", "limits.time", "limits.memory"
	Reason string // what is wrong with it
}

func (e *ProgramError) Error() string { return "program: " + e.Field + ": " + e.Reason }

func checkSource(source string) error {
	if i := strings.IndexByte(source, 0); i >= 0 {
		return &ProgramError{Field: "source", Reason: fmt.Sprintf("NUL byte at offset %d", i)}
	}
	if i := excerpt.InvalidUTF8(source); i >= 0 {
		return &ProgramError{Field: "source", Reason: fmt.Sprintf("invalid UTF-8 at offset %d", i)}
	}
	return nil
}
