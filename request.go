package fnloop

import (
	"context"
	"encoding/json"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// newRequest makes the next request of the conversation. Nothing but the items is
// inherited from the response before, so everything else is in each.
func (r *run) newRequest(ctx context.Context) (*responses.ResponseNewParams, error) {
	l, a := r.loop, r.answer
	params := &responses.ResponseNewParams{Model: l.Model, Tools: r.tools.params}
	if !r.writesBodies() {
		params.Tools = r.tools.list(l.BeforeRequest != nil)
	}
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
	for _, m := range a.unsent() {
		input = append(input, m.item())
	}
	r.addConversation(params, input)
	r.offered = nil
	last := l.FinalAnswer && a.Turns >= r.maxTurns && len(l.Tools) > 0
	if l.BeforeRequest != nil {
		edited := *params // what a hook that was left behind goes on with
		if err := r.callHook(ctx, "BeforeRequest", func() error { return l.BeforeRequest(ctx, &edited) }); err != nil {
			return nil, err
		}
		*params = edited
		if err := r.checkEdited(params); err != nil {
			return nil, err
		}
		if a.Turns > 0 || len(a.Open) > 0 && !a.hasPrompt() { // the run, or one before, has had its call
			relaxToolChoice(&params.ToolChoice)
		}
		if r.opts.format != nil { // it may have set the rest of Text
			params.Text.Format = *r.opts.format
		}
		r.offered = r.offers(params)
		if len(params.Tools) == 0 { // the API refuses it without tools
			params.ParallelToolCalls = param.Opt[bool]{}
		}
	}
	if last {
		params.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsNone)}
	}
	return params, r.recordRequest(params)
}

// relaxToolChoice turns a choice that forces a call into auto: kept from request to
// request it would never let the model answer.
func relaxToolChoice(c *responses.ResponseNewParamsToolChoiceUnion) {
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

// output is the item that answers the call id.
func (r *run) output(id string) responses.ResponseInputItemUnionParam {
	var out Output
	call := Call{ID: id}
	if c := r.answer.pending(id); c != nil && c.Hosted {
		return c.approval()
	} else if c != nil {
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

// approval is the item that answers a call which the API makes itself.
func (c *Call) approval() responses.ResponseInputItemUnionParam {
	d := c.Decision
	if d == nil {
		d = &Decision{Reason: "nobody has decided"}
	}
	item := &responses.ResponseInputItemMcpApprovalResponseParam{ApprovalRequestID: c.ID, Approve: d.Approve}
	if d.Reason != "" {
		item.Reason = param.NewOpt(d.Reason)
	}
	return responses.ResponseInputItemUnionParam{OfMcpApprovalResponse: item}
}

// rawOutput writes an output as JSON, for which openai-go has types that differ
// from one kind of tool to the other although the form on the wire does not.
func rawOutput(call Call, out Output) responses.ResponseInputItemUnionParam {
	item := outputItem{Type: "function_call_output", CallID: call.ID, Output: out.Text}
	if call.Custom {
		item.Type = "custom_tool_call_output"
	}
	if call.caller != "" {
		item.Caller = &outputCaller{"program", call.caller}
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

// An outputItem is the output of a call, as an item of a request.
type outputItem struct {
	Type   string        `json:"type"`
	CallID string        `json:"call_id"`
	Output any           `json:"output"` // a text or parts
	Caller *outputCaller `json:"caller,omitempty"`
}

type outputCaller struct {
	Type     string   `json:"type"`
	CallerID callerID `json:"caller_id"`
}

// notRun tells the model the truth about a call without an output.
func (r *run) notRun(c *Call) string {
	if c.Started {
		return "interrupted: the run ended while this call was running; it has no output, and what it did is not known"
	}
	if c.innerWaits() {
		return "interrupted: something that this call does needs approval, and none was given; it has no output"
	}
	if c.digest != "" {
		return "not run: this call needs approval, and none was given"
	}
	if r.earlierStop == StopMaxTurns {
		return "not run: the limit of rounds of tool calls was reached"
	}
	return "not run: the run ended before this call was started"
}

// checkEdited refuses what BeforeRequest may have set against the Loop's State.
func (r *run) checkEdited(p *responses.ResponseNewParams) error {
	const hook = "BeforeRequest: "
	stored := !p.Store.Valid() || p.Store.Value
	switch {
	case p.Model == "":
		return &ConfigError{Field: hook + "model", Reason: "is empty"}
	case p.Background.Valid() && p.Background.Value:
		return &ConfigError{Field: hook + "background", Reason: "is true, but a Loop waits for its responses"}
	case p.Input.OfInputItemList == nil && (r.keepItems || len(r.answer.Open) > 0):
		return &ConfigError{Field: hook + "input", Reason: "is no longer a list of items, which has the conversation or the outputs of calls in it; append to OfInputItemList instead"}
	case r.loop.State == Stateless && stored:
		return &ConfigError{Field: hook + "store", Reason: "is not false, but Loop.State is Stateless"}
	case r.loop.State == Stateless && p.PreviousResponseID.Valid():
		return &ConfigError{Field: hook + "previous_response_id", Reason: "is set, but Loop.State is Stateless"}
	case r.loop.State != Stateless && !stored:
		return &ConfigError{Field: hook + "store", Reason: "is false, but what is not stored cannot be continued; set Loop.State to Stateless"}
	case r.loop.State != InConversation && !param.IsOmitted(p.Conversation):
		return &ConfigError{Field: hook + "conversation", Reason: "is set, but Loop.State is not InConversation"}
	case r.loop.State == InConversation && p.PreviousResponseID.Valid():
		return &ConfigError{Field: hook + "previous_response_id", Reason: "is set, but Loop.State is InConversation"}
	}
	return nil
}
