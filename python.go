package fnloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// PythonTool makes the tool run_python, with which the model runs a Python
// script on r and reads its [Result]: exit_code, timed_out, stdout and stderr.
//
// Zero limits mean the runner's. What the tool says of the sandbox is what r
// says of it as a [Describer], and nothing is started for it here: an
// [Inspector] is asked when the tool is first used in a Loop, or by [Loop.Check],
// and a runner that does not work is an error there.
//
// A program that fails is a result as any other. A runner that fails is not the
// model's to mend: it reads only that the sandbox did not work, and the error,
// a [*RunnerError], is in [CallResult.Err] and in the log. A runner that fails
// twice in a row, or can run nothing at all, ends the run.
func PythonTool(r Runner, limits Limits) Tool {
	type input struct {
		Code string `json:"code" jsonschema_description:"A whole Python program. It is run as a file, so print what you want to see."`
	}
	description, about := describePython(r, limits)
	tool := MustTool(pythonTool, description, func(ctx context.Context, in input) (Output, error) {
		return runPython(ctx, r, in.Code, limits)
	})
	tool.Repeatable, tool.about, tool.err = true, about, checkPython(r, limits)
	return tool
}

// CustomPythonTool is [PythonTool] as a custom tool: the model writes the
// program as plain text, without the escapes of a JSON string. Not all models
// and servers have custom tools.
func CustomPythonTool(r Runner, limits Limits) Tool {
	description, about := describePython(r, limits)
	return Tool{
		Name:        pythonTool,
		Description: description + " Write the program itself and nothing else.",
		Custom:      true,
		Repeatable:  true,
		Handle: func(ctx context.Context, call Call) (Output, error) {
			return runPython(ctx, r, string(call.Arguments), limits)
		},
		about: about,
		err:   checkPython(r, limits),
	}
}

const pythonTool = "run_python"

func runPython(ctx context.Context, r Runner, source string, limits Limits) (Output, error) {
	p := Program{Source: source, Limits: limits}
	p.Stdout, p.Stderr = LiveOutput(ctx)
	res, err := r.Run(ctx, p)
	if bad, ok := errors.AsType[*ProgramError](err); ok {
		return Output{Text: fmt.Sprintf("the program was not run: %s: %s", bad.Field, bad.Reason)}, err
	}
	if err != nil {
		if ctx.Err() == nil {
			err = &RunnerError{err}
		}
		return Output{Text: "the sandbox failed, so there is no result; this is not a fault of the program"}, err
	}
	return res.output(ctx), nil
}

func checkPython(r Runner, limits Limits) error {
	switch {
	case r == nil:
		return errors.New("the runner is nil")
	case limits.Time < 0:
		return fmt.Errorf("Limits.Time %v is negative; zero means the runner's default, and no program runs without a limit", limits.Time)
	case limits.Memory < 0:
		return fmt.Errorf("Limits.Memory %d is negative; zero means the runner's default, and no program runs without a limit", limits.Memory)
	}
	return nil
}

// describePython says what is known of r. What it has to be asked for is the
// about.
func describePython(r Runner, limits Limits) (string, *about) {
	if i, ok := RunnerAs[Inspector](r); ok {
		return pythonIntro("") + pythonRest, &about{inspector: i, limits: limits, asking: make(chan struct{}, 1)}
	}
	d, ok := RunnerAs[Describer](r)
	if !ok {
		return pythonIntro("") + describeLimits(limits) + pythonRest, nil
	}
	env := d.Environment()
	return pythonIntro(env.Python) + describeEnvironment(env, limits) + pythonRest, nil
}

func pythonIntro(version string) string {
	if version != "" {
		version = " " + version
	}
	return "Runs a Python" + version + " program in a fresh sandbox and returns its exit_code, timed_out, stdout and stderr." +
		" Use it to compute instead of guessing. Nothing is kept from one call to the next."
}

const pythonRest = " If the program was killed, exit_code is null and the last line of stderr says why. Long output is cut in the middle."

// describeEnvironment says what is true of env.
func describeEnvironment(env Environment, limits Limits) string {
	var b strings.Builder
	if !env.Network {
		b.WriteString(" There is no network, so nothing can be installed or downloaded.")
	}
	if len(env.Packages) > 0 {
		b.WriteString(" Beside the standard library these packages are installed: " + strings.Join(env.Packages, ", ") + ".")
	} else {
		b.WriteString(" Only the standard library is available.")
	}
	if env.Writable != "" {
		b.WriteString(" Files can be written to " + env.Writable + ".")
	}
	if limits.Time == 0 {
		limits.Time = env.Limits.Time
	}
	if limits.Memory == 0 {
		limits.Memory = env.Limits.Memory
	}
	return b.String() + describeLimits(limits)
}

func describeLimits(limits Limits) string {
	var s string
	if limits.Time > 0 {
		s += fmt.Sprintf(" A program may run for %v.", limits.Time.Round(time.Millisecond))
	}
	if limits.Memory > 0 {
		s += fmt.Sprintf(" It may use %d MiB of memory.", limits.Memory>>20)
	}
	return s
}

// An about is what a tool says of its runner once that was asked. It is asked
// until it answers, by one at a time.
type about struct {
	inspector Inspector
	limits    Limits
	asking    chan struct{} // holds one while the runner is asked
	found     atomic.Pointer[said]
}

// A said is what a runner says of itself, as the description of a tool has it.
type said struct{ intro, rest string }

// ask returns what the runner says.
func (a *about) ask(ctx context.Context) (*said, error) {
	if s, ok := a.known(); ok {
		return s, nil
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s, ok := a.known(); ok {
		return s, nil
	}
	env, err := a.inspector.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	s := &said{pythonIntro(env.Python), describeEnvironment(env, a.limits)}
	a.found.Store(s)
	return s, nil
}

func (a *about) known() (*said, bool) {
	s := a.found.Load()
	return s, s != nil
}

// in completes a description that was written before the runner was asked. One
// that its user has rewritten stays as it is.
func (s *said) in(description string) string {
	rest, ok := strings.CutPrefix(description, pythonIntro("")+pythonRest)
	if !ok {
		return description
	}
	return s.intro + s.rest + pythonRest + rest
}
