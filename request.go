package fnloop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
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
	idleTimeout  time.Duration
	attempts     int
	maxRetryWait time.Duration
}

func (l *Loop) settings() (*settings, error) {
	s := &settings{loop: l, logger: l.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if c, ok := l.Client.(*responses.ResponseService); l.Client == nil || ok && c == nil {
		return nil, &ConfigError{Field: "Loop.Client", Reason: "is nil; give it the Responses field of openai-go's client"}
	}
	if _, ok := l.Client.(*responses.ResponseService); l.WebSocket && !ok {
		return nil, &ConfigError{Field: "Loop.WebSocket", Reason: fmt.Sprintf("is set, but a Client of type %T has none; give it a *responses.ResponseService", l.Client)}
	}
	if l.Model == "" && l.BeforeRequest == nil {
		return nil, &ConfigError{Field: "Loop.Model", Reason: "is empty"}
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
			return nil, &ConfigError{Field: "Loop." + n.field, Reason: fmt.Sprintf("%d is negative", n.value)}
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
		{"IdleTimeout", l.IdleTimeout, DefaultIdleTimeout, &s.idleTimeout},
		{"MaxRetryWait", l.MaxRetryWait, DefaultMaxRetryWait, &s.maxRetryWait},
	} {
		if d.value < 0 {
			return nil, &ConfigError{Field: "Loop." + d.field, Reason: fmt.Sprintf("%v is negative", d.value)}
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
			return nil, &ConfigError{Field: field + ".Name", Reason: fmt.Sprintf("%q is the name of Tools[%d] too", l.Tools[i].Name, j)}
		}
	}
	const maxTools = 128 // what the API takes in one request
	if len(l.Tools) > maxTools {
		return nil, &ConfigError{Field: "Loop.Tools", Reason: fmt.Sprintf("%d are more than the %d that a request may list", len(l.Tools), maxTools)}
	}
	var err error
	s.params, err = l.toolParams()
	return s, err
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
	case t.Grammar != nil && !t.Custom:
		return &ConfigError{Field: field + ".Grammar", Reason: "is set, but only a custom tool has one"}
	case t.Grammar != nil && (t.Grammar.Syntax != "lark" && t.Grammar.Syntax != "regex" || t.Grammar.Definition == ""):
		return &ConfigError{Field: field + ".Grammar", Reason: `needs the syntax "lark" or "regex" and a definition`}
	case t.Timeout < 0:
		return &ConfigError{Field: field + ".Timeout", Reason: fmt.Sprintf("%v is negative", t.Timeout)}
	case t.Parameters == nil || t.checked == string(t.Parameters):
		return nil
	}
	if err := CheckStrict(t.Parameters); err != nil {
		return &ConfigError{Field: field + ".Parameters", Reason: err.Error(), Err: err}
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
		if t.Custom {
			params[i].OfCustom = t.customParam()
			continue
		}
		schema := t.Parameters
		if schema == nil {
			schema = json.RawMessage(`{"type":"object","properties":{},"required":[],"additionalProperties":false}`)
		}
		parameters, err := topLevel(schema)
		if err != nil {
			return nil, &ConfigError{Field: fmt.Sprintf("Loop.Tools[%d].Parameters", i), Reason: err.Error()}
		}
		f := &responses.FunctionToolParam{Name: t.Name, Parameters: parameters, Strict: param.NewOpt(true)}
		if t.Description != "" {
			f.Description = param.NewOpt(t.Description)
		}
		if t.Async {
			f.Async = param.NewOpt(true)
		}
		params[i].OfFunction = f
	}
	return params, nil
}

// topLevel decodes one level of a schema, because openai-go wants a map. What is
// below stays as it is, so that the properties keep their order.
func topLevel(schema json.RawMessage) (map[string]any, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil {
		return nil, err
	}
	out := make(map[string]any, len(top))
	for key, value := range top {
		out[key] = value
	}
	return out, nil
}

func (t *Tool) customParam() *responses.CustomToolParam {
	c := &responses.CustomToolParam{Name: t.Name}
	if t.Description != "" {
		c.Description = param.NewOpt(t.Description)
	}
	if t.Async {
		c.Async = param.NewOpt(true)
	}
	if g := t.Grammar; g != nil {
		c.Format.OfGrammar = &shared.CustomToolInputFormatGrammarParam{Syntax: g.Syntax, Definition: g.Definition}
	}
	return c
}

// A hookError is an error of one of the Loop's hooks.
type hookError struct {
	hook string
	err  error
}

func (e *hookError) Error() string { return "fnloop: " + e.hook + ": " + e.err.Error() }
func (e *hookError) Unwrap() error { return e.err }

// request makes the next request of the conversation. Nothing but the items is
// inherited from the response before, so everything else is in each.
func (r *run) request(ctx context.Context) (responses.ResponseNewParams, error) {
	l, a := r.loop, r.answer
	params := responses.ResponseNewParams{Model: l.Model, Tools: r.params}
	if l.Instructions != "" {
		params.Instructions = param.NewOpt(l.Instructions)
	}
	if r.opts.format != nil {
		params.Text.Format = *r.opts.format
	}
	input := make([]responses.ResponseInputItemUnionParam, 0, len(a.Open)+1)
	for _, id := range a.Open {
		input = append(input, r.output(id))
	}
	if a.Prompt != "" {
		input = append(input, responses.ResponseInputItemParamOfMessage(a.Prompt, responses.EasyInputMessageRoleUser))
	}
	r.attach(&params, input)
	r.offered = nil
	last := l.FinalAnswer && a.Turns == r.maxTurns && len(l.Tools) > 0
	if l.BeforeRequest != nil {
		var err error
		if params.Tools, err = l.toolParams(); err != nil { // its own to edit
			return params, err
		}
		if err := l.BeforeRequest(ctx, &params); err != nil {
			return params, &hookError{"BeforeRequest", err}
		}
		if err := r.checkEdited(&params); err != nil {
			return params, err
		}
		if a.Turns > 0 || len(a.Open) > 0 && a.Prompt == "" { // the run, or one before, has had its call
			unforce(&params.ToolChoice)
		}
		if r.opts.format != nil { // it may have set the rest of Text
			params.Text.Format = *r.opts.format
		}
		r.offered = offered(&params)
		if len(params.Tools) == 0 { // the API refuses it without tools
			params.ParallelToolCalls = param.Opt[bool]{}
		}
	}
	if last {
		params.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsNone)}
	}
	return params, r.note(&params)
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
	if param.IsOmitted(*c) {
		return
	}
	switch spelled, _ := json.Marshal(c); string(spelled) {
	case `"none"`, `"auto"`:
		return
	}
	*c = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsAuto)}
}

// offered are the names of the tools that an edited request lets the model call,
// or nil where it holds what cannot be told from here.
func offered(p *responses.ResponseNewParams) map[string]bool {
	names := make(map[string]bool)
	if choice, _ := json.Marshal(p.ToolChoice); string(choice) == `"none"` {
		return names
	}
	for _, t := range p.Tools {
		name := t.GetName()
		switch {
		case name != nil:
			names[*name] = true
		case t.GetType() == nil: // it was overridden with JSON
			return nil
		}
	}
	if allowed := p.ToolChoice.OfAllowedTools; allowed != nil {
		listed := make(map[string]bool)
		for _, t := range allowed.Tools {
			if name, ok := t["name"].(string); ok && names[name] {
				listed[name] = true
			}
		}
		return listed
	}
	return names
}

// output is the item that answers the call id.
func (r *run) output(id string) responses.ResponseInputItemUnionParam {
	var out Output
	call := Call{ID: id}
	if c := r.answer.pending(id); c != nil {
		call, out.Text = *c, r.notRun(c)
	} else if c := r.answer.result(id); c != nil {
		call, out = c.Call, c.Output
	} else {
		out.Text = r.notRun(&call)
	}
	if call.Custom || len(out.Content) > 0 {
		return rawOutput(call, out)
	}
	item := &responses.ResponseInputItemFunctionCallOutputParam{CallID: param.NewOpt(id)}
	item.Output.OfString = param.NewOpt(out.Text)
	if call.caller != "" {
		item.Caller.OfProgram = &responses.ResponseInputItemFunctionCallOutputCallerProgramParam{CallerID: string(call.caller)}
	}
	return responses.ResponseInputItemUnionParam{OfFunctionCallOutput: item}
}

// rawOutput writes an output as JSON, for which openai-go has types that differ
// from one kind of tool to the other although the form on the wire does not.
func rawOutput(call Call, out Output) responses.ResponseInputItemUnionParam {
	type program struct {
		Type     string   `json:"type"`
		CallerID callerID `json:"caller_id"`
	}
	item := struct {
		Type   string   `json:"type"`
		CallID string   `json:"call_id"`
		Output any      `json:"output"`
		Caller *program `json:"caller,omitempty"`
	}{Type: "function_call_output", CallID: call.ID, Output: out.Text}
	if call.Custom {
		item.Type = "custom_tool_call_output"
	}
	if call.caller != "" {
		item.Caller = &program{"program", call.caller}
	}
	if len(out.Content) > 0 {
		parts := make([]contentPart, len(out.Content))
		for i, c := range out.Content {
			parts[i] = c.part()
		}
		item.Output = parts
	}
	raw, err := json.Marshal(item)
	if err != nil {
		panic(err) // strings alone cannot fail
	}
	return param.Override[responses.ResponseInputItemUnionParam](json.RawMessage(raw))
}

// notRun tells the model the truth about a call without an output.
func (r *run) notRun(c *Call) string {
	if c.Started {
		return "interrupted: the run ended while this call was running; it has no output, and what it did is not known"
	}
	if c.digest != "" {
		return "not run: this call needs approval, and none was given"
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

// tool is the tool of that name, or nil if there is none or the request that the
// model answered did not offer it.
func (r *run) tool(name string) *Tool {
	tools := r.loop.Tools
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.Name == name })
	if i < 0 || r.offered != nil && !r.offered[name] {
		return nil
	}
	return &tools[i]
}

func (r *run) toolNames() []string {
	var names []string
	for _, t := range r.loop.Tools {
		if r.tool(t.Name) != nil {
			names = append(names, t.Name)
		}
	}
	return names
}
