package fnloop

import (
	"context"
	"strings"
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
	tool := MustTool(pythonTool, "", func(ctx context.Context, in input) (Output, error) {
		return runProgram(ctx, r, Program{Source: in.Code, Limits: limits})
	})
	tool.runsOn(r, limits, describePython)
	return tool
}

// CustomPythonTool is [PythonTool] as a custom tool: the model writes the
// program as plain text, without the escapes of a JSON string. Not all models
// and servers have custom tools.
func CustomPythonTool(r Runner, limits Limits) Tool {
	tool := Tool{
		Name:   pythonTool,
		Custom: true,
		Handle: func(ctx context.Context, call Call) (Output, error) {
			return runProgram(ctx, r, Program{Source: string(call.Arguments), Limits: limits})
		},
	}
	tool.runsOn(r, limits, describePython)
	tool.Description += " Write the program itself and nothing else."
	return tool
}

const pythonTool = "run_python"

// describePython is what the tool says of its sandbox.
func describePython(env *Environment, limits Limits, _ Tool) toolText {
	var version, rest string
	if env != nil {
		rest = describeNetwork(*env)
		if env.Python != "" {
			version = " " + env.Python
		}
		if len(env.Packages) > 0 {
			rest += " Beside the standard library these packages are installed: " + strings.Join(env.Packages, ", ") + "."
		} else {
			rest += " Only the standard library is available."
		}
		rest += describeRoom(*env)
	}
	return toolText{description: "Runs a Python" + version + programIntro + rest + describeLimits(env, limits) + programRest}
}
