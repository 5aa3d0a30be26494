package fnloop

import (
	"bytes"
	"encoding/json"
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

// checkEdited refuses what BeforeRequest may have set against the Loop's State.
func (r *run) checkEdited(p *responses.ResponseNewParams) error {
	const hook = "BeforeRequest: "
	stored := !p.Store.Valid() || p.Store.Value
	switch {
	case p.Model == "":
		return &ConfigError{Field: hook + "model", Reason: "is empty"}
	case p.Background.Valid() && p.Background.Value:
		return &ConfigError{Field: hook + "background", Reason: "is true, but a Loop waits for its responses"}
	case p.Input.OfInputItemList == nil && (r.keep || len(r.answer.Open) > 0):
		return &ConfigError{Field: hook + "input", Reason: "is no list of items any more, but the conversation or the outputs of calls are in it; add to OfInputItemList"}
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

// without is a JSON object without one of its members. The others stay as they
// are, to the byte.
func without(object json.RawMessage, member string) json.RawMessage {
	return edit(object, func(key string, value json.RawMessage) (json.RawMessage, bool) {
		return value, key != member
	})
}

// withoutEach is object with member left out of each element of a list in it.
func withoutEach(object json.RawMessage, list, member string) json.RawMessage {
	return edit(object, func(key string, value json.RawMessage) (json.RawMessage, bool) {
		var elements []json.RawMessage
		if key != list || json.Unmarshal(value, &elements) != nil {
			return value, true
		}
		parts := make([][]byte, len(elements))
		for i, e := range elements {
			parts[i] = without(e, member)
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), true
	})
}

// edit lets keep change or leave out the members of a JSON object, in order.
func edit(object json.RawMessage, keep func(string, json.RawMessage) (json.RawMessage, bool)) json.RawMessage {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return object
	}
	out := []byte{'{'}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return object
		}
		key, _ := token.(string)
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return object
		}
		if value, ok := keep(key, value); ok {
			name, err := json.Marshal(key)
			if err != nil {
				return object
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, name...), ':'), value...)
		}
	}
	return append(out, '}')
}

// forgot reports whether the API has lost the response to continue from, and
// makes the next request send the conversation itself, once.
func (r *run) forgot(fail *failure) bool {
	e, ok := fail.err.(*RequestError)
	if !ok || r.loop.State != Chained || r.replay || r.answer.ID == "" || len(r.answer.Items) == 0 {
		return false
	}
	// The second is what accounts with zero data retention were answered.
	r.replay = e.Code == "previous_response_not_found" || e.Code == "unsupported_parameter" && e.Param == "previous_response_id"
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
