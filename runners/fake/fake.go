// Package fake has a runner that runs nothing: it plays a script. Tests of
// whatever sits on a [fnloop.Runner] use it in place of a sandbox, under the
// clock of [testing/synctest] too.
package fake

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fnloop/fnloop"
	"github.com/fnloop/fnloop/internal/relay"
	"github.com/fnloop/fnloop/interpreter"
)

// DefaultTime is the time limit of programs that bring none, where
// [Runner.Limits] has none either.
const DefaultTime = 10 * time.Second

// A Runner answers programs from a script. Its zero value answers every program
// with exit code 0 and no output. Set the fields before the first call; after
// that it is safe for concurrent use.
//
// The answer to a program is that of Func if it is not nil, else the one in
// Scripts under the program's source, else the next of Results, else the zero
// value's.
type Runner struct {
	// Func answers a program. It runs in place of the sandbox: an error is the
	// runner's, not the program's.
	Func func(context.Context, fnloop.Program) (fnloop.Result, error)
	// Scripts are answers by the text of the program.
	Scripts map[string]fnloop.Result
	// Results are answers in the order of the calls. The last one is repeated.
	Results []fnloop.Result
	// Delay is how long each program takes. One that would take longer than its
	// time limit times out, with its output but without its exit code.
	Delay time.Duration
	// Limits are those of programs that bring none. A zero Time means
	// DefaultTime; a zero Memory is none.
	Limits fnloop.Limits
	// Env is what Environment gives. Its Limits are filled in. Programs of other
	// languages than its are refused, as everywhere.
	Env fnloop.Environment
	// Cells answers the cells of interpreters. Its context ends when the cell
	// is to stop: by its time limit, an interrupt, or the loss of the sandbox. An
	// error is the runner's: the cell was not started. With nil every cell
	// succeeds and shows nothing.
	Cells func(context.Context, *Interpreter, interpreter.Cell) (interpreter.Execution, error)
	// Keep has interpreters stay when their sessions are released, to be resumed.
	Keep bool
	// Copied, if not nil, is called with an interpreter and a copy of it, which has
	// its files, so that Cells can give the copy its variables too.
	Copied func(from, to *Interpreter)

	mu     sync.Mutex
	calls  []fnloop.Program
	next   int
	opened []*Interpreter
}

// Run implements [fnloop.Runner].
func (r *Runner) Run(ctx context.Context, p fnloop.Program) (fnloop.Result, error) {
	if err := p.CheckFor(r.Env.Languages); err != nil {
		return fnloop.Result{}, err
	}
	scripted := r.record(p)
	if err := ctx.Err(); err != nil {
		return fnloop.Result{}, err
	}
	limits := r.limits(p.Limits)
	begin := time.Now()
	res := scripted
	if r.Func != nil {
		var err error
		if res, err = r.Func(ctx, p); err != nil {
			return res, err
		}
	}
	res.Limits = limits
	res = complete(res)

	// Whatever ends at the same time as the limit still ended by itself.
	delay := max(0, r.Delay-time.Since(begin))
	timedOut := delay > limits.Time
	timer := time.NewTimer(min(delay, limits.Time))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	stdout, stderr := output(p, res)
	switch {
	case ctx.Err() != nil:
		res = fnloop.Result{Limits: limits, End: fnloop.EndCancelled}
	case timedOut:
		res = fnloop.Result{Limits: limits, End: fnloop.EndTimeout, TimedOut: true}
	}
	res.Duration = time.Since(begin)
	res.SetOutput(stdout, stderr)
	return res, ctx.Err()
}

// complete fills in how a program ended where the script left it out.
func complete(res fnloop.Result) fnloop.Result {
	switch {
	case res.End != fnloop.EndUnknown:
	case res.TimedOut:
		res.End = fnloop.EndTimeout
	case res.Signal != "":
		res.End = fnloop.EndSignal
	default:
		res.End = fnloop.EndExit
	}
	switch {
	case res.End != fnloop.EndExit:
		res.ExitCode = nil
	case res.ExitCode == nil:
		res.ExitCode = new(int)
	}
	res.TimedOut = res.End == fnloop.EndTimeout
	return res
}

// output prints what the script says.
func output(p fnloop.Program, res fnloop.Result) (stdout, stderr *fnloop.Capture) {
	print := func(s string, live io.Writer) *fnloop.Capture {
		c := new(fnloop.Capture)
		io.WriteString(c, s)
		if live != nil {
			w := relay.New(live)
			io.WriteString(w, s)
			w.Close(100 * time.Millisecond)
		}
		return c
	}
	return print(res.Stdout, p.Stdout), print(res.Stderr, p.Stderr)
}

// record keeps p and gives what the script has for it.
func (r *Runner) record(p fnloop.Program) fnloop.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, p)
	if res, ok := r.Scripts[p.Source]; ok {
		return res
	}
	if len(r.Results) == 0 {
		return fnloop.Result{}
	}
	res := r.Results[min(r.next, len(r.Results)-1)]
	r.next++
	return res
}

// Calls are the programs that were run so far, in the order of their start.
func (r *Runner) Calls() []fnloop.Program {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Environment implements [fnloop.Describer].
func (r *Runner) Environment() fnloop.Environment {
	env := r.Env
	env.Limits = r.limits(env.Limits)
	return env
}

// Lacks says that programs are not executed.
func (r *Runner) Lacks() map[string]string {
	return map[string]string{"execution": "the fake runner plays a script"}
}

func (r *Runner) limits(l fnloop.Limits) fnloop.Limits {
	if l.Time == 0 {
		l.Time = r.Limits.Time
	}
	if l.Time == 0 {
		l.Time = DefaultTime
	}
	if l.Memory == 0 {
		l.Memory = r.Limits.Memory
	}
	return l
}

// Exit is the Result of a program that printed stdout and ended with code.
func Exit(code int, stdout string) fnloop.Result {
	return fnloop.Result{ExitCode: &code, Stdout: stdout, End: fnloop.EndExit}
}
