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
// Zero limits mean the runner's. The tool tells the model what r says of its
// sandbox as a [Describer]. PythonTool starts nothing: an [Inspector] is asked
// when the tool is first used in a Loop, or by [Loop.Check], and a runner that
// does not work is an error there.
//
// A program that fails is a result like any other. If the runner fails, the model
// reads only that the sandbox failed; the error, a [*RunnerError], is in
// [CallResult.Err] and in the log. A runner that fails twice in a row, or can run
// no program at all, ends the run.
func PythonTool(r Runner, limits Limits) Tool {
	type input struct {
		Code string `json:"code" jsonschema_description:"A whole Python program. It is run as a file, so print what you want to see."`
	}
	description, inspection := describePython(r, limits)
	tool := MustTool(pythonTool, description, func(ctx context.Context, in input) (Output, error) {
		return runPython(ctx, r, in.Code, limits)
	})
	tool.Repeatable, tool.inspection, tool.err = true, inspection, checkPython(r, limits)
	return tool
}

// CustomPythonTool is [PythonTool] as a custom tool: the model writes the
// program as plain text, without the escapes of a JSON string. Not all models
// and servers have custom tools.
func CustomPythonTool(r Runner, limits Limits) Tool {
	description, inspection := describePython(r, limits)
	return Tool{
		Name:        pythonTool,
		Description: description + " Write the program itself and nothing else.",
		Custom:      true,
		Repeatable:  true,
		Handle: func(ctx context.Context, call Call) (Output, error) {
			return runPython(ctx, r, string(call.Arguments), limits)
		},
		inspection: inspection,
		err:        checkPython(r, limits),
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

// describePython is the description of the tool, as far as it is known without
// asking r, and the inspection that finds out the rest; nil if that is all.
func describePython(r Runner, limits Limits) (string, *inspection) {
	if i, ok := RunnerAs[Inspector](r); ok {
		return pythonIntro("") + pythonRest, &inspection{inspector: i, limits: limits, asking: make(chan struct{}, 1)}
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

// An inspection asks a runner what its sandbox is like. It is asked until
// it answers, by one caller at a time.
type inspection struct {
	inspector Inspector
	limits    Limits
	asking    chan struct{} // holds one while the runner is asked
	found     atomic.Pointer[pythonText]
}

// A pythonText is what the description of a tool says of its sandbox.
type pythonText struct{ intro, rest string }

// ask returns what the runner says.
func (i *inspection) ask(ctx context.Context) (*pythonText, error) {
	if s, ok := i.known(); ok {
		return s, nil
	}
	select {
	case i.asking <- struct{}{}:
		defer func() { <-i.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s, ok := i.known(); ok {
		return s, nil
	}
	env, err := i.inspector.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	s := &pythonText{pythonIntro(env.Python), describeEnvironment(env, i.limits)}
	i.found.Store(s)
	return s, nil
}

func (i *inspection) known() (*pythonText, bool) {
	s := i.found.Load()
	return s, s != nil
}

// complete fills in a description that was written before the runner was asked.
// One that its user has rewritten stays as it is.
func (s *pythonText) complete(description string) string {
	rest, ok := strings.CutPrefix(description, pythonIntro("")+pythonRest)
	if !ok {
		return description
	}
	return s.intro + s.rest + pythonRest + rest
}
