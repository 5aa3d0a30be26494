package fnloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// PythonTool makes the tool run_python, with which the model runs a Python
// script on r and reads its [Result]: exit_code, timed_out, stdout and stderr.
//
// Zero limits mean the runner's. What the tool says of the sandbox is what r
// says of it as a [Describer].
//
// A program that fails is a result as any other. A runner that fails is not the
// model's to mend: it reads only that the sandbox did not work, and the error
// is in [CallResult.Err].
func PythonTool(r Runner, limits Limits) Tool {
	type input struct {
		Code string `json:"code" jsonschema_description:"A whole Python program. It is run as a file, so print what you want to see."`
	}
	tool := MustTool(pythonTool, describePython(r, limits), func(ctx context.Context, in input) (Output, error) {
		return runPython(ctx, r, in.Code, limits)
	})
	tool.err = checkPython(r, limits)
	return tool
}

// CustomPythonTool is [PythonTool] as a custom tool: the model writes the
// program as plain text, without the escapes of a JSON string. Not all models
// and servers have custom tools.
func CustomPythonTool(r Runner, limits Limits) Tool {
	return Tool{
		Name:        pythonTool,
		Description: describePython(r, limits) + " Write the program itself and nothing else.",
		Custom:      true,
		Handle: func(ctx context.Context, call Call) (Output, error) {
			return runPython(ctx, r, string(call.Arguments), limits)
		},
		err: checkPython(r, limits),
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
		return Output{Text: "the sandbox failed, so there is no result; this is not a fault of the program"}, err
	}
	return res.output(ctx), nil
}

func checkPython(r Runner, limits Limits) error {
	switch {
	case r == nil:
		return errors.New("the runner is nil")
	case limits.Time < 0:
		return fmt.Errorf("Limits.Time %v is negative; every program has a limit, and zero means the runner's", limits.Time)
	case limits.Memory < 0:
		return fmt.Errorf("Limits.Memory %d is negative; every program has a limit, and zero means the runner's", limits.Memory)
	}
	return nil
}

// describePython says what is true of r.
func describePython(r Runner, limits Limits) string {
	var env Environment
	d, described := RunnerAs[Describer](r)
	if described {
		env = d.Environment()
	}
	var b strings.Builder
	b.WriteString("Runs a Python")
	if env.Python != "" {
		b.WriteString(" " + env.Python)
	}
	b.WriteString(" program in a fresh sandbox and returns its exit_code, timed_out, stdout and stderr.")
	b.WriteString(" Use it to compute rather than to guess. Nothing is kept between calls: each starts from the beginning.")
	if described && !env.Network {
		b.WriteString(" There is no network, so nothing can be installed or downloaded.")
	}
	switch {
	case len(env.Packages) > 0:
		b.WriteString(" Beside the standard library there are: " + strings.Join(env.Packages, ", ") + ".")
	case described:
		b.WriteString(" Count on the standard library alone.")
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
	if limits.Time > 0 {
		fmt.Fprintf(&b, " A program may run for %v.", limits.Time.Round(time.Millisecond))
	}
	if limits.Memory > 0 {
		fmt.Fprintf(&b, " It may use %d MiB of memory.", limits.Memory>>20)
	}
	b.WriteString(" exit_code is null when the program was killed; stderr then says by what.")
	b.WriteString(" Long output loses its middle.")
	return b.String()
}
