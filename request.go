package fnloop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// settings are a Loop's fields, checked and with their defaults filled in.
type settings struct {
	loop         *Loop
	logger       *slog.Logger
	params       []responses.ToolUnionParam
	maxTurns     int
	maxRepeats   int
	parallel     int
	maxOutput    int
	grace        time.Duration
	attempts     int
	maxRetryWait time.Duration
}

func (l *Loop) settings() (*settings, error) {
	s := &settings{loop: l, logger: l.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if l.Client == nil {
		return nil, &ConfigError{"Loop.Client", "is nil; give it the Responses field of openai-go's client"}
	}
	if l.Model == "" && l.BeforeRequest == nil {
		return nil, &ConfigError{"Loop.Model", "is empty"}
	}
	for _, n := range []struct {
		field     string
		value     int
		otherwise int
		into      *int
	}{
		{"MaxTurns", l.MaxTurns, DefaultMaxTurns, &s.maxTurns},
		{"MaxRepeats", l.MaxRepeats, 0, &s.maxRepeats},
		{"Parallel", l.Parallel, DefaultParallel, &s.parallel},
		{"MaxOutput", l.MaxOutput, MaxOutput, &s.maxOutput},
		{"Attempts", l.Attempts, DefaultAttempts, &s.attempts},
	} {
		if n.value < 0 {
			return nil, &ConfigError{"Loop." + n.field, fmt.Sprintf("%d is negative", n.value)}
		}
		if *n.into = n.value; n.value == 0 {
			*n.into = n.otherwise
		}
	}
	for _, d := range []struct {
		field     string
		value     time.Duration
		otherwise time.Duration
		into      *time.Duration
	}{
		{"Grace", l.Grace, DefaultGrace, &s.grace},
		{"MaxRetryWait", l.MaxRetryWait, DefaultMaxRetryWait, &s.maxRetryWait},
	} {
		if d.value < 0 {
			return nil, &ConfigError{"Loop." + d.field, fmt.Sprintf("%v is negative", d.value)}
		}
		if *d.into = d.value; d.value == 0 {
			*d.into = d.otherwise
		}
	}
	for i := range l.Tools {
		field := fmt.Sprintf("Loop.Tools[%d]", i)
		if err := l.Tools[i].check(field); err != nil {
			return nil, err
		}
		if j := slices.IndexFunc(l.Tools[:i], func(t Tool) bool { return t.Name == l.Tools[i].Name }); j >= 0 {
			return nil, &ConfigError{field + ".Name", fmt.Sprintf("%q is the name of Tools[%d] too", l.Tools[i].Name, j)}
		}
	}
	const maxTools = 128 // what the API takes in one request
	if len(l.Tools) > maxTools {
		return nil, &ConfigError{"Loop.Tools", fmt.Sprintf("%d are more than the %d that a request may list", len(l.Tools), maxTools)}
	}
	var err error
	s.params, err = l.toolParams()
	return s, err
}

func (t *Tool) check(field string) error {
	if err := checkToolName(t.Name); err != nil {
		return &ConfigError{field + ".Name", err.Error()}
	}
	field += " (" + t.Name + ")"
	switch {
	case t.err != nil:
		return &ConfigError{field, t.err.Error()}
	case t.Handle == nil:
		return &ConfigError{field + ".Handle", "is nil"}
	case t.Timeout < 0:
		return &ConfigError{field + ".Timeout", fmt.Sprintf("%v is negative", t.Timeout)}
	case t.checked || t.Parameters == nil:
		return nil
	}
	if err := CheckStrict(t.Parameters); err != nil {
		return &ConfigError{field + ".Parameters", err.Error()}
	}
	return nil
}

// toolParams are the tools as requests list them.
func (l *Loop) toolParams() ([]responses.ToolUnionParam, error) {
	if len(l.Tools) == 0 {
		return nil, nil
	}
	params := make([]responses.ToolUnionParam, len(l.Tools))
	for i, t := range l.Tools {
		schema := t.Parameters
		if schema == nil {
			schema = json.RawMessage(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`)
		}
		// One level is decoded because openai-go wants a map; what is below
		// stays as it is, so that the properties keep their order.
		var top map[string]json.RawMessage
		if err := json.Unmarshal(schema, &top); err != nil {
			return nil, &ConfigError{fmt.Sprintf("Loop.Tools[%d].Parameters", i), err.Error()}
		}
		parameters := make(map[string]any, len(top))
		for key, value := range top {
			parameters[key] = value
		}
		f := &responses.FunctionToolParam{Name: t.Name, Parameters: parameters, Strict: param.NewOpt(true)}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		params[i].OfFunction = f
	}
	return params, nil
}

// A hookError is an error of Loop.BeforeRequest.
type hookError struct{ err error }

func (e *hookError) Error() string { return "fnloop: BeforeRequest: " + e.err.Error() }
func (e *hookError) Unwrap() error { return e.err }

// request makes the next request of the conversation. Nothing but the items is
// inherited from the response before, so everything else is in each.
func (r *run) request(ctx context.Context) (responses.ResponseNewParams, error) {
	l, a := r.loop, r.answer
	params := responses.ResponseNewParams{Model: l.Model, Tools: r.params}
	if l.Instructions != "" {
		params.Instructions = param.NewOpt(l.Instructions)
	}
	if a.ID != "" {
		params.PreviousResponseID = param.NewOpt(a.ID)
	}
	input := make([]responses.ResponseInputItemUnionParam, 0, len(a.Open)+1)
	for _, id := range a.Open {
		input = append(input, r.output(id))
	}
	if a.Prompt != "" {
		input = append(input, responses.ResponseInputItemParamOfMessage(a.Prompt, responses.EasyInputMessageRoleUser))
	}
	params.Input.OfInputItemList = input
	last := l.FinalAnswer && a.Turns == r.maxTurns && len(l.Tools) > 0
	if l.BeforeRequest != nil {
		var err error
		if params.Tools, err = l.toolParams(); err != nil { // its own to edit
			return params, err
		}
		if err := l.BeforeRequest(ctx, &params); err != nil {
			return params, &hookError{err}
		}
		if err := checkEdited(&params); err != nil {
			return params, err
		}
		if a.Turns > 0 {
			unforce(&params.ToolChoice)
		}
		if len(params.Tools) == 0 { // the API refuses it without tools
			params.ParallelToolCalls = param.Opt[bool]{}
		}
	}
	if last {
		params.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsNone)}
	}
	return params, nil
}

// checkEdited refuses settings that break the chain from response to response.
func checkEdited(p *responses.ResponseNewParams) error {
	const hook = "BeforeRequest: "
	switch {
	case p.Model == "":
		return &ConfigError{hook + "model", "is empty"}
	case p.Store.Valid() && !p.Store.Value:
		return &ConfigError{hook + "store", "is false, but a response that is not stored cannot be continued by previous_response_id"}
	case p.Background.Valid() && p.Background.Value:
		return &ConfigError{hook + "background", "is true, but a Loop waits for its responses"}
	case !param.IsOmitted(p.Conversation):
		return &ConfigError{hook + "conversation", "is set, but a Loop chains its requests by previous_response_id"}
	}
	return nil
}

// unforce turns a choice that forces a call into auto: kept from request to
// request it would never let the model answer.
func unforce(c *responses.ResponseNewParamsToolChoiceUnion) {
	if c.OfAllowedTools != nil {
		if c.OfAllowedTools.Mode == responses.ToolChoiceAllowedModeRequired {
			allowed := *c.OfAllowedTools
			allowed.Mode = responses.ToolChoiceAllowedModeAuto
			c.OfAllowedTools = &allowed
		}
		return
	}
	mode := c.OfToolChoiceMode
	if param.IsOmitted(*c) || mode.Valid() && mode.Value != responses.ToolChoiceOptionsRequired {
		return
	}
	*c = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsAuto)}
}

// output is the item that answers the call id.
func (r *run) output(id string) responses.ResponseInputItemUnionParam {
	text, caller := r.notRun(nil), callerID("")
	if c := r.answer.pending(id); c != nil {
		text, caller = r.notRun(c), c.caller
	} else if c := r.answer.result(id); c != nil {
		text, caller = c.Text, c.caller
	}
	out := &responses.ResponseInputItemFunctionCallOutputParam{
		CallID: param.NewOpt(id),
		Output: responses.ResponseInputItemFunctionCallOutputOutputUnionParam{OfString: param.NewOpt(text)},
	}
	if caller != "" {
		out.Caller.OfProgram = &responses.ResponseInputItemFunctionCallOutputCallerProgramParam{CallerID: string(caller)}
	}
	return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: out}
}

// notRun tells the model the truth about a call without an output.
func (r *run) notRun(c *Call) string {
	if c != nil && c.Started {
		return "interrupted: the run ended while this call was running; it has no output, and what it did is not known"
	}
	if r.stopped == StopMaxTurns {
		return "not run: the limit of rounds of tool calls was reached"
	}
	return "not run: the run ended before this call was started"
}

// result is the newest result of the call id, or nil. Some servers use an ID
// again in a later response, so a call that is pending has none whatever this
// says.
func (a *Answer) result(id string) *CallResult {
	for i := len(a.Calls) - 1; i >= 0; i-- {
		if a.Calls[i].ID == id {
			return &a.Calls[i]
		}
	}
	return nil
}

// pending is the pending call id, or nil.
func (a *Answer) pending(id string) *Call {
	if i := slices.IndexFunc(a.Pending, func(c Call) bool { return c.ID == id }); i >= 0 {
		return &a.Pending[i]
	}
	return nil
}

func (l *Loop) tool(name string) *Tool {
	if i := slices.IndexFunc(l.Tools, func(t Tool) bool { return t.Name == name }); i >= 0 {
		return &l.Tools[i]
	}
	return nil
}

func (l *Loop) toolNames() string {
	names := make([]string, len(l.Tools))
	for i, t := range l.Tools {
		names[i] = t.Name
	}
	return strings.Join(names, ", ")
}
