package fnloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// addConversation puts the conversation so far into a request, before the new input.
func (r *run) addConversation(p *responses.ResponseNewParams, input []responses.ResponseInputItemUnionParam) {
	a := r.answer
	switch r.loop.State {
	case Chained:
		if r.resend {
			input = append(overrides(withoutIDs(a.Items)), input...)
		} else if a.ID != "" {
			p.PreviousResponseID = param.NewOpt(a.ID)
		}
	case InConversation:
		p.Conversation.OfString = param.NewOpt(a.Conversation)
	case Stateless:
		p.Store = param.NewOpt(false)
		p.Include = append(p.Include, responses.ResponseIncludableReasoningEncryptedContent)
		items := a.Items
		if r.noReasoning {
			items = withoutIDs(items)
		}
		input = append(overrides(items), input...)
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

// recordRequest keeps the items that a request adds to the conversation.
func (r *run) recordRequest(p *responses.ResponseNewParams) error {
	if !r.keepItems {
		return nil
	}
	r.requestItems = make([]json.RawMessage, len(p.Input.OfInputItemList))
	for i := range p.Input.OfInputItemList {
		b, err := json.Marshal(&p.Input.OfInputItemList[i])
		if err != nil {
			return &ConfigError{Field: fmt.Sprintf("input[%d]", i), Reason: err.Error()}
		}
		r.requestItems[i] = b
		if r.loop.State == Stateless && i < len(r.answer.Items) && bytes.Equal(compactJSON(b), compactJSON(r.answer.Items[i])) {
			r.requestItems[i] = r.answer.Items[i] // to the byte
		}
	}
	return nil
}

// recordResponse adds a completed response, and what asked for it, to the items.
func (r *run) recordResponse(response *response) {
	if !r.keepItems {
		r.answer.Items = nil // they are no longer the whole
		r.requestItems, r.resend, r.noReasoning = nil, false, false
		return
	}
	a := r.answer
	if r.loop.State == Stateless || r.resend {
		a.Items = nil // what was sent begins with all of them
	}
	a.Items = slices.Concat(a.Items, r.requestItems, replayable(response.items()))
	r.requestItems, r.resend, r.noReasoning = nil, false, false
}

// replayable are the items of a response in the form in which they can be sent
// back: as they are, without what the API adds for readers alone.
func replayable(items []json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	for _, raw := range items {
		var item struct{ Type, Role string }
		unmarshal(raw, &item)
		if item.Type == "additional_tools" && item.Role != "developer" {
			continue
		}
		if bytes.Contains(raw, []byte(`"created_by"`)) {
			raw = withoutMember(raw, "created_by")
			if item.Type == "shell_call_output" {
				raw = withoutMemberOfEach(raw, "output", "created_by")
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
		var item struct{ Type, ID string }
		unmarshal(raw, &item)
		if item.Type == "reasoning" || item.Type == "item_reference" {
			continue
		}
		if item.ID != "" && item.Type != "mcp_approval_request" { // whose answer names it
			raw = withoutMember(raw, "id")
		}
		out = append(out, raw)
	}
	return out
}

// resendIfForgotten reports whether the API has lost the response to continue from, and
// makes the next request send the conversation itself, once.
func (r *run) resendIfForgotten(f *fault) bool {
	if f == nil || r.loop.State != Chained || r.resend || r.answer.ID == "" || len(r.answer.Items) == 0 {
		return false
	}
	r.resend = f.forgotten(r.answer.ID)
	return r.resend
}

// resendWithoutReasoning reports whether the API cannot read the reasoning in the
// conversation, which is sealed for the model that made it, and makes the next
// request leave it out, once.
func (r *run) resendWithoutReasoning(f *fault) bool {
	if f == nil || r.loop.State != Stateless || r.noReasoning || !slices.ContainsFunc(r.answer.Items, isReasoning) {
		return false
	}
	said := strings.ReplaceAll(strings.ToLower(f.code+" "+f.message), "_", " ")
	r.noReasoning = strings.Contains(said, "encrypted content")
	var i int
	if _, err := fmt.Sscanf(f.param, "input[%d]", &i); err == nil && 0 <= i && i < len(r.requestItems) { // a model that takes no reasoning at all
		r.noReasoning = r.noReasoning || isReasoning(r.requestItems[i])
	}
	return r.noReasoning
}

func isReasoning(item json.RawMessage) bool {
	var head struct{ Type string }
	return unmarshal(item, &head) == nil && head.Type == "reasoning"
}

// busyConversations are those that a run of this process is at. One run at a
// time can add to a conversation: what another adds while the calls of a
// response are open is refused.
var busyConversations sync.Map

func (r *run) lockConversation() (unlock func(), err error) {
	id := r.answer.Conversation
	if id == "" {
		return func() {}, nil
	}
	if _, taken := busyConversations.LoadOrStore(id, true); taken {
		return nil, fmt.Errorf("%w: %s", ErrBusy, id)
	}
	return func() { busyConversations.Delete(id) }, nil
}

// advance moves the conversation on to a response that was completed. Of any
// other it keeps the usage and moves nothing.
func (r *run) advance(response *response, calls []*item) error {
	a := r.answer
	if err := response.check(); err != nil {
		if a.Partial == "" {
			a.Partial = response.text()
		}
		a.Interrupted = a.Partial != "" && !errors.Is(err, ErrFiltered) // which would have the next request refused
		if r.loop.State == InConversation {
			r.adoptOpenCalls(response, calls)
		}
		return err
	}
	a.ID = response.ID
	u, _ := response.usage()
	a.ContextTokens = u.InputTokens
	r.clearPrompts()
	a.Partial = ""
	a.Paused = len(calls) == 0 && response.runsProgram()
	r.recordResponse(response)
	r.loadTools(response.Output)
	a.collect(response)
	a.Pending = a.Pending[:0]
	r.dropSentOutputs()
	a.Open = nil
	for _, it := range calls {
		a.Open = append(a.Open, it.CallID)
	}
	return nil
}

// clearPrompts drops the prompts, which the conversation holds now.
func (r *run) clearPrompts() {
	a := r.answer
	a.Earlier, a.Prompt, a.Parts = nil, "", nil
	a.Interrupted, r.shown = false, ""
}

// dropSentOutputs drops what an earlier run has left to send.
func (r *run) dropSentOutputs() {
	a := r.answer
	a.Calls = slices.DeleteFunc(a.Calls, func(c CallResult) bool { return slices.Contains(r.earlierCalls, c.ID) })
	r.earlierCalls = nil
}

// adoptOpenCalls takes over the calls of a response that cannot be used, but is part of
// its conversation all the same: the API wants outputs for them.
func (r *run) adoptOpenCalls(response *response, calls []*item) {
	if response.Status != "completed" && response.Status != "incomplete" {
		return
	}
	a := r.answer
	a.ID, a.Open = response.ID, nil
	r.clearPrompts()
	r.dropSentOutputs()
	a.Pending = []Call{}
	for _, c := range r.newCalls(calls, a.Turns+1) {
		if c.ID != "" && !slices.Contains(a.Open, c.ID) {
			a.Open = append(a.Open, c.ID)
			a.Pending = append(a.Pending, c)
		}
	}
}
