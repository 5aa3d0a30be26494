//go:build !linux

package bubblewrap

import (
	"context"
	"errors"
	"runtime"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/interpreter"
)

type host struct{}

func (r *Runner) unsupported() error {
	return &Error{
		Missing: "Linux",
		Err:     errors.ErrUnsupported,
		Advice:  "bubblewrap needs the Linux kernel, and this is " + runtime.GOOS + "; use the Docker runner",
	}
}

// Run implements [fnloop.Runner]. It fails everywhere but on Linux.
func (r *Runner) Run(context.Context, fnloop.Program) (fnloop.Result, error) {
	return fnloop.Result{}, r.unsupported()
}

// OpenInterpreter implements [interpreter.Opener]. It fails everywhere but on
// Linux.
func (r *Runner) OpenInterpreter(context.Context, interpreter.Config) (interpreter.Driver, error) {
	return nil, r.unsupported()
}

// Probe reports whether programs can be isolated on this host.
func (r *Runner) Probe(context.Context) error { return r.unsupported() }

// Protection says what bounds programs on this host.
func (r *Runner) Protection(context.Context) (Protection, error) {
	return Protection{}, r.unsupported()
}

// Environment implements [fnloop.Describer].
func (r *Runner) Environment() fnloop.Environment { return fnloop.Environment{} }

// Inspect implements [fnloop.Inspector].
func (r *Runner) Inspect(context.Context) (fnloop.Environment, error) {
	return fnloop.Environment{}, r.unsupported()
}

// Close does nothing.
func (r *Runner) Close() error { return nil }
