package fnloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// runProgram runs p for the model.
func runProgram(ctx context.Context, r Runner, p Program) (Output, error) {
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

// runsOn makes t a tool that runs programs on r. text says what it tells the
// model of r's sandbox, where env is known, and else of limits alone.
func (t *Tool) runsOn(r Runner, limits Limits, text func(env *Environment, limits Limits, t Tool) toolText) {
	t.Repeatable, t.err = true, checkRunner(r, limits)
	found := text(nil, limits, *t)
	if i, ok := RunnerAs[Inspector](r); ok {
		found = text(nil, Limits{}, *t)
		blank := *t
		t.inspection = &inspection{inspector: i, asking: make(chan struct{}, 1), text: func(env Environment) *toolText {
			s := text(&env, limits, blank)
			s.blank = &found
			return &s
		}}
	} else if d, ok := RunnerAs[Describer](r); ok {
		env := d.Environment()
		found = text(&env, limits, *t)
	}
	t.Description = found.description
	if found.parameters != nil {
		t.Parameters = found.parameters
	}
}

// DescribeSandbox adds to t's description what text says of the [Environment] of r,
// as [PythonTool] does for its own: an [Inspector] is asked when t is first used in
// a Loop, or by [Loop.Check], and a runner that does not work is an error there. It
// is for tools that run something on r in a way of their own.
func (t *Tool) DescribeSandbox(r Runner, text func(Environment) string) {
	own := toolText{description: t.Description}
	if i, ok := RunnerAs[Inspector](r); ok {
		t.inspection = &inspection{inspector: i, asking: make(chan struct{}, 1), text: func(env Environment) *toolText {
			return &toolText{description: own.description + text(env), blank: &own}
		}}
	} else if d, ok := RunnerAs[Describer](r); ok {
		t.Description += text(d.Environment())
	}
}

func checkRunner(r Runner, limits Limits) error {
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

const (
	programIntro = " program in a fresh sandbox and returns its exit_code, timed_out, stdout and stderr." +
		" Use it to compute instead of guessing. Nothing is kept from one call to the next."
	programRest = " If the program was killed, exit_code is null and the last line of stderr says why. Long output is cut in the middle."
)

func describeNetwork(env Environment) string {
	if env.Network {
		return ""
	}
	return " There is no network, so nothing can be installed or downloaded."
}

func describeRoom(env Environment) string {
	if env.Writable == "" {
		return ""
	}
	return " Files can be written to " + env.Writable + "."
}

// describeLimits says which limits hold, where those of the runner are known too.
func describeLimits(env *Environment, limits Limits) string {
	if env != nil && limits.Time == 0 {
		limits.Time = env.Limits.Time
	}
	if env != nil && limits.Memory == 0 {
		limits.Memory = env.Limits.Memory
	}
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
	text      func(Environment) *toolText
	asking    chan struct{} // holds one while the runner is asked
	found     atomic.Pointer[toolText]
}

// A toolText is what a tool says of its sandbox.
type toolText struct {
	description string
	parameters  json.RawMessage // nil where they say nothing of it
	blank       *toolText       // what the tool said before its runner was asked
}

// ask returns what the runner says.
func (i *inspection) ask(ctx context.Context) (*toolText, error) {
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
	s := i.text(env)
	i.found.Store(s)
	return s, nil
}

func (i *inspection) known() (*toolText, bool) {
	s := i.found.Load()
	return s, s != nil
}

// complete fills in what t said before the runner was asked. What its user has
// rewritten stays as it is.
func (s *toolText) complete(t *Tool) (description string, parameters json.RawMessage) {
	description, parameters = t.Description, t.Parameters
	if rest, ok := strings.CutPrefix(description, s.blank.description); ok {
		description = s.description + rest
	}
	if s.parameters != nil && string(parameters) == string(s.blank.parameters) {
		parameters = s.parameters
	}
	return description, parameters
}
