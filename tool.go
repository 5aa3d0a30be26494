package fnloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/fnloop/fnloop/internal/strict"
)

// A Handler runs a call.
//
// An error is for the model: it reads the error's text, and the run goes on.
// When Output has a text of its own the model reads that instead, and the error
// reaches the caller alone, in [CallResult.Err]. An error made by [Abort] stops
// the run. Once ctx is done a handler should return soon: after [Loop.Grace]
// the run no longer waits for it and drops what it returns.
type Handler func(ctx context.Context, call Call) (Output, error)

// A Tool is a function that the model can call.
//
// [NewTool] makes one from a Go function. Write a literal to use a schema of your
// own; its Handle then decodes the arguments.
type Tool struct {
	// Name has 1 to 64 letters, digits, '_' and '-', and is unique in a Loop.
	Name string
	// Description tells the model what the tool does and when to use it.
	Description string
	// Parameters is the JSON schema of the arguments, a strict one unless
	// NonStrict is set; see [CheckStrict]. Nil means that there are none.
	Parameters json.RawMessage
	// NonStrict sends strict: false with Parameters that are not strict, such as
	// those of somebody else's tool. They are not checked, and each member of
	// the schema is sent to the byte. The service then does not enforce
	// them, so Handle has to check the arguments: the Loop refuses only what is no
	// JSON object. A call without any text has the arguments {}.
	NonStrict bool
	// Handle runs the calls. It must be safe for concurrent use unless Serial
	// is set and the Loop serves one run at a time.
	Handle Handler
	// Timeout bounds one call, counted from when its handler starts. The model
	// learns that the tool timed out, and the run goes on. Zero or less means no
	// limit but the run's own.
	Timeout time.Duration
	// Serial keeps a call from running beside any other of its turn.
	Serial bool
	// Ordered makes the calls of this tool in one turn run one at a time, in
	// the order in which the model made them. Calls of other tools run beside
	// them. It is for a tool whose calls build on each other.
	Ordered bool
	// Repeatable says that a call which was interrupted may be run again, since
	// it has no effect beyond its output. [Loop.Continue] then does that before
	// the next request, and the call's Repeated is set, in [CallStarted] too. It
	// does not where a user stopped the run and Continue has another prompt. Of
	// other tools the model learns that what an interrupted call did is not
	// known.
	Repeatable bool
	// NeedsApproval, if not nil, reports whether a call may run only once it was
	// approved. The run then stops with [ErrApproval] when the other calls of
	// the turn are done. [Always] is such a function.
	NeedsApproval func(context.Context, Call) bool
	// Custom makes the tool a custom one: the model writes free text instead of
	// JSON, and a call's Arguments are that text. Parameters must be nil then.
	Custom bool
	// Grammar, if not nil, is what the text of a custom tool must follow.
	Grammar *Grammar
	// Async tells the model that it need not wait for the tool's output before
	// it says more. The Loop treats the calls as any other. Not all models can.
	Async bool

	args       *goType     // of NewTool's arguments; nil for any other tool
	inspection *inspection // of its runner; nil if that needs not be asked
	err        error       // why the tool cannot be used, for makers that return none
}

// A Grammar is the language of a custom tool's input.
type Grammar struct {
	Syntax     string // "lark" or "regex"
	Definition string
}

// NewTool makes a tool of fn. The schema of the parameters is that of In, a
// struct or a pointer to one ([SchemaFor] says which types it may hold), and
// arguments that do not fit it are answered with what is wrong, without a call
// of fn.
//
// An Out that is a string or an [Output] is sent as it is, any other as JSON.
func NewTool[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) (Tool, error) {
	tool := Tool{Name: name, Description: description}
	if err := checkToolName(name); err != nil {
		return Tool{}, &ConfigError{Field: "Tool.Name", Reason: err.Error()}
	}
	if fn == nil {
		return Tool{}, &ConfigError{Field: fmt.Sprintf("tool %q", name), Reason: "the function is nil"}
	}
	typed, err := goTypeOf(reflect.TypeFor[In]())
	if err == nil {
		if err = checkEncodable(reflect.TypeFor[Out]()); err != nil {
			err = fmt.Errorf("result: %w", err)
		}
	}
	if err != nil {
		return Tool{}, &ConfigError{Field: fmt.Sprintf("tool %q", name), Reason: bare(err), Err: err}
	}
	tool.Parameters, tool.args = json.RawMessage(typed.schema), typed
	tool.Handle = func(ctx context.Context, call Call) (Output, error) {
		var in In
		if err := typed.decoder.Decode(call.Arguments, &in); err != nil {
			return Output{}, &ArgumentsError{Tool: name, Reason: err.Error()}
		}
		out, err := fn(withCall(ctx, call), in)
		return encodeOutput(ctx, out, err)
	}
	return tool, nil
}

// MustTool is [NewTool] for tools that are known when the program is written.
// It panics where NewTool returns an error.
func MustTool[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) Tool {
	tool, err := NewTool(name, description, fn)
	if err != nil {
		panic(err)
	}
	return tool
}

// Abort makes an error that stops the run when a handler returns it. The caller
// gets it as a [*ToolError] around err; the model never reads it. The outputs
// of the turn's other calls are kept in the Answer.
func Abort(err error) error {
	if err == nil {
		err = errors.New("aborted by the tool")
	}
	return &abort{err}
}

type abort struct{ err error }

func (a *abort) Error() string { return a.err.Error() }
func (a *abort) Unwrap() error { return a.err }

// handle runs the handler of a call. Arguments that its schema does not hold to
// a form have to be an object at least.
func (t *Tool) handle(ctx context.Context, call Call) (Output, error) {
	ctx = withCall(ctx, call)
	call.Arguments = bytes.Clone(call.Arguments) // the handler may write to its own
	if t.NonStrict {
		if err := t.checkArguments(call.Arguments); err != nil {
			return Output{}, err
		}
		if len(bytes.TrimSpace(call.Arguments)) == 0 {
			call.Arguments = json.RawMessage("{}")
		}
	}
	return t.Handle(ctx, call)
}

// checkArguments reports what is wrong with a call's arguments as an
// [*ArgumentsError], where that can be told without its handler.
func (t *Tool) checkArguments(args json.RawMessage) error {
	var err error
	switch {
	case t.args != nil:
		err = t.args.decoder.Decode(args, nil)
	case t.NonStrict:
		err = strict.CheckObject(args)
	}
	if err != nil {
		return &ArgumentsError{Tool: t.Name, Reason: err.Error()}
	}
	return nil
}

func checkToolName(name string) error {
	const maxName = 64 // what Chat Completions, Azure and relays take; Responses itself takes 128
	if name == "" {
		return errors.New("is empty")
	}
	if len(name) > maxName {
		return fmt.Errorf("%.80q is longer than %d characters", name, maxName)
	}
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return fmt.Errorf("%q has a %q; letters, digits, '_' and '-' are allowed", name, c)
		}
	}
	return nil
}

func (t *Tool) check(field string) error {
	if err := checkToolName(t.Name); err != nil {
		return &ConfigError{Field: field + ".Name", Reason: err.Error()}
	}
	field += " (" + t.Name + ")"
	switch {
	case t.err != nil:
		return &ConfigError{Field: field, Reason: t.err.Error()}
	case t.Handle == nil:
		return &ConfigError{Field: field + ".Handle", Reason: "is nil"}
	case t.Custom && t.Parameters != nil:
		return &ConfigError{Field: field + ".Parameters", Reason: "is set, but a custom tool takes free text"}
	case t.Custom && t.NonStrict:
		return &ConfigError{Field: field + ".NonStrict", Reason: "is set, but a custom tool takes free text"}
	case t.Grammar != nil && !t.Custom:
		return &ConfigError{Field: field + ".Grammar", Reason: "is set, but only a custom tool has one"}
	case t.Grammar != nil && (t.Grammar.Syntax != "lark" && t.Grammar.Syntax != "regex" || t.Grammar.Definition == ""):
		return &ConfigError{Field: field + ".Grammar", Reason: `needs the syntax "lark" or "regex" and a definition`}
	case t.Parameters == nil || t.args != nil && t.args.schema == string(t.Parameters):
		return nil
	case t.NonStrict:
		if err := strict.CheckObject(t.Parameters); err != nil || len(t.Parameters) == 0 {
			return &ConfigError{Field: field + ".Parameters", Reason: "is not a JSON object", Err: err}
		}
		return nil
	}
	if err := CheckStrict(t.Parameters); err != nil {
		return &ConfigError{Field: field + ".Parameters", Reason: bare(err), Err: err}
	}
	return nil
}

// A ToolError is what a tool stopped the run with; see [Abort] and [RunnerError].
type ToolError struct {
	Call Call
	Err  error
}

func (e *ToolError) Error() string {
	return fmt.Sprintf("fnloop: tool %s (call %s): %v", e.Call.Name, e.Call.ID, e.Err)
}

// Unwrap returns e.Err.
func (e *ToolError) Unwrap() error { return e.Err }

// An ArgumentsError says why arguments were refused. Its text is for the model.
type ArgumentsError struct {
	Tool   string // its name
	Reason string
}

func (e *ArgumentsError) Error() string { return e.Reason }
