package fnloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// A State says where a conversation is kept.
type State int

const (
	// Chained: the API keeps the responses, and each request names the one
	// before by previous_response_id.
	Chained State = iota
	// InConversation: the API keeps a conversation object, which every run of
	// it adds to. Make one with openai-go's ConversationService and start with
	// Continue from an Answer that holds its ID in Conversation.
	InConversation
	// Stateless: the API keeps nothing (store is false), as accounts with zero
	// data retention and servers without storage have it. The Answer holds all
	// items, reasoning in encrypted form, and each request sends them again.
	Stateless
)

func (s State) check(a *Answer) error {
	switch s {
	case Chained:
		if a.Conversation != "" {
			return &ConfigError{Field: "from.Conversation", Reason: "is set, but Loop.State is not InConversation"}
		}
		if a.ID == "" && len(a.Items) > 0 {
			return &ConfigError{Field: "from.ID", Reason: "is empty although there are Items; set Loop.State to Stateless to continue from them"}
		}
	case InConversation:
		if a.Conversation == "" {
			return &ConfigError{Field: "from.Conversation", Reason: "is empty; make a conversation and start with Continue from an Answer that names it"}
		}
	case Stateless:
		if a.Conversation != "" {
			return &ConfigError{Field: "from.Conversation", Reason: "is set, but Loop.State is Stateless"}
		}
		if a.ID != "" && len(a.Items) == 0 {
			return &ConfigError{Field: "from.Items", Reason: "is empty, but a stateless Loop can continue only from an Answer that holds the conversation"}
		}
	default:
		return &ConfigError{Field: "Loop.State", Reason: fmt.Sprintf("%d is not a State", s)}
	}
	return nil
}

// attach puts the conversation so far into a request, before the new input.
func (r *run) attach(p *responses.ResponseNewParams, input []responses.ResponseInputItemUnionParam) {
	a := r.answer
	switch r.loop.State {
	case Chained:
		if r.replay {
			input = append(overrides(withoutIDs(a.Items)), input...)
		} else if a.ID != "" {
			p.PreviousResponseID = param.NewOpt(a.ID)
		}
	case InConversation:
		p.Conversation.OfString = param.NewOpt(a.Conversation)
	case Stateless:
		p.Store = param.NewOpt(false)
		p.Include = append(p.Include, responses.ResponseIncludableReasoningEncryptedContent)
		input = append(overrides(a.Items), input...)
	}
	p.Input.OfInputItemList = input
}

func overrides(items []json.RawMessage) []responses.ResponseInputItemUnionParam {
	out := make([]responses.ResponseInputItemUnionParam, len(items), len(items)+2)
	for i, item := range items {
		out[i] = param.Override[responses.ResponseInputItemUnionParam](item)
	}
	return out
}

// note keeps the items that a request adds to the conversation.
func (r *run) note(p *responses.ResponseNewParams) error {
	if !r.keep {
		return nil
	}
	r.sent = make([]json.RawMessage, len(p.Input.OfInputItemList))
	for i := range p.Input.OfInputItemList {
		b, err := json.Marshal(&p.Input.OfInputItemList[i])
		if err != nil {
			return &ConfigError{Field: fmt.Sprintf("input[%d]", i), Reason: err.Error()}
		}
		r.sent[i] = b
		if r.loop.State == Stateless && i < len(r.answer.Items) && bytes.Equal(respell(b), respell(r.answer.Items[i])) {
			r.sent[i] = r.answer.Items[i] // to the byte
		}
	}
	return nil
}

// remember adds a completed response, and what asked for it, to the items.
func (r *run) remember(reply *reply) {
	if !r.keep {
		return
	}
	a := r.answer
	if r.loop.State == Stateless || r.replay {
		a.Items = nil // what was sent begins with all of them
	}
	a.Items = slices.Concat(a.Items, r.sent, replayable(reply.items()))
	r.sent, r.replay = nil, false
}

// replayable are the items of a response in the form in which they can be sent
// back: as they are, without what the API adds for readers alone.
func replayable(items []json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range items {
		var head struct{ Type, Role string }
		json.Unmarshal(raw, &head)
		if head.Type == "additional_tools" && head.Role != "developer" {
			continue
		}
		if bytes.Contains(raw, []byte(`"created_by"`)) {
			raw = without(raw, "created_by")
			if head.Type == "shell_call_output" {
				raw = withoutEach(raw, "output", "created_by")
			}
		}
		out = append(out, raw)
	}
	return out
}

// withoutIDs are the items of a conversation that the API has forgotten. Their
// IDs would make it look for them, and reasoning does without neither ID nor
// what follows it, so that the model has to reason anew.
func withoutIDs(items []json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range items {
		var head struct{ Type, ID string }
		json.Unmarshal(raw, &head)
		if head.Type == "reasoning" || head.Type == "item_reference" {
			continue
		}
		if head.ID != "" {
			raw = without(raw, "id")
		}
		out = append(out, raw)
	}
	return out
}

// forgot reports whether the API has lost the response to continue from, and
// makes the next request send the conversation itself, once.
func (r *run) forgot(f *fault) bool {
	if f == nil || r.loop.State != Chained || r.replay || r.answer.ID == "" || len(r.answer.Items) == 0 {
		return false
	}
	r.replay = f.forgotten(r.answer.ID)
	return r.replay
}

// busy are the conversations that a run of this process is at. One run at a
// time can add to a conversation: what another adds while the calls of a
// response are open is refused.
var busy sync.Map

func (r *run) enter() (leave func(), err error) {
	id := r.answer.Conversation
	if id == "" {
		return func() {}, nil
	}
	if _, taken := busy.LoadOrStore(id, true); taken {
		return nil, fmt.Errorf("%w: %s", ErrBusy, id)
	}
	return func() { busy.Delete(id) }, nil
}

// carry takes over what the next request must answer.
func (r *run) carry(from *Answer, prompt string, parts []Content) {
	a := r.answer
	from = from.clone()
	r.stopped = from.Stop
	a.ID = from.ID
	a.Conversation = from.Conversation
	a.ContextTokens = from.ContextTokens
	a.Items = from.Items
	a.Paused = from.Paused
	a.ToolState, r.states.tools = from.ToolState, cloneToolState(from.ToolState)
	a.Earlier, a.Prompt, a.Parts = from.Earlier, from.Prompt, from.Parts
	if from.Interrupted {
		a.Partial, a.Interrupted = from.Partial, true
	}
	a.AddPrompt(prompt, parts...)
	for _, id := range from.Open {
		if !slices.Contains(a.Open, id) {
			a.Open = append(a.Open, id)
		}
	}
	if len(a.Open) == 0 { // an Answer made by hand
		for _, c := range from.Pending {
			a.Open = append(a.Open, c.ID)
		}
	}
	for _, id := range a.Open {
		if c := from.pending(id); c != nil {
			a.Pending = append(a.Pending, *c)
		} else if c := from.result(id); c != nil {
			a.Calls = append(a.Calls, *c)
			r.carried = append(r.carried, id)
		} else {
			a.Pending = append(a.Pending, Call{ID: id})
		}
	}
}

// accept moves the conversation on to a response that was completed. Of any
// other it keeps the usage and moves nothing.
func (r *run) accept(reply *reply, calls []item) error {
	a := r.answer
	if err := reply.check(); err != nil {
		if a.Partial == "" {
			a.Partial = reply.text()
		}
		a.Interrupted = a.Partial != "" && !errors.Is(err, ErrFiltered) // which would have the next request refused
		if r.loop.State == InConversation {
			r.owe(reply, calls)
		}
		return err
	}
	a.ID = reply.ID
	u, _ := reply.usage()
	a.ContextTokens = u.InputTokens
	r.tookPrompts()
	a.Partial = ""
	a.Paused = len(calls) == 0 && reply.runsProgram()
	r.remember(reply)
	r.loadTools(reply.Output)
	a.Pending = a.Pending[:0]
	r.delivered()
	a.Open = nil
	for _, it := range calls {
		a.Open = append(a.Open, it.CallID)
	}
	return nil
}

// tookPrompts drops the prompts, which the conversation holds now.
func (r *run) tookPrompts() {
	a := r.answer
	a.Earlier, a.Prompt, a.Parts = nil, "", nil
	a.Interrupted, r.shown = false, ""
}

// delivered drops what an earlier run has left to send.
func (r *run) delivered() {
	a := r.answer
	a.Calls = slices.DeleteFunc(a.Calls, func(c CallResult) bool { return slices.Contains(r.carried, c.ID) })
	r.carried = nil
}

// owe takes over the calls of a response that cannot be used, but is part of
// its conversation all the same: the API wants outputs for them.
func (r *run) owe(reply *reply, calls []item) {
	if reply.Status != "completed" && reply.Status != "incomplete" {
		return
	}
	a := r.answer
	a.ID, a.Open = reply.ID, nil
	r.tookPrompts()
	r.delivered()
	a.Pending = []Call{}
	for _, c := range r.number(calls, a.Turns+1) {
		if c.ID != "" && !slices.Contains(a.Open, c.ID) {
			a.Open = append(a.Open, c.ID)
			a.Pending = append(a.Pending, c)
		}
	}
}
