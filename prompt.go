package fnloop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"

	"github.com/fnloop/fnloop/internal/excerpt"
)

// A Message is input that no response has taken in: a prompt, or what the user
// was shown of an answer that broke off. See [Answer.Earlier].
type Message struct {
	// Role is "user" for a prompt and "assistant" for the text of an answer.
	Role string `json:"role"`
	Text string `json:"text,omitempty"`
	// Parts are the images and files of a prompt.
	Parts []Content `json:"parts,omitempty"`
}

// AddPrompt puts a prompt into a, after those that no response has taken in. It
// is what [Loop.Continue] does with a prompt of its own. Use it to store a
// prompt before the run that answers it, and continue with an empty one. A
// prompt without text and parts adds nothing.
func (a *Answer) AddPrompt(prompt string, parts ...Content) {
	if strings.TrimSpace(prompt) == "" {
		if prompt = ""; len(parts) == 0 {
			return
		}
	}
	earlier := slices.Clip(a.Earlier) // another Answer may share it
	if a.Prompt != "" || len(a.Parts) > 0 {
		earlier = append(earlier, Message{Role: "user", Text: a.Prompt, Parts: a.Parts})
	}
	if a.Interrupted && a.Partial != "" {
		earlier = append(earlier, Message{Role: "assistant", Text: a.Partial})
		a.Partial = ""
	}
	a.Interrupted = false
	a.Earlier, a.Prompt, a.Parts = earlier, prompt, slices.Clone(parts)
}

// DropPrompts removes from a the prompts that got no answer and what was shown of
// answers to them. [Loop.Continue] then sends only the prompt that it gets. Use it
// when the user takes a message back or edits it, or when the API refuses a prompt
// because of its content.
func (a *Answer) DropPrompts() {
	a.Earlier, a.Prompt, a.Parts = nil, "", nil
	if a.Interrupted {
		a.Partial, a.Interrupted = "", false
	}
}

// hasPrompt reports whether a holds input of the user that no response has taken
// in.
func (a *Answer) hasPrompt() bool {
	return a.Prompt != "" || len(a.Parts) > 0 || len(a.Earlier) > 0
}

// unsent are the messages that the next request adds to the conversation. What
// was shown of the answer to the last of them is not there: without a prompt
// after it the model begins that answer anew.
func (a *Answer) unsent() []Message {
	messages := slices.Clip(a.Earlier)
	if a.Prompt != "" || len(a.Parts) > 0 {
		messages = append(messages, Message{Role: "user", Text: a.Prompt, Parts: a.Parts})
	}
	return messages
}

// checkPrompts reports what the API would refuse in the prompts of a. The last of
// them is the caller's own if isNew.
func (a *Answer) checkPrompts(isNew bool) error {
	for i, m := range a.Earlier {
		field := fmt.Sprintf("from.Earlier[%d]", i)
		if m.Role != "user" && m.Role != "assistant" {
			return &ConfigError{Field: field + ".Role", Reason: fmt.Sprintf(`is %q, neither "user" nor "assistant"`, m.Role)}
		}
		if m.Role == "assistant" && len(m.Parts) > 0 {
			return &ConfigError{Field: field + ".Parts", Reason: "are set, but only a message of a user can have them"}
		}
		if err := m.check(field+".Text", field+".Parts"); err != nil {
			return err
		}
	}
	last := Message{Text: a.Prompt, Parts: a.Parts}
	if isNew {
		return last.check("prompt", "parts")
	}
	return last.check("from.Prompt", "from.Parts")
}

func (m Message) check(text, parts string) error {
	if i := excerpt.InvalidUTF8(m.Text); i >= 0 {
		return &ConfigError{Field: text, Reason: fmt.Sprintf("has invalid UTF-8 at offset %d", i)}
	}
	for i, c := range m.Parts {
		field := fmt.Sprintf("%s[%d]", parts, i)
		if c == (Content{Detail: c.Detail}) {
			return &ConfigError{Field: field, Reason: "is empty; set a text, an image or a file"}
		}
		if err := c.check(); err != nil {
			return &ConfigError{Field: field, Reason: err.Error()}
		}
		for _, s := range []string{c.Text, c.ImageURL, c.ImageID, c.FileID, c.FileData, c.FileName, c.FileURL} {
			if at := excerpt.InvalidUTF8(s); at >= 0 {
				return &ConfigError{Field: field, Reason: fmt.Sprintf("has invalid UTF-8 at offset %d of one of its fields", at)}
			}
		}
	}
	return nil
}

// item is the message as an item of a request.
func (m Message) item() responses.ResponseInputItemUnionParam {
	role := responses.EasyInputMessageRole(m.Role)
	if len(m.Parts) == 0 {
		return responses.ResponseInputItemParamOfMessage(m.Text, role)
	}
	var parts responses.ResponseInputMessageContentListParam
	if m.Text != "" {
		parts = append(parts, responses.ResponseInputContentParamOfInputText(m.Text))
	}
	for _, c := range m.Parts {
		parts = append(parts, c.inputParam())
	}
	return responses.ResponseInputItemParamOfMessage(parts, role)
}

// inputParam is the part as one of a message.
func (c Content) inputParam() responses.ResponseInputContentUnionParam {
	opt := func(s string) param.Opt[string] {
		if s == "" {
			return param.Opt[string]{}
		}
		return param.NewOpt(s)
	}
	switch {
	case c.isImage():
		return responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{
			ImageURL: opt(c.ImageURL), FileID: opt(c.ImageID), Detail: responses.ResponseInputImageDetail(c.Detail),
		}}
	case c.isFile():
		return responses.ResponseInputContentUnionParam{OfInputFile: &responses.ResponseInputFileParam{
			FileID: opt(c.FileID), FileData: opt(c.FileData), Filename: opt(c.FileName), FileURL: opt(c.FileURL),
			Detail: responses.ResponseInputFileDetail(c.Detail),
		}}
	}
	return responses.ResponseInputContentParamOfInputText(c.Text)
}
