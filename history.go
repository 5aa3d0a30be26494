package fnloop

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
)

// A HistoryEntry is one thing of a conversation, as a page shows it when it is
// loaded again: a message, a paragraph of reasoning, a call or the work of a hosted
// tool.
type HistoryEntry struct {
	// Role is "user", "assistant", "system" or "developer".
	Role string `json:"role"`
	// Text is that of a message, and Parts are its images and files.
	Text  string    `json:"text,omitempty"`
	Parts []Content `json:"parts,omitempty"`
	// Phase is "commentary" or "final_answer" where the model has said so, and
	// Refusal says that the model refuses with these words.
	Phase   string `json:"phase,omitempty"`
	Refusal bool   `json:"refusal,omitempty"`
	// Unanswered says that no response has taken the message in: a prompt of a
	// run that failed, or what was shown of an answer that broke off.
	Unanswered bool `json:"unanswered,omitempty"`
	// Citations have their places in Text. Files are what a hosted tool made.
	Citations []Citation `json:"citations,omitempty"`
	Files     []File     `json:"files,omitempty"`
	// Reasoning is a summary of the model's reasoning.
	Reasoning string `json:"reasoning,omitempty"`
	// Call is a call with its output. A call that has none yet has an empty one.
	Call *CallResult `json:"call,omitempty"`
	// Hosted is the work of a tool that the API runs.
	Hosted *HostedCall `json:"hosted,omitempty"`
}

// History is the conversation of an Answer whose Loop keeps its items: one that is
// Stateless or has KeepItems set. Of any other it is what no response has taken in;
// [FetchHistory] asks the API for the rest.
//
// The times, turns and errors of calls are not kept with the conversation. Text that
// only the model should read may be among it: a system message, the output of a
// call.
func (a *Answer) History() []HistoryEntry { return a.history(a.Items) }

// FetchHistory is [Answer.History] of a conversation that the API keeps: it reads
// the items of a conversation object, or else the response that the conversation
// continues from and what that had for its input. The error is a [*RequestError] if
// the API does not answer, which may have deleted them since.
func FetchHistory(ctx context.Context, client *responses.ResponseService, a *Answer, opts ...option.RequestOption) ([]HistoryEntry, error) {
	var items []json.RawMessage
	var err error
	switch {
	case len(a.Items) > 0 || a.ID == "" && a.Conversation == "":
		return a.History(), nil
	case a.Conversation != "":
		service := conversations.NewItemService(client.Options...)
		items, err = newestFirst(service.ListAutoPaging(ctx, a.Conversation, conversations.ItemListParams{
			Order: conversations.ItemListParamsOrderDesc, Limit: param.NewOpt[int64](100), Include: historyIncludes,
		}, opts...))
	default:
		items, err = fetchResponse(ctx, client, a.ID, opts)
	}
	if err != nil {
		return nil, err
	}
	return a.history(items), nil
}

// historyIncludes are what the API leaves out of lists unless it is asked for.
var historyIncludes = []responses.ResponseIncludable{responses.ResponseIncludableMessageInputImageImageURL}

// fetchResponse gives the items of a response and of all that it continues.
func fetchResponse(ctx context.Context, client *responses.ResponseService, id string, opts []option.RequestOption) ([]json.RawMessage, error) {
	last, err := client.Get(ctx, id, responses.ResponseGetParams{}, opts...)
	if err != nil {
		return nil, classify(err, nil).err
	}
	items, err := newestFirst(client.InputItems.ListAutoPaging(ctx, id, responses.InputItemListParams{
		Order: responses.InputItemListParamsOrderDesc, Limit: param.NewOpt[int64](100), Include: historyIncludes,
	}, opts...))
	if err != nil {
		return nil, err
	}
	r, err := decodeResponse([]byte(last.RawJSON()))
	if err != nil {
		return nil, err
	}
	return append(items, r.items()...), nil
}

// newestFirst reads a list in the API's own order, and gives it with the oldest item
// first.
func newestFirst[T interface{ RawJSON() string }](list interface {
	Next() bool
	Current() T
	Err() error
},
) ([]json.RawMessage, error) {
	var items []json.RawMessage
	for list.Next() {
		items = append(items, json.RawMessage(list.Current().RawJSON()))
	}
	if err := list.Err(); err != nil {
		return nil, classify(err, nil).err
	}
	slices.Reverse(items)
	return items, nil
}

// history are items of the conversation, and what it does not hold yet.
func (a *Answer) history(items []json.RawMessage) []HistoryEntry {
	var out []HistoryEntry
	calls := make(map[string]*CallResult) // the last one of each ID
	for _, raw := range items {
		var it historyItem
		json.Unmarshal(raw, &it) // what is missing is empty
		entry := HistoryEntry{Role: "assistant"}
		switch {
		case it.Type == "message" || it.Type == "" && it.Role != "":
			entry.message(&it)
		case it.Type == "reasoning":
			var parts []string
			for _, p := range partsOf(it.Summary) {
				parts = append(parts, p.Text)
			}
			if entry.Reasoning = strings.Join(parts, "\n\n"); entry.Reasoning == "" {
				continue
			}
		case it.isCall(), it.asksApproval():
			entry.Call = &CallResult{Call: newCall(&it.item)}
			calls[entry.Call.ID] = entry.Call
		case it.Type == "function_call_output" || it.Type == "custom_tool_call_output":
			if c := calls[it.CallID]; c != nil {
				c.Output = it.output()
			}
			continue
		case it.isHosted():
			hosted := it.hosted(raw)
			entry.Hosted, entry.Files = &hosted, it.files()
		default:
			continue
		}
		out = append(out, entry)
	}
	for _, id := range a.Open { // outputs that were not sent yet
		if c, done := calls[id], a.result(id); c != nil && done != nil && a.pending(id) == nil {
			*c = *done
		}
	}
	for _, m := range a.unsent() {
		out = append(out, HistoryEntry{Role: m.Role, Text: m.Text, Parts: m.Parts, Unanswered: true})
	}
	if a.Interrupted && a.Partial != "" {
		out = append(out, HistoryEntry{Role: "assistant", Text: a.Partial, Unanswered: true})
	}
	return out
}

// A historyItem is an item of the conversation, of input as well as of output.
type historyItem struct {
	item
	Role   string          `json:"role"`
	Output json.RawMessage `json:"output"`
}

// message makes the entry that of a message.
func (e *HistoryEntry) message(it *historyItem) {
	e.Role, e.Phase = it.Role, it.Phase
	if e.Role == "" {
		e.Role = "assistant" // output need not say it
	}
	if json.Unmarshal(it.Content, &e.Text) == nil {
		return
	}
	for _, p := range it.parts() {
		e.Text += p.Text + p.Refusal
		e.Refusal = e.Refusal || p.Refusal != ""
	}
	e.Parts = contentOf(it.Content)
	e.Citations = it.citations()
	e.Files = it.files()
}

// output is that of a call: a text, or parts.
func (it *historyItem) output() (out Output) {
	if json.Unmarshal(it.Output, &out.Text) == nil {
		return out
	}
	var parts []contentPart
	json.Unmarshal(it.Output, &parts) // what is no list of parts has none
	for _, p := range parts {
		out.Content = append(out.Content, p.content())
	}
	return out
}

// contentOf are the images and files among the parts of a message.
func contentOf(list json.RawMessage) []Content {
	var parts []contentPart
	json.Unmarshal(list, &parts) // the same
	var out []Content
	for _, p := range parts {
		if p.Type == "input_image" || p.Type == "input_file" {
			out = append(out, p.content())
		}
	}
	return out
}

// content is the part as a host makes it.
func (p contentPart) content() Content {
	switch p.Type {
	case "input_image":
		return Content{ImageURL: p.ImageURL, ImageID: p.FileID, Detail: p.Detail}
	case "input_file":
		return Content{FileID: p.FileID, FileData: p.FileData, FileName: p.FileName, FileURL: p.FileURL, Detail: p.Detail}
	}
	if p.Text != nil {
		return Content{Text: *p.Text}
	}
	return Content{}
}
