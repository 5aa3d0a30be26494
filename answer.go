package fnloop

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Usage counts tokens, summed over all responses of a run, failed ones too.
type Usage struct {
	InputTokens      int64 `json:"input_tokens"`
	CachedTokens     int64 `json:"cached_tokens"`                // part of InputTokens, read from the prompt cache
	CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"` // part of InputTokens, written to it
	OutputTokens     int64 `json:"output_tokens"`
	ReasoningTokens  int64 `json:"reasoning_tokens"` // part of OutputTokens
	TotalTokens      int64 `json:"total_tokens"`
}

func (u *Usage) add(v Usage) {
	u.InputTokens += v.InputTokens
	u.CachedTokens += v.CachedTokens
	u.CacheWriteTokens += v.CacheWriteTokens
	u.OutputTokens += v.OutputTokens
	u.ReasoningTokens += v.ReasoningTokens
	u.TotalTokens += v.TotalTokens
}

// An Answer is how far a run got, whatever stopped it. It round-trips through
// JSON, so that a back end can store it with the conversation, and
// [Loop.Continue] picks up from it.
//
// The counts and calls are those of one run; the conversation is behind ID.
type Answer struct {
	// Text is the model's answer, or its words when it refused.
	Text string `json:"text"`
	// Stop is why the run ended.
	Stop StopReason `json:"stop"`
	// ID is the response that the conversation continues from: the last one
	// that was completed. Empty means that there is none yet.
	ID string `json:"id"`
	// Turns is how many turns, rounds of calls, the run had. A run that goes on
	// after an approval counts those before it too.
	Turns int `json:"turns"`
	// Usage counts the tokens of all responses.
	Usage Usage `json:"usage"`
	// Model and ServiceTier are those that made the last response, as the API
	// names them; each is empty when it did not say. A run whose requests differ
	// has them for each response in its [ResponseFinished] events.
	Model       string `json:"model,omitempty"`
	ServiceTier string `json:"service_tier,omitempty"`
	// ContextTokens is how many input tokens the response ID had: how full the
	// model's context was. Zero means that the API did not say.
	ContextTokens int64 `json:"context_tokens,omitempty"`
	// Pending are the calls of the response ID that have no output.
	Pending []Call `json:"pending"`
	// Calls are those that have one, in order.
	Calls []CallResult `json:"calls"`

	// Open are the IDs of the calls of the response ID whose outputs were not
	// yet sent, in call order. Continue sends what Calls has of them and says
	// of those in Pending that they were not run.
	Open []string `json:"open,omitempty"`
	// Conversation is the conversation of a Loop whose State is InConversation.
	Conversation string `json:"conversation,omitempty"`
	// Items are the whole conversation, as the API's items, where the Loop keeps
	// it: when it is Stateless or has KeepItems set.
	Items []json.RawMessage `json:"items,omitempty"`
	// Prompt and Parts are the last prompt, if the run ended before a response to
	// it. Continue sends it, and then the prompt that it gets.
	Prompt string    `json:"prompt,omitempty"`
	Parts  []Content `json:"parts,omitempty"`
	// Earlier are the prompts before Prompt that got no response either, with what
	// the user was shown of an answer between them. DropPrompts keeps Continue
	// from sending any of it.
	Earlier []Message `json:"earlier,omitempty"`
	// ToolState is what tools remember, by the tool's name; see [ToolState]. It
	// is for storage alone: the model is never sent it, and a browser is not
	// either unless the host sends it the Answer itself.
	ToolState map[string]json.RawMessage `json:"tool_state,omitempty"`
	// Paused says that the response ID is that of a program which OpenAI runs
	// and which has not ended. Continue lets it go on, with or without a prompt.
	Paused bool `json:"paused,omitempty"`
	// Partial is the text of a response that is no answer: it was cut short, or
	// came with calls that were not run.
	Partial string `json:"partial,omitempty"`
	// Interrupted says that Partial is of an answer that broke off and that the
	// conversation does not hold. When Continue gets a prompt it sends Partial
	// before that, as a message of the assistant, since the user has read it.
	Interrupted bool `json:"interrupted,omitempty"`
	// Responses is how many responses came, and Unmetered how many of them did
	// not say what they used.
	Responses int `json:"responses"`
	Unmetered int `json:"unmetered,omitempty"`
	// Citations say where pieces of Text come from.
	Citations []Citation `json:"citations,omitempty"`
	// Hosted are the calls of tools that the API ran by itself, and Files what
	// they have made, of the responses of this run.
	Hosted []HostedCall `json:"hosted,omitempty"`
	Files  []File       `json:"files,omitempty"`
	// Cause is the cause of the context that ended the run, if it says more than
	// the context's error.
	Cause string `json:"cause,omitempty"`
	// Abandoned is how many handlers had not returned when the Grace after the end
	// of their context was over. Hooks that had not are in the log.
	Abandoned int `json:"abandoned,omitempty"`
}

func newAnswer(stop StopReason) *Answer {
	return &Answer{Stop: stop, Pending: []Call{}, Calls: []CallResult{}}
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

// clone is a copy of a that shares no memory with it.
func (a *Answer) clone() *Answer {
	b := *a
	b.Pending = slices.Clone(a.Pending)
	for i := range b.Pending {
		b.Pending[i] = b.Pending[i].clone()
	}
	b.Calls = slices.Clone(a.Calls)
	for i := range b.Calls {
		b.Calls[i] = b.Calls[i].clone()
	}
	b.Open = slices.Clone(a.Open)
	b.Items = slices.Clone(a.Items)
	for i := range b.Items {
		b.Items[i] = bytes.Clone(b.Items[i])
	}
	b.ToolState = cloneToolState(a.ToolState)
	b.Citations = slices.Clone(a.Citations)
	b.Hosted = slices.Clone(a.Hosted)
	for i := range b.Hosted {
		b.Hosted[i].Item = bytes.Clone(b.Hosted[i].Item)
	}
	b.Files = slices.Clone(a.Files)
	for i := range b.Files {
		b.Files[i].Data = bytes.Clone(b.Files[i].Data)
	}
	b.Parts = slices.Clone(a.Parts)
	b.Earlier = slices.Clone(a.Earlier)
	for i := range b.Earlier {
		b.Earlier[i].Parts = slices.Clone(b.Earlier[i].Parts)
	}
	return &b
}
